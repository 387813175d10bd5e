"""Whatever the damage, and wherever a repair of it is stopped, the next one ends where Kafka's loader does.

`tests/faults/test_recover_faults.py` stops a few repairs in every way at every change.
"""

from __future__ import annotations

import os
import random
import shutil

import kseg
from tests.faults.disk import FaultyDisk, kinds_of, run_with
from tests.kafka.oracle import OracleError
from tests.recovery.damages import copy, damage
from tests.recovery.states import CONFIG, NOW, content, settled
from tests.scale import counts


def repair(directory, promise):
    kseg.recover(directory, config=CONFIG, now_ms=NOW)


def test_random_damages_and_interruptions(oracle, logs, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # it is counted as a change; the disk's work is not under test
    compared = 0
    for number in range(counts(20)):
        rng = random.Random(500 + number)
        source, _ = rng.choice(logs)
        folder = tmp_path / str(number)
        directory = copy(source, folder / "ours" / "t-0")
        done = damage(rng, directory)
        kafkas = copy(directory, folder / "kafkas" / "t-0")
        try:
            oracle.load(kafkas)
        except OracleError:
            continue
        trial = copy(directory, folder / "trial" / "t-0")
        whole = FaultyDisk()
        assert run_with(whole, repair, trial).error is None
        if len(whole.seen) < 2:
            continue
        moment = rng.randrange(len(whole.seen))
        end = run_with(FaultyDisk(moment, rng.choice(kinds_of(whole.seen[moment][0]))), repair, directory)
        if end.error is not None:
            repair(directory, None)
        assert content(directory) == content(trial), (done, end)
        logs_of = [
            {name: data for name, data in found.items() if name.endswith(".log")}
            for found in (content(directory), settled(kafkas))
        ]
        assert logs_of[0] == logs_of[1], (done, end)
        compared += 1
        shutil.rmtree(folder, ignore_errors=True)
    assert compared
