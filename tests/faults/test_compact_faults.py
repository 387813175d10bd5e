"""Compaction on disks that fail, fill up, lose power and forget: every key's latest record is there, whoever opens it.

The log has several groups, so that a round stops in the middle of its replacements too. Nothing expires at the round's
clock: what is left of each key is exactly its latest record.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import shutil

import pyarrow as pa
import pytest

import kseg
from kseg import durable
from kseg.compaction import CleanerConfig, compact, placing
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, write_checkpoint
from kseg.log.names import LOCK_FILE
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.faults.disk import FaultyDisk, SmallDisk, each_fault, in_front_of_durable, run_with
from tests.faults.forgetful import each_crash
from tests.faults.kill import killed
from tests.faults.loaded import MARKER, assert_same_state, load
from tests.faults.quota import LIMITS, refused_writes
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


def one_after_the_other(folder, promise):
    """Where the disk has room for the largest group alone, each is replaced before the next is written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "free_bytes", lambda _: 3 * placing.BLOCK_BYTES // 2)
        in_memory(folder, promise)


JOBS = pytest.mark.parametrize("job", [in_memory, by_files, one_after_the_other])
EVERY = {in_memory: 1, by_files: 4, one_after_the_other: 3}  # of faults: the jobs differ in one part each


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
        if is_full and job is not one_after_the_other and not is_about_checkpoint(end):
            assert content(folder / "a-0") == content(start / "a-0")
        check_second_run(folder, job, truth)

    assert each_fault(start, job, check, folder=tmp_path, every=EVERY[job]) > 200


@JOBS
def test_whatever_the_disk_forgets(start, truth, tmp_path, job):
    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        check_second_run(folder, job, truth)

    every = 5 if job is by_files else 2
    assert each_crash(start, job, check, folder=tmp_path, every=every, tries=counts(1)) > 160 // every


@pytest.mark.parametrize(("job", "every"), [(in_memory, 1), (one_after_the_other, 3)])
def test_kafka_loads_whatever_the_disk_forgets(start, truth, oracle, tmp_path, job, every):
    def check(folder, end):
        truth.check_loaded(folder, oracle, folder / "loaded")
        if end.promised:
            truth.check(kseg.open_log(folder / "a-0"))

    assert each_crash(start, job, check, folder=tmp_path, every=every, seed=1) > 80 // every


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_about_checkpoint(end):
    return CheckpointKind.CLEANER.value in end.fault or MARKER in end.fault


def test_both_ways_of_replacing_groups_leave_the_same_files(start, tmp_path):
    left = []
    for job in (in_memory, one_after_the_other):
        folder = shutil.copytree(start, tmp_path / job.__name__)
        job(folder, lambda _: None)
        left.append(content(folder))
    assert left[0] == left[1]
    assert left[0] != content(start)


@pytest.fixture
def growing(tmp_path):
    """A log directory whose groups need more and more room, of which they give little back."""
    folder = tmp_path / "growing"
    folder.mkdir()
    with kseg.create_log(folder / "a-0", config=kseg.LogConfig(index_interval_bytes=256), clock=clock) as writer:
        for number, records in enumerate((4, 12, 22, 32, 1)):
            if number:
                writer.roll()
            keys = [b"same", *(b"%d of segment %d" % (n, number) for n in range(records))]
            writer.append(pa.table({"key": keys, "value": [b"value" * 6] * len(keys)}), batch_records=4)
    (folder / MARKER).write_bytes(b"clean")
    (folder / LOCK_FILE).touch()
    return folder


@pytest.fixture
def ways(monkeypatch):
    """Which ways of replacing groups were taken: whether each was replaced at once."""
    taken = []

    class NotedPlacing(placing.Placing):
        def __init__(self, *args, at_once, **kwargs):
            taken.append(at_once)
            super().__init__(*args, at_once=at_once, **kwargs)

    monkeypatch.setattr(placing, "Placing", NotedPlacing)
    monkeypatch.setattr(placing, "BLOCK_BYTES", 256)  # a disk without blocks, and some room for checkpoints
    return taken


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("strategy", ["memory", "spill"])
def test_a_full_disk_left_some_groups_replaced_and_no_clean_shutdown(growing, tmp_path, ways, strategy, is_told):
    """However much room there is, told by the disk or not: all of a round is done, or nothing of it is seen."""
    whole = shutil.copytree(growing, tmp_path / "whole")
    run_round(whole, lambda _: None, strategy)
    seen = set()
    for room in range(0, 12000, 12000 // counts(30)):
        folder = shutil.copytree(growing, tmp_path / str(room))
        ways.clear()
        disk = SmallDisk(folder, room)
        with disk.mounted() if is_told else in_front_of_durable(disk.perform):
            (done,) = compact(folder / "a-0", config=config(strategy), now_ms=NOW, workers=1).partitions
        found = content(folder)
        if done.error is None:
            assert found == content(whole), room
        else:
            assert "no space left" in done.error
            assert "compacted before" not in done.error
            assert found == content(growing), room
        seen.update((done.error is None, way) for way in ways)
        shutil.rmtree(folder)
    assert seen == {(False, False), (True, False)} | ({(True, True)} if is_told else set())


@LIMITS
@pytest.mark.parametrize("kind", [".log", ".timeindex"])
def test_a_limit_that_the_disk_did_not_tell_of_left_some_groups_replaced(growing, limit, kind):
    """Each group was replaced as soon as it was written, and a quota stopped the last one."""
    before = content(growing)
    last = kseg.open_log(growing / "a-0").segments[-2].base_offset
    with refused_writes(limit, f"{last:020d}{kind}.cleaned"):
        (done,) = compact(growing / "a-0", config=small_groups(), now_ms=NOW, workers=1).partitions
    assert done.error is not None
    assert (done.segments_before, done.bytes_before) == (0, 0)
    assert content(growing) == before
    (done,) = compact(growing / "a-0", config=small_groups(), now_ms=NOW, workers=1).partitions
    assert (done.error, done.segments_after) == (None, 4)


def small_groups():
    """Each segment is a group."""
    return dataclasses.replace(config("memory"), segment_bytes=100)


def test_what_was_replaced_before_others_filled_the_disk_was_not_told(start, truth, tmp_path):
    folder = shutil.copytree(start, tmp_path / "data")
    full = FaultyDisk()
    run_with(full, one_after_the_other, shutil.copytree(start, tmp_path / "whole"))
    groups = [number for number, (name, path) in enumerate(full.seen) if name == "create" and ".log.cleaned" in path]
    free = 3 * placing.BLOCK_BYTES // 2  # for one group
    with pytest.MonkeyPatch.context() as patch, in_front_of_durable(FaultyDisk(groups[1], "full").perform):
        patch.setattr(durable, "free_bytes", lambda _: free)
        report = compact(folder / "a-0", config=config("memory"), now_ms=NOW, workers=1)
    (done,) = report.partitions
    assert f"; 1 of {len(groups)} groups were compacted before, and stay so" in done.error
    old, new = kseg.open_log(start / "a-0").segments, kseg.open_log(folder / "a-0").segments
    freed = sum(segment.size for segment in old) - sum(segment.size for segment in new)
    assert done.bytes_before - done.bytes_after == freed > 0
    assert done.segments_before - done.segments_after == len(old) - len(new)
    assert done.checkpoint == done.first_dirty
    assert not str(report).startswith("0 partitions compacted, 0 B freed")
    assert strays(folder / "a-0") == []
    truth.check(kseg.open_log(folder / "a-0"))
    check_second_run(folder, in_memory, truth)


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
