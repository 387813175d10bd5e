"""The power fails at every change that a repair or its undo makes: both go on from there, and a broker starts there."""

from __future__ import annotations

import functools
import os
import random
import shutil

import pytest

import kseg
from tests.faults.power import Power, PowerCutError
from tests.kafka.oracle import OracleError
from tests.recovery.damages import bases_of, copy, damage
from tests.recovery.states import CONFIG, NOW, content, settled, write_checkpoints
from tests.reference import batch as v2
from tests.scale import FACTOR, counts

BATCH_START = 98  # in the first of the random logs
STEP = 1 if FACTOR > 1 else 5  # every change in a soak


def cut_in_the_middle(directory):
    base = bases_of(directory)[1]
    path = directory / f"{base:020d}.log"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 7)


def damage_in_the_middle(directory):
    path = directory / f"{bases_of(directory)[1]:020d}.log"
    data = bytearray(path.read_bytes())
    entries = v2.walk(bytes(data))[0]
    position, size = entries[len(entries) // 2]
    data[position + size - 1] ^= 1
    path.write_bytes(data)


def swap_and_cut(directory):
    """A replacement that was interrupted behind its point of no return; what it brings is torn."""
    base = bases_of(directory)[1]
    for suffix in (".log", ".index", ".timeindex"):
        path = directory / f"{base:020d}{suffix}"
        path.with_name(path.name + ".swap").write_bytes(path.read_bytes()[: -5 if suffix == ".log" else None])
    (directory / f"{7:020d}.log.deleted").write_bytes(b"gone")


def lost_index(directory):
    (directory / f"{bases_of(directory)[1]:020d}.index").unlink()
    (directory / f"{bases_of(directory)[-1]:020d}.snapshot").unlink(missing_ok=True)


def nothing(directory):
    pass


WORKS = {
    "cut": (cut_in_the_middle, lambda d: kseg.recover(d, config=CONFIG, now_ms=NOW)),
    "as-kafka": (cut_in_the_middle, lambda d: kseg.recover(d, as_kafka=True, config=CONFIG, now_ms=NOW)),
    "salvage": (damage_in_the_middle, lambda d: kseg.recover(d, salvage=True, config=CONFIG, now_ms=NOW)),
    "swap": (swap_and_cut, lambda d: kseg.recover(d, config=CONFIG, now_ms=NOW)),
    "lost-index": (lost_index, lambda d: kseg.recover(d, config=CONFIG, now_ms=NOW)),
    "truncate": (nothing, lambda d: kseg.truncate(d, BATCH_START, config=CONFIG, now_ms=NOW)),
}


def interrupt(monkeypatch, work, directory, cut_at):
    with monkeypatch.context() as patch, pytest.raises(PowerCutError):
        Power(patch, cut_at)
        work(directory)


def count_changes(monkeypatch, work, directory):
    with monkeypatch.context() as patch:
        power = Power(patch)
        work(directory)
    return power.changes


@pytest.fixture
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # it is counted as a change; the disk's work is not under test


def prepare(logs, folder, spoil, *, clean=False):
    source, end = logs[0]
    directory = copy(source, folder / "t-0")
    spoil(directory)
    write_checkpoints(folder, 0, 0, clean=clean)
    (folder / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {end}\n")
    return directory


def side_of(directory):
    """The checkpoints of the log directory around a partition."""
    return {path.name: path.read_text() for path in directory.parent.glob("*-checkpoint")}


@pytest.mark.parametrize("work", WORKS)
def test_a_repair_that_was_interrupted_is_done_by_the_next_one(logs, tmp_path, monkeypatch, no_fsync, work):
    spoil, repair = WORKS[work]
    whole = prepare(logs, tmp_path / "whole", spoil)
    changes = count_changes(monkeypatch, repair, whole)
    assert changes > 10
    for cut_at in range(1, changes + 1, STEP):
        directory = prepare(logs, tmp_path / str(cut_at), spoil)
        interrupt(monkeypatch, repair, directory, cut_at)
        repair(directory)
        assert content(directory) == content(whole), cut_at
        assert side_of(directory) == side_of(whole)
        assert kseg.recover(directory, config=CONFIG, now_ms=NOW).partitions[0].cut_bytes == 0
        shutil.rmtree(directory.parent)


@pytest.mark.parametrize("work", [work for work in WORKS if work != "as-kafka"])
def test_a_repair_that_was_interrupted_can_be_undone(logs, tmp_path, monkeypatch, no_fsync, work):
    spoil, repair = WORKS[work]
    start = prepare(logs, tmp_path / "start", spoil)
    before, before_side = content(start), side_of(start)
    changes = count_changes(monkeypatch, repair, start)
    for cut_at in range(2, changes + 1, STEP):
        directory = prepare(logs, tmp_path / str(cut_at), spoil)
        interrupt(monkeypatch, repair, directory, cut_at)
        if (directory / ".kseg" / "quarantine").exists() and any((directory / ".kseg" / "quarantine").iterdir()):
            kseg.undo_repair(directory)
        assert content(directory) == before, cut_at
        assert side_of(directory) == before_side
        shutil.rmtree(directory.parent)


@pytest.mark.parametrize("work", [work for work in WORKS if work != "as-kafka"])
def test_an_undo_that_was_interrupted_goes_on(logs, tmp_path, monkeypatch, no_fsync, work):
    spoil, repair = WORKS[work]
    start = prepare(logs, tmp_path / "start", spoil)
    before, before_side = content(start), side_of(start)
    repair(start)
    changes = count_changes(monkeypatch, kseg.undo_repair, start)
    assert content(start) == before
    assert not (start / ".kseg").exists()
    for cut_at in range(3, changes + 1, STEP):
        directory = prepare(logs, tmp_path / str(cut_at), spoil)
        repair(directory)
        interrupt(monkeypatch, kseg.undo_repair, directory, cut_at)
        if (directory / ".kseg" / "quarantine").exists() and any((directory / ".kseg" / "quarantine").iterdir()):
            kseg.undo_repair(directory)
        assert content(directory) == before, cut_at
        assert side_of(directory) == before_side
        shutil.rmtree(directory.parent)


@pytest.mark.parametrize("work", WORKS)
def test_a_broker_starts_where_a_repair_was_interrupted(oracle, logs, tmp_path, monkeypatch, no_fsync, work):
    """What Kafka's loader makes of it is what it would have made of the start, or what the repair makes of it."""
    spoil, repair = WORKS[work]
    whole = prepare(logs, tmp_path / "whole", spoil, clean=work == "truncate")
    untouched = oracle.load(copy(whole, tmp_path / "untouched" / "t-0"), clean=work == "truncate")
    changes = count_changes(monkeypatch, repair, whole)
    shutil.rmtree(whole / ".kseg", ignore_errors=True)
    repaired = oracle.load(copy(whole, tmp_path / "repaired" / "t-0"))
    ends = {untouched["logEnd"], repaired["logEnd"]}
    for cut_at in range(4, changes + 1, 2 * STEP):
        directory = prepare(logs, tmp_path / str(cut_at), spoil, clean=work == "truncate")
        interrupt(monkeypatch, repair, directory, cut_at)
        clean = (directory.parent / ".kafka_cleanshutdown").exists()
        shutil.rmtree(directory / ".kseg", ignore_errors=True)
        state = oracle.load(directory, clean=clean)
        if work != "truncate":  # segments behind the target go one by one there, and any of them may be the last
            assert state["logEnd"] in ends, cut_at
        offsets = [batch["base"] for batch in oracle.dump(directory)]
        assert offsets == sorted(set(offsets)), cut_at
        shutil.rmtree(directory.parent, ignore_errors=True)


def test_random_damages_and_interruptions(oracle, logs, tmp_path, monkeypatch, no_fsync):
    """Wherever a repair stops, the next one ends with what Kafka's loader makes of the damage."""
    compared = 0
    for number in range(counts(15)):
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
        repair = functools.partial(kseg.recover, config=CONFIG, now_ms=NOW)
        changes = count_changes(monkeypatch, repair, trial)
        if changes < 2:
            continue
        interrupt(monkeypatch, repair, directory, rng.randrange(1, changes + 1))
        repair(directory)
        assert content(directory) == content(trial), done
        logs_of = [{name: data for name, data in found.items() if name.endswith(".log")} for found in
                   (content(directory), settled(kafkas))]  # fmt: skip
        assert logs_of[0] == logs_of[1], done
        compared += 1
        shutil.rmtree(folder, ignore_errors=True)
    assert compared
