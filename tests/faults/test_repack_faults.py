"""Repacking on disks that fail, fill up, lose power and forget: every record is there, whoever opens the log.

Each group of segments grows, and becomes more segments than it was: some begin where an old one did, others do not.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import repack
from kseg.log.checkpoints import CheckpointKind, write_checkpoint
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
SEGMENT_BYTES = 1700  # two segments are a group, and become three to five
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


def test_every_operation_can_fail(start, truth, oracle, tmp_path):
    numbers = itertools.count()

    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        if next(numbers) % LOADED_OF == 0:  # and a broker that starts on what the fault left
            truth.check_loaded(folder, oracle, folder / "loaded")
            shutil.rmtree(folder / "loaded", ignore_errors=True)
        is_full = end.fault.startswith("full")
        if is_full or (folder / MARKER).exists():  # with the marker a broker checks nothing
            assert strays(folder / "a-0") == []
        check_second_run(folder, truth)

    assert each_fault(start, grow, check, folder=tmp_path, every=17) > 300


def test_a_full_disk_left_snapshots_of_no_segment_and_the_report_said_that_nothing_had_changed(start, tmp_path):
    whole, before = FaultyDisk(), contents(start)
    run_with(whole, grow, shutil.copytree(start, tmp_path / "whole"))
    faults = [number for number, (name, path) in enumerate(whole.seen) if name == "create" and ".snapshot" in path]
    assert len(faults) > 3
    seen = set()
    for number in faults:
        folder, reports = shutil.copytree(start, tmp_path / str(number)), []
        run_with(FaultyDisk(number, "full"), lambda place, _, kept=reports: kept.append(repacked(place)), folder)
        (done,) = reports
        assert "no space left" in done.error
        new = {path.stem for path in (folder / "a-0").glob("*.snapshot")} - {Path(name).stem for name in before}
        assert new <= {path.stem for path in (folder / "a-0").glob("*.log")}
        is_changed = contents(folder) != before
        assert is_changed == bool(done.segments_before) == ("repacked before, and stay so" in done.error)
        seen.add(is_changed)
    assert seen == {False, True}


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder / "a-0").iterdir() if path.is_file()}


def test_whatever_the_disk_forgets(start, truth, oracle, tmp_path):
    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        truth.check_loaded(folder, oracle, folder / "loaded")
        shutil.rmtree(folder / "loaded", ignore_errors=True)
        check_second_run(folder, truth)

    assert each_crash(start, grow, check, folder=tmp_path, every=7, tries=counts(1)) > 80


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
