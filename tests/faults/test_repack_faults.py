"""Repacking on disks that fail, fill up, lose power and forget: every record is there, whoever opens the log.

Each group of segments grows, and becomes more segments than it was: some begin where an old one did, others do not.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import kseg
from kseg import durable
from kseg.compaction import placing, repack
from kseg.log.checkpoints import CheckpointKind, write_checkpoint
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
SEGMENT_BYTES = 1700  # two segments are a group, and become three to five
FREE = 110_000  # for one group after the other, and not for all of them
LOADED_OF = 3 if counts(1) == 1 else 1  # one state of so many is given to Kafka's loader


def rows(first, count):
    numbers = range(first, first + count)
    values = [b"value %d " % (n % 3) * 20 for n in numbers]
    return pa.table({"key": [b"k%d" % n for n in numbers], "value": values, "timestamp": [START + n for n in numbers]})


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A log directory that was shut down cleanly: sealed segments, producers, committed and aborted transactions."""
    folder = tmp_path_factory.mktemp("start")
    with kseg.create_log(folder / "a-0", config=kseg.LogConfig(index_interval_bytes=256), clock=clock) as writer:
        for number in range(SEGMENTS):
            if number:
                writer.roll()
            first = 20 * number
            writer.append(rows(first, 5), leader_epoch=number, codec="zstd", producer_id=6, transactional=True)
            writer.append_marker(6, commit=number % 2 != 0, timestamp_ms=START + first + 5)
            writer.append(rows(first + 6, 5), codec="zstd", producer_id=7 + number % 3)
            writer.append(rows(first + 11, 9), codec="gzip", batch_records=3)
        end = writer.next_offset
    for kind in (CheckpointKind.RECOVERY_POINT, CheckpointKind.HIGH_WATERMARK):
        write_checkpoint(str(folder), kind, {TP: end})
    (folder / MARKER).write_bytes(b"clean")
    return folder


def repacked(folder):
    (done,) = repack(
        folder / "a-0", codec="none", segment_bytes=SEGMENT_BYTES, index_interval_bytes=256, workers=1
    ).partitions
    return done


def grow(folder, promise):
    done = repacked(folder)
    if done.error is None:
        promise(done.segments_after)


def grow_one_by_one(folder, promise):
    """Where the disk has room for one group after the other, and not for all, each is replaced at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "free_bytes", lambda _: FREE)
        grow(folder, promise)


class Truth:
    """What a log holds before, during and after."""

    def __init__(self, folder, oracle, home):
        log = kseg.open_log(folder / "a-0")
        self.end, self.producers = log.end_offset, log.producers()
        self.records, self.committed = records_of(log.read()), records_of(log.read(isolation="read_committed"))
        assert len(self.committed) < len(self.records)
        self.loaded = load(folder, oracle, home / "before", now=START + 1000)[0]
        done = shutil.copytree(folder, home / "done")
        grow(done, lambda _: None)
        self.bases = bases_of(done)
        assert len(self.bases) > SEGMENTS
        assert set(self.bases) > set(bases_of(folder)[::2])

    def check(self, log):
        options = {"read_past_high_watermark": True}
        assert records_of(log.read(**options)) == self.records
        assert records_of(log.read(isolation="read_committed", **options)) == self.committed
        assert log.end_offset == self.end
        assert log.producers() == self.producers

    def check_loaded(self, folder, oracle, home):
        """What Kafka's loader makes of a copy, by the marker's word where it is there."""
        state, loaded = load(folder, oracle, home, now=START + 1000)
        assert_same_state(state, self.loaded)
        self.check(kseg.open_log(loaded))


def bases_of(folder):
    return [segment.base_offset for segment in kseg.open_log(folder / "a-0").segments]


@pytest.fixture(scope="module")
def truth(start, oracle, tmp_path_factory):
    return Truth(start, oracle, tmp_path_factory.mktemp("truth"))


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


def strays(folder):
    """Files of a partition that no finished or failed run may leave."""
    return [path for path in folder.rglob("*") if path.suffix in (".cleaned", ".swap", ".deleted", ".tmp")]


def check_second_run(folder, truth):
    """The next run finishes what this one began, and leaves nothing behind."""
    grow(folder, lambda _: None)
    truth.check(kseg.open_log(folder / "a-0"))
    assert bases_of(folder) == truth.bases
    assert strays(folder / "a-0") == []
    assert not (folder / "a-0" / ".kseg").exists()


@pytest.mark.parametrize(("job", "every"), [(grow, 13), (grow_one_by_one, 29)])
def test_every_operation_can_fail(start, truth, oracle, tmp_path, job, every):
    numbers = itertools.count()

    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        if next(numbers) % LOADED_OF == 0:  # and a broker that starts on what the fault left
            truth.check_loaded(folder, oracle, folder / "loaded")
            shutil.rmtree(folder / "loaded", ignore_errors=True)
        is_full = end.fault.startswith("full")
        if is_full or (folder / MARKER).exists():  # with the marker a broker checks nothing
            assert strays(folder / "a-0") == []
        if is_full and job is grow and MARKER not in end.fault:
            assert contents(folder) == contents(start)
        check_second_run(folder, truth)

    assert each_fault(start, job, check, folder=tmp_path, every=every) > 300


@pytest.mark.parametrize("job", [grow, grow_one_by_one])
def test_a_full_disk_left_snapshots_of_no_segment_and_the_report_said_that_nothing_had_changed(start, tmp_path, job):
    whole, before = FaultyDisk(), contents(start)
    run_with(whole, job, shutil.copytree(start, tmp_path / "whole"))
    faults = [number for number, (name, path) in enumerate(whole.seen) if name == "create" and ".snapshot" in path]
    assert len(faults) > 3
    seen = set()
    for number in faults:
        folder, reports = shutil.copytree(start, tmp_path / str(number)), []
        with pytest.MonkeyPatch.context() as patch:
            if job is grow_one_by_one:
                patch.setattr(durable, "free_bytes", lambda _: FREE)
            run_with(FaultyDisk(number, "full"), lambda place, _, kept=reports: kept.append(repacked(place)), folder)
        (done,) = reports
        assert "no space left" in done.error
        new = {path.stem for path in (folder / "a-0").glob("*.snapshot")} - {Path(name).stem for name in before}
        assert new <= {path.stem for path in (folder / "a-0").glob("*.log")}
        is_changed = contents(folder) != before
        assert is_changed == bool(done.segments_before) == ("repacked before, and stay so" in done.error)
        seen.add(is_changed)
    assert seen == ({False, True} if job is grow_one_by_one else {False})


@LIMITS
@pytest.mark.parametrize("kind", [".log.cleaned", ".timeindex.cleaned", ".snapshot.tmp"])
def test_a_limit_that_the_disk_did_not_tell_of_left_some_groups_repacked(start, tmp_path, limit, kind):
    """Each group was replaced as soon as it was written, and a quota stopped the last one."""
    whole, folder = FaultyDisk(), shutil.copytree(start, tmp_path / "data")
    run_with(whole, grow, shutil.copytree(start, tmp_path / "whole"))
    names = [path for name, path in whole.seen if name == "create" and path.endswith(kind)]
    with refused_writes(limit, names[-1]):
        done = repacked(folder)
    assert done.error is not None
    assert (done.segments_before, done.bytes_before) == (0, 0)
    assert contents(folder) == contents(start)
    assert (folder / MARKER).read_bytes() == (start / MARKER).read_bytes()
    assert repacked(folder).error is None


@pytest.mark.parametrize("is_told", [True, False])
def test_a_full_disk_left_some_groups_repacked(start, tmp_path, monkeypatch, is_told):
    """However much room there is, told by the disk or not: all of a partition is repacked, or nothing of it."""
    monkeypatch.setattr(placing, "BLOCK_BYTES", 256)  # a disk without blocks
    whole = shutil.copytree(start, tmp_path / "whole")
    repacked(whole)
    seen = set()
    for room in range(0, 26_000, 26_000 // counts(26)):
        folder = shutil.copytree(start, tmp_path / str(room))
        disk, full = SmallDisk(folder, room), FaultyDisk()

        def perform(name, function, *args, disk=disk, full=full, **kwargs):
            return full.perform(name, functools.partial(disk.perform, name, function), *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch, in_front_of_durable(perform):
            if is_told:
                patch.setattr(durable, "free_bytes", disk.free_bytes)
            done = repacked(folder)
        assert contents(folder) == (contents(whole) if done.error is None else contents(start)), room
        assert (folder / MARKER).exists()
        seen.add((done.error is None, is_one_by_one(full.seen)))
        shutil.rmtree(folder)
    assert seen == {(False, False), (True, False)} | ({(True, True)} if is_told else set())


def is_one_by_one(operations):
    """Whether a group was replaced before the last one was written."""
    names = [path for _, path in operations]
    replaced = [number for number, path in enumerate(names) if path.endswith(".log.swap")]
    written = [number for number, (name, path) in enumerate(operations) if name == "create" and ".log.cleaned" in path]
    return bool(replaced) and replaced[0] < written[-1]


def test_a_failed_replacement_leaves_no_snapshots_of_groups_that_waited(start, truth, tmp_path):
    whole, before = FaultyDisk(), contents(start)
    run_with(whole, grow, shutil.copytree(start, tmp_path / "whole"))
    number = next(number for number, (_, names) in enumerate(whole.seen) if names.endswith(".log.deleted"))
    folder = shutil.copytree(start, tmp_path / "data")
    run_with(FaultyDisk(number, "error"), grow, folder)
    second = bases_of(start)[2]
    new = contents(folder).keys() - before.keys()
    assert new
    assert not [name for name in new if int(Path(name).name.partition(".")[0]) >= second]
    check_second_run(folder, truth)


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder / "a-0").iterdir() if path.is_file()}


@pytest.mark.parametrize(("job", "every"), [(grow, 7), (grow_one_by_one, 17)])
def test_whatever_the_disk_forgets(start, truth, oracle, tmp_path, job, every):
    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        truth.check_loaded(folder, oracle, folder / "loaded")
        shutil.rmtree(folder / "loaded", ignore_errors=True)
        check_second_run(folder, truth)

    assert each_crash(start, job, check, folder=tmp_path, every=every, tries=counts(1)) > 560 // every


def test_whatever_the_disk_forgets_while_a_replacement_is_finished(start, truth, oracle, tmp_path):
    """The final names of several new segments became durable in any order: a start-up took one for what it replaces."""
    whole = FaultyDisk()
    run_with(whole, grow, shutil.copytree(start, tmp_path / "whole"))
    deleting = next(number for number, (_, names) in enumerate(whole.seen) if names.endswith(".log.deleted"))
    left = shutil.copytree(start, tmp_path / "left")
    run_with(FaultyDisk(deleting, "cut"), grow, left)
    assert len([*(left / "a-0").glob("*.log.swap")]) > 2

    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        check_second_run(folder, truth)

    assert each_crash(left, grow, check, folder=tmp_path, every=7, tries=counts(2)) > 80


def test_kills(start, truth, oracle, tmp_path):
    chance = random.Random("repack")
    whole = FaultyDisk()
    run_with(whole, grow, shutil.copytree(start, tmp_path / "whole"))
    for number in range(3 if counts(1) == 1 else 100):
        folder = shutil.copytree(start, tmp_path / str(number))
        assert killed(__name__, "grow", folder, chance.randrange(len(whole.seen)))
        truth.check(kseg.open_log(folder / "a-0"))
        truth.check_loaded(folder, oracle, tmp_path / "loaded" / str(number))
        check_second_run(folder, truth)
