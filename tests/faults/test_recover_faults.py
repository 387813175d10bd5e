"""Repairs and their undo on disks that fail, fill up, lose power and forget.

Wherever they stop: kseg opens what is left, and what the repair keeps is there once; the same call again comes to the
same end; undo gives every byte back, so nothing that was cut off is lost; and Kafka's loader starts there, by the word
of the clean-shutdown marker where it is there.
"""

from __future__ import annotations

import os
import random
import shutil

import pytest

import kseg
from kseg.log.names import SIDE_DIR
from tests.faults.disk import NEED_SPACE, End, FaultyDisk, each_fault, noted, run_with
from tests.faults.forgetful import each_crash
from tests.faults.kill import killed
from tests.faults.repairs import ANEW, REPAIRS, Truth, files, is_marked, load, partition
from tests.scale import FACTOR, counts

EVERY = 13  # each fault and each state in a soak
KEEPING = [name for name, repair in REPAIRS.items() if repair.keeps]


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


@pytest.fixture(scope="module")
def truths(tmp_path_factory):
    return {name: Truth(repair, tmp_path_factory.mktemp(name)) for name, repair in REPAIRS.items()}


@pytest.fixture(params=REPAIRS)
def truth(truths, request):
    return truths[request.param]


@pytest.fixture(params=KEEPING)
def kept(truths, request):
    return truths[request.param]


def check_left(truth, folder, end, promised):
    """What holds wherever a repair or its undo has stopped."""
    truth.check_marker(folder)
    truth.check_rows(folder)
    if end.promised:
        assert files(folder) == promised
    if truth.repair.keeps:
        truth.check_undone(copy_of(folder))
    truth.check_done(folder)


def copy_of(folder):
    """Without what a loader has opened: it may still write a checkpoint there in the background."""
    return shutil.copytree(folder, folder / "undone", ignore=shutil.ignore_patterns("loaded"))


def of_repair(truth):
    return lambda folder, end: check_left(truth, folder, end, truth.after)


def of_undo(truth):
    return lambda folder, end: check_left(truth, folder, end, truth.before)


def test_every_operation_of_a_repair_can_fail(truth, tmp_path):
    assert each_fault(truth.start, truth.job, of_repair(truth), folder=tmp_path, every=EVERY) > 40


def test_whatever_the_disk_forgets_of_a_repair(truth, tmp_path):
    assert each_crash(truth.start, truth.job, of_repair(truth), folder=tmp_path, every=EVERY, tries=counts(1)) > 15


def test_every_operation_of_an_undo_can_fail(kept, tmp_path):
    assert each_fault(kept.done, kept.undo, of_undo(kept), folder=tmp_path, every=EVERY) > 15


def test_whatever_the_disk_forgets_of_an_undo(kept, tmp_path):
    assert each_crash(kept.done, kept.undo, of_undo(kept), folder=tmp_path, every=EVERY, tries=counts(1)) > 15


@pytest.mark.parametrize("is_undo", [False, True])
def test_somebody_presses_ctrl_c(truths, tmp_path, is_undo):
    """The disk works on, and so do all handlers."""
    for name in KEEPING:
        truth = truths[name]
        start, job, check = (truth.done, truth.undo, of_undo) if is_undo else (truth.start, truth.job, of_repair)
        whole = FaultyDisk()
        run_with(whole, job, shutil.copytree(start, tmp_path / name))
        for number in range(0, len(whole.seen), 3 * (EVERY if FACTOR == 1 else 1)):
            folder = shutil.copytree(start, tmp_path / f"{name}-{number}")
            end = run_with(FaultyDisk(number, "interrupt"), job, folder)
            assert isinstance(end.error, KeyboardInterrupt)
            with noted(end):
                check(truth)(folder, end)


class Loads:
    """What Kafka's loader may make of what a repair, or its undo, has left.

    Where the repair does what the loader does, nothing else. Where the two differ, or while damage comes back piece by
    piece, what both keep is there, and perhaps more of what was sound.
    """

    def __init__(self, truth, oracle, home, *, is_exact):
        self.truth, self.oracle, self.is_exact = truth, oracle, is_exact
        self.before = load(oracle, truth.start, home / "before")
        self.after = load(oracle, truth.done, home / "after")

    def check(self, folder, end):
        found = load(self.oracle, folder, folder / "loaded")
        if self.is_exact or is_marked(folder):
            assert found in (self.before, self.after)
            return
        offsets = [row.offset for row in found[1]]
        assert offsets == sorted(set(offsets))
        least = min((self.before[1], self.after[1]), key=len)
        assert {row.offset for row in least} <= set(offsets) <= {row.offset for row in self.truth.rows_before}


def test_kafka_loads_whatever_the_disk_forgets_of_a_repair(truth, oracle, tmp_path):
    loads = Loads(truth, oracle, tmp_path / "truth", is_exact=truth.repair.as_kafka)
    assert each_crash(truth.start, truth.job, loads.check, folder=tmp_path, seed=1, every=EVERY) > 15


def test_kafka_loads_whatever_the_disk_forgets_of_an_undo(kept, oracle, tmp_path):
    loads = Loads(kept, oracle, tmp_path / "truth", is_exact=False)
    assert each_crash(kept.done, kept.undo, loads.check, folder=tmp_path, seed=1, every=EVERY) > 15


@pytest.mark.parametrize(
    ("name", "job"),
    [("cut", "recover_cut"), ("salvage", "recover_salvage"), ("to-leader", "truncate_to_leader"), ("cut", "undo_last")],
)
def test_a_killed_process(truths, oracle, tmp_path, name, job):
    """Its lock dies with it."""
    truth = truths[name]
    is_undo = job == "undo_last"
    start, work = (truth.done, truth.undo) if is_undo else (truth.start, truth.job)
    whole = FaultyDisk()
    run_with(whole, work, shutil.copytree(start, tmp_path / "whole"))
    loads = Loads(truth, oracle, tmp_path / "truth", is_exact=truth.repair.as_kafka and not is_undo)
    chance = random.Random(job)
    for number in range(FACTOR):
        folder = shutil.copytree(start, tmp_path / str(number))
        moment = chance.randrange(3, len(whole.seen))
        end = End(f"killed before operation {moment}, {whole.seen[moment]}")
        assert killed("tests.faults.repairs", job, folder, moment)
        with noted(end):
            loads.check(folder, end)
            check_left(truth, folder, end, None)


def test_a_file_that_a_crash_has_left_is_given_back_too(truths, tmp_path):
    """It has the name that a new file takes while it is written."""
    folder = shutil.copytree(truths["cut"].start, tmp_path / "log")
    left = [partition(folder) / name for name in ("leader-epoch-checkpoint.tmp", f"{10:020d}.index.tmp")]
    for path in left:
        path.write_bytes(b"half")
    before = files(folder)
    truths["cut"].job(folder, lambda _: None)
    assert not any(path.exists() for path in left)
    kseg.undo_repair(partition(folder))
    assert files(folder) == before


def test_a_log_of_which_nothing_is_left_can_be_taken_back(tmp_path):
    """Cut back to before its start it is gone for a moment: only the quarantine says then that there was one."""
    truth = Truth(ANEW, tmp_path / "truth")
    gone = 0

    def check(folder, end):
        nonlocal gone
        gone += not list(partition(folder).glob("*.log"))
        truth.check_marker(folder)
        truth.check_undone(copy_of(folder))
        truth.job(folder, lambda _: None)
        left = files(folder)
        left.pop(f"{5:020d}.snapshot", None)  # a broker that opens an empty log makes one, or deletes it
        assert left == truth.after

    assert each_fault(truth.start, truth.job, check, folder=tmp_path / "faults", every=min(EVERY, 5)) > 40
    assert gone


def test_a_quarantine_that_does_not_fit_leaves_nothing(truths, tmp_path):
    """On a full disk the beginning of a copy would only be in the way."""
    truth = truths["cut"]
    whole = FaultyDisk()
    run_with(whole, truth.job, shutil.copytree(truth.start, tmp_path / "whole"))
    begun = next(number for number, (name, _) in enumerate(whole.seen) if name == "truncate")
    filled = 0
    for number, (name, _) in enumerate(whole.seen[:begun]):
        if name in NEED_SPACE:
            folder = shutil.copytree(truth.start, tmp_path / str(number))
            end = run_with(FaultyDisk(number, "full"), truth.job, folder)
            if files(folder) == truth.before:
                assert not (partition(folder) / SIDE_DIR).exists(), end
                filled += 1
    assert filled > 5
