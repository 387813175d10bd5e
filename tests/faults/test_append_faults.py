"""Appending and rolling on disks that fail, fill up, lose power and forget: every promised record is there, once."""

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
from tests.log.written import START, clock, numbered
from tests.reference.rows import records_of
from tests.scale import FACTOR, counts

TP = TopicPartition("a", 0)
CONFIG = kseg.LogConfig(segment_bytes=1500, index_interval_bytes=300)
KAFKAS = {"internal.segment.bytes": CONFIG.segment_bytes, "index.interval.bytes": CONFIG.index_interval_bytes}
MARKER = ".kafka_cleanshutdown"
BEFORE = 12


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A log directory that was shut down cleanly: eight records, an open transaction, all checkpoint files."""
    folder = tmp_path_factory.mktemp("start")
    with kseg.create_log(folder / "a-0", config=CONFIG, clock=clock) as writer:
        writer.append(numbered(8), batch_records=4)
        writer.append(numbered(4), producer_id=6, transactional=True)
    for kind in (CheckpointKind.RECOVERY_POINT, CheckpointKind.HIGH_WATERMARK):
        write_checkpoint(str(folder), kind, {TP: BEFORE})
    (folder / MARKER).write_bytes(b"clean")
    return folder


def append_and_roll(folder, promise):
    with kseg.append_to(folder / "a-0", config=CONFIG, clock=clock) as writer:
        writer.append_marker(6, commit=False)
        for _ in range(3):
            writer.append(numbered(10), batch_records=5, leader_epoch=3)
        writer.flush()
        promise(writer.next_offset)
        writer.append(numbered(6), batch_records=3, codec="lz4", producer_id=7)
        writer.roll()
        promise(writer.next_offset)
        writer.append(numbered(4), batch_records=2)
        end = writer.next_offset
    promise(end)


def create(folder, promise):
    with kseg.create_log(folder / "b-0", config=CONFIG, clock=clock) as writer:
        writer.append(numbered(20), batch_records=4)
        writer.flush()
        promise(writer.next_offset)
        writer.append(numbered(5, start=20))
        end = writer.next_offset
    promise(end)


def append_little(folder, promise):
    with kseg.append_to(folder / "a-0", config=CONFIG, clock=clock) as writer:
        writer.append(numbered(3))
        end = writer.next_offset
    promise(end)


def finished(start, job, folder):
    """The records that are there if nothing fails."""
    shutil.copytree(start, folder)
    job(folder, lambda _: None)
    return read_all(kseg.open_log(folder / "a-0"))


@pytest.fixture(scope="module")
def whole(start, tmp_path_factory):
    return finished(start, append_and_roll, tmp_path_factory.mktemp("whole") / "done")


def read_all(log):
    return records_of(log.read(read_past_high_watermark=True))


def check_log(folder, end, whole):
    """What kseg finds: a beginning of the whole, at least what was promised; and it can be written on."""
    least = max(end.promised, default=BEFORE)
    log = kseg.open_log(folder / "a-0")
    assert log.end_offset >= least
    assert read_all(log) == [row for row in whole if row.offset < log.end_offset]
    if (folder / MARKER).exists():  # a broker checks nothing then
        assert all(segment.sound_size == segment.size and not segment.needs_rebuild for segment in log.segments)
        assert log.end_offset in (BEFORE, whole[-1].offset + 1)
    with kseg.append_to(folder / "a-0", config=CONFIG, clock=clock) as writer:
        assert writer.next_offset == log.end_offset
        writer.append(numbered(2))
    again = kseg.open_log(folder / "a-0")
    assert read_all(again)[:-2] == [row for row in whole if row.offset < log.end_offset]
    assert again.end_offset == log.end_offset + 2


def test_every_operation_can_fail(start, whole, tmp_path):
    assert each_fault(start, append_and_roll, lambda *left: check_log(*left, whole), folder=tmp_path) > 150


def check_created(folder, end):
    """The new log is a beginning of the whole, or not there yet; whatever there is can be written on."""
    path, least = folder / "b-0", max(end.promised, default=0)
    if not path.exists():
        assert not least
        return
    if (folder / MARKER).exists() and any(path.iterdir()):
        assert kseg.open_log(path).end_offset == 25
        assert not any(segment.needs_rebuild for segment in kseg.open_log(path).segments)
    with kseg.append_to(path, config=CONFIG, clock=clock) as writer:
        next_offset = writer.next_offset
        writer.append(numbered(1))
    assert next_offset >= least
    rows = read_all(kseg.open_log(path))
    assert [row.offset for row in rows] == list(range(next_offset + 1))
    assert [row.timestamp - START for row in rows[:-1]] == list(range(next_offset))


def test_every_operation_of_a_new_log_can_fail(start, tmp_path):
    assert each_fault(start, create, check_created, folder=tmp_path) > 80
    assert each_crash(start, create, check_created, folder=tmp_path, states=("all", "synced", "ordered")) > 30


def test_a_torn_tail_is_cut_off_whatever_fails(start, tmp_path):
    torn = tmp_path / "torn"
    shutil.copytree(start, torn)
    (torn / MARKER).unlink()
    (log,) = (torn / "a-0").glob("*.log")
    log.write_bytes(log.read_bytes() + log.read_bytes()[:80])  # the beginning of a batch, and one that was there before
    little = finished(torn, append_little, tmp_path / "finished")
    check = lambda *left: check_log(*left, little)  # noqa: E731
    assert each_fault(torn, append_little, check, folder=tmp_path) > 50
    assert each_crash(torn, append_little, check, folder=tmp_path, states=("all", "synced", "ordered")) > 10


def test_whatever_the_disk_forgets(start, whole, tmp_path):
    options = {"states": ("all", "synced", "ordered"), "tries": counts(2)}
    assert each_crash(start, append_and_roll, lambda *left: check_log(*left, whole), folder=tmp_path, **options) > 60


def test_kafka_loads_whatever_the_disk_forgets(oracle, start, whole, tmp_path):
    """Holes too: kseg refuses to write on behind them, the loader of a broker cuts there."""

    def check(folder, end):
        clean = (folder / MARKER).exists()
        before = kseg.open_log(folder / "a-0").end_offset if clean else None
        flushed = (read_checkpoint(LocalStore(), str(folder), CheckpointKind.RECOVERY_POINT) or {}).get(TP, 0)
        state = oracle.load(folder / "a-0", clean=clean, recoveryPoint=flushed, **KAFKAS)
        assert state["logEnd"] >= max(end.promised, default=BEFORE)
        assert before in (None, state["logEnd"])
        log = kseg.open_log(folder / "a-0")
        assert log.end_offset == state["logEnd"]
        assert read_all(log) == [row for row in whole if row.offset < log.end_offset]

    options = {"states": ("synced", "ordered", "any"), "tries": counts(1), "seed": 1}
    assert each_crash(start, append_and_roll, check, folder=tmp_path, **options) > 60


@pytest.mark.parametrize("number", range(9, 40, max(1, 15 // FACTOR)))
def test_a_killed_process(start, whole, tmp_path, number):
    """Its lock dies with it."""
    shutil.copytree(start, tmp_path / "log")
    assert killed("tests.faults.test_append_faults", "append_and_roll", tmp_path / "log", number)
    check_log(tmp_path / "log", End("kill"), whole)
