"""Retention on disks that fail, fill up, lose power and forget: what is kept is there, once; a second run finishes."""

from __future__ import annotations

import os
import shutil

import pytest

import kseg
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, write_checkpoint
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.faults.disk import End, each_fault
from tests.faults.forgetful import each_crash
from tests.faults.kill import killed
from tests.log.written import START, clock, names, numbered
from tests.reference.rows import records_of
from tests.scale import FACTOR, counts

TP = TopicPartition("a", 0)
OTHER = TopicPartition("b", 1)
MARKER = ".kafka_cleanshutdown"
END = 40


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A log directory that was shut down cleanly: four segments of ten records, an aborted transaction, checkpoints."""
    folder = tmp_path_factory.mktemp("start")
    with kseg.create_log(folder / "a-0", clock=clock) as writer:
        for number in range(4):
            if number:
                writer.roll()
            writer.append(numbered(4, start=10 * number), leader_epoch=number, producer_id=6, transactional=True)
            writer.append_marker(6, commit=False, timestamp_ms=START + 10 * number + 4)
            writer.append(numbered(5, start=10 * number + 5))
    for kind in (CheckpointKind.RECOVERY_POINT, CheckpointKind.HIGH_WATERMARK):
        write_checkpoint(str(folder), kind, {TP: END})
    write_checkpoint(str(folder), CheckpointKind.LOG_START, {OTHER: 8, TP: 2})
    (folder / MARKER).write_bytes(b"clean")
    return folder


def retain_some(folder, promise):
    settings = {"cleanup.policy": "delete", "retention.ms": 10}
    report = kseg.retain(folder, topics=["a"], settings=settings, now_ms=START + 30)
    assert report.segments in (0, 1, 2)
    promise(20)


def retain_none(folder, promise):
    kseg.retain(folder / "a-0", settings={"cleanup.policy": "delete", "retention.ms": 0}, now_ms=START + 1000)
    promise(END)


JOBS = pytest.mark.parametrize(("job", "target"), [(retain_some, 20), (retain_none, END)])


def read_all(log):
    return records_of(log.read(read_past_high_watermark=True))


@pytest.fixture(scope="module")
def whole(start):
    return read_all(kseg.open_log(start / "a-0"))


@pytest.fixture(scope="module")
def final_names(start, tmp_path_factory):
    """The files before, and after each job that nothing disturbs."""
    found = {}
    for job, target in ((retain_some, 20), (retain_none, END)):
        folder = tmp_path_factory.mktemp("done") / "log"
        shutil.copytree(start, folder)
        job(folder, lambda _: None)
        found[target] = (names(start / "a-0"), names(folder / "a-0"))
    return found


def check_kept(folder, end, whole, target):
    """The log starts where it did, or where it shall; from there on everything is there."""
    log = kseg.open_log(folder / "a-0")
    assert log.start_offset == target if end.promised else log.start_offset in (2, target)
    assert read_all(log) == [row for row in whole if row.offset >= log.start_offset]
    assert log.end_offset == END
    starts = read_checkpoint(LocalStore(), str(folder), CheckpointKind.LOG_START)
    assert starts[OTHER] == 8
    if end.promised:
        assert starts == {OTHER: 8}


def check_all(folder, end, whole, target, final_names, job):
    check_kept(folder, end, whole, target)
    if (folder / MARKER).exists():  # a broker checks nothing then: nothing was done yet, or everything
        assert names(folder / "a-0") in final_names
    job(folder, lambda _: None)
    assert kseg.open_log(folder / "a-0").start_offset == target
    assert [row.offset for row in read_all(kseg.open_log(folder / "a-0"))] == [
        row.offset for row in whole if row.offset >= target
    ]
    left = [name for name in names(folder / "a-0") if not name.endswith(".tmp")]
    assert set(left) <= set(final_names[1])  # indexes of an empty segment may be missing: they are empty too
    assert names(folder / "a-0", "*.log") == [name for name in final_names[1] if name.endswith(".log")]


@JOBS
def test_every_operation_can_fail(start, whole, tmp_path, final_names, job, target):
    check = lambda *left: check_all(*left, whole, target, final_names[target], job)  # noqa: E731
    assert each_fault(start, job, check, folder=tmp_path, every=3) > 60


@JOBS
def test_whatever_the_disk_forgets(start, whole, tmp_path, final_names, job, target):
    check = lambda *left: check_all(*left, whole, target, final_names[target], job)  # noqa: E731
    assert each_crash(start, job, check, folder=tmp_path, tries=counts(2)) > 30


@JOBS
def test_kafka_loads_whatever_the_disk_forgets(oracle, start, whole, tmp_path, job, target):
    def check(folder, end):
        log_start = read_checkpoint(LocalStore(), str(folder), CheckpointKind.LOG_START).get(TP, 0)
        clean = (folder / MARKER).exists()
        state = oracle.load(folder / "a-0", clean=clean, recoveryPoint=END, logStart=log_start)
        assert state["logEnd"] == END
        assert state["logStart"] in (2, target)
        check_kept(folder, end, whole, target)

    assert each_crash(start, job, check, folder=tmp_path, seed=1) > 30


@pytest.mark.parametrize("number", range(9, 60, max(1, 25 // FACTOR)))
def test_a_killed_process(start, whole, tmp_path, final_names, number):
    """Its lock dies with it."""
    shutil.copytree(start, tmp_path / "log")
    assert killed("tests.faults.test_retain_faults", "retain_none", tmp_path / "log", number)
    check_all(tmp_path / "log", End("kill"), whole, END, final_names[END], retain_none)
