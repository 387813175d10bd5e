"""Compaction on disks that fail, fill up, lose power and forget: every key's latest record is there, whoever opens it.

The log has several groups, so that a round stops in the middle of its replacements too. Nothing expires at the round's
clock: what is left of each key is exactly its latest record.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import CleanerConfig, compact
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, write_checkpoint
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.faults.disk import FaultyDisk, each_fault, run_with
from tests.faults.forgetful import each_crash
from tests.faults.kill import killed
from tests.faults.loaded import MARKER, assert_same_state, load
from tests.log.written import START, clock
from tests.reference.rows import records_of
from tests.scale import counts

TP = TopicPartition("a", 0)
SEGMENTS = 5
SEGMENT_BYTES = 2200  # two segments become one
NOW = START + 1000
LOADED_OF = 3 if counts(1) == 1 else 1  # one state of so many is given to Kafka's loader
KAFKAS = {"internal.segment.bytes": SEGMENT_BYTES, "index.interval.bytes": 256, "delete.retention.ms": 10**9}


def config(strategy):
    return CleanerConfig(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.0,
        segment_bytes=SEGMENT_BYTES,
        index_interval_bytes=256,
        delete_retention_ms=10**9,
        strategy=strategy,
    )


def rows(first, count):
    """Few keys, so that most records are superseded; some are tombstones, some have no key."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "key": [None if n % 11 == 0 else b"k%d" % (n * 7 % 9) for n in numbers],
            "value": [None if n % 8 == 5 else b"value %d " % n * 3 for n in numbers],
            "timestamp": [START + n for n in numbers],
        }
    )


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A log directory that was shut down cleanly: sealed segments, producers, committed and aborted transactions."""
    folder = tmp_path_factory.mktemp("start")
    with kseg.create_log(folder / "a-0", config=kseg.LogConfig(index_interval_bytes=256), clock=clock) as writer:
        for number in range(SEGMENTS):
            if number:
                writer.roll()
            first = 20 * number
            writer.append(rows(first, 5), leader_epoch=number, producer_id=6, transactional=True)
            writer.append_marker(6, commit=number % 3 != 1, timestamp_ms=START + first + 5)
            writer.append(rows(first + 6, 5), codec="lz4", producer_id=7 + number % 3)
            writer.append(rows(first + 11, 9), batch_records=3)
        end = writer.next_offset
    for kind in (CheckpointKind.RECOVERY_POINT, CheckpointKind.HIGH_WATERMARK):
        write_checkpoint(str(folder), kind, {TP: end})
    (folder / MARKER).write_bytes(b"clean")
    return folder


def run_round(folder, promise, strategy):
    (done,) = compact(folder / "a-0", config=config(strategy), now_ms=NOW, workers=1).partitions
    if done.error is None:
        promise(done.checkpoint)


def in_memory(folder, promise):
    run_round(folder, promise, "memory")


def by_files(folder, promise):
    run_round(folder, promise, "spill")


JOBS = pytest.mark.parametrize("job", [in_memory, by_files])


class Truth:
    """What a log has to hold before, during and after a round."""

    def __init__(self, folder, oracle, home):
        log = kseg.open_log(folder / "a-0")
        self.end, self.producers = log.end_offset, log.producers()
        self.latest = latest_of(log)
        self.loaded = load(folder, oracle, home / "before", now=NOW, **KAFKAS)[0]
        done = shutil.copytree(folder, home / "done")
        in_memory(done, lambda _: None)
        self.left = committed(kseg.open_log(done / "a-0"))
        self.size = sum(path.stat().st_size for path in (done / "a-0").glob("*.log"))
        assert set(self.latest.values()) <= set(self.left)
        assert len(self.left) < len(committed(log)) / 2

    def check(self, log):
        assert latest_of(log) == self.latest
        assert log.end_offset == self.end
        assert log.producers() == self.producers

    def check_loaded(self, folder, oracle, home):
        """What Kafka's loader makes of a copy, by the marker's word where it is there."""
        state, loaded = load(folder, oracle, home, now=NOW, **KAFKAS)
        assert_same_state(state, self.loaded)
        self.check(kseg.open_log(loaded))


def committed(log):
    return records_of(log.read(isolation="read_committed", read_past_high_watermark=True))


def latest_of(log):
    return {record.key: record for record in committed(log) if record.key is not None}


@pytest.fixture(scope="module")
def truth(start, oracle, tmp_path_factory):
    return Truth(start, oracle, tmp_path_factory.mktemp("truth"))


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


def strays(folder):
    """Files of a partition that no finished or failed run may leave."""
    own = [path for path in folder.rglob("*") if ".kseg" in path.parts and path.is_file()]
    return own + [path for path in folder.rglob("*") if path.suffix in (".cleaned", ".swap", ".deleted", ".tmp")]


def check_second_run(folder, job, truth):
    """The next run finishes what this one began, and leaves nothing behind."""
    job(folder, lambda _: None)
    log = kseg.open_log(folder / "a-0")
    truth.check(log)
    assert committed(log) == truth.left
    assert strays(folder / "a-0") == []
    assert not (folder / "a-0" / ".kseg").exists()
    cleaned = read_checkpoint(LocalStore(), str(folder), CheckpointKind.CLEANER)
    assert cleaned == {TP: log.segments[-1].base_offset}


@JOBS
def test_every_operation_can_fail(start, truth, oracle, tmp_path, job):
    numbers = itertools.count()

    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        if next(numbers) % LOADED_OF == 0:  # and a broker that starts on what the fault left
            truth.check_loaded(folder, oracle, folder / "loaded")
            shutil.rmtree(folder / "loaded", ignore_errors=True)
        is_full = end.fault.startswith("full")
        if is_full or (folder / MARKER).exists():  # with the marker a broker checks nothing
            assert strays(folder / "a-0") == []
        if is_full:
            assert not list(folder.glob("*.tmp"))
        check_second_run(folder, job, truth)

    # the two differ in their first pass alone: all faults of one of them are enough outside of a soak
    assert each_fault(start, job, check, folder=tmp_path, every=1 if job is in_memory else 4) > 200


@JOBS
def test_whatever_the_disk_forgets(start, truth, tmp_path, job):
    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        check_second_run(folder, job, truth)

    assert each_crash(start, job, check, folder=tmp_path, every=2, tries=counts(1)) > 80


def test_kafka_loads_whatever_the_disk_forgets(start, truth, oracle, tmp_path):
    def check(folder, end):
        truth.check_loaded(folder, oracle, folder / "loaded")
        if end.promised:
            truth.check(kseg.open_log(folder / "a-0"))

    assert each_crash(start, in_memory, check, folder=tmp_path, seed=1) > 80


@pytest.mark.parametrize("job", ["in_memory", "by_files"])
def test_kills(start, truth, oracle, tmp_path, job):
    chance = random.Random(job)
    whole = FaultyDisk()
    run_with(whole, globals()[job], shutil.copytree(start, tmp_path / "whole"))
    for number in range(counts(5) if counts(1) == 1 else 100):
        folder = shutil.copytree(start, tmp_path / str(number))
        moment = chance.randrange(len(whole.seen))
        assert killed(__name__, job, folder, moment)
        truth.check(kseg.open_log(folder / "a-0"))
        truth.check_loaded(folder, oracle, tmp_path / "loaded" / str(number))
        check_second_run(folder, globals()[job], truth)
