"""A compacted copy on disks that fail, fill up, lose power and forget: what has the partition's name is all of it."""

from __future__ import annotations

import os
import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import CleanerConfig, compact
from kseg.log.checkpoints import CheckpointKind, write_checkpoint
from kseg.log.logdir import open_dir
from kseg.types import TopicPartition
from tests.faults.disk import FaultyDisk, each_fault, run_with
from tests.faults.forgetful import each_crash
from tests.faults.kill import killed
from tests.log.written import START, clock

TP = TopicPartition("a", 0)
NOW = START + 1000
CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_bytes=400)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A log of two groups and an active segment, with checkpoints."""
    folder = tmp_path_factory.mktemp("start")
    with kseg.create_log(folder / "data" / "a-0", clock=clock) as writer:
        for first in range(0, 30, 10):
            if first:
                writer.roll()
            numbers = range(first, first + 10)
            keys = [b"k%d" % (n % 12) for n in numbers]
            rows = {"key": keys, "value": [b"value %d" % n for n in numbers], "timestamp": [START + n for n in numbers]}
            writer.append(pa.table(rows), batch_records=5)
        end = writer.next_offset
    for kind, offset in ((CheckpointKind.RECOVERY_POINT, end), (CheckpointKind.LOG_START, 3)):
        write_checkpoint(str(folder / "data"), kind, {TP: offset})
    return folder


def make_copy(folder, promise):
    source, output = folder / "data" / "a-0", folder / "copies"
    for done in compact(source, config=CONFIG, now_ms=NOW, output=output, workers=1).partitions:
        if done.error is None:
            promise(done.checkpoint)


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def whole(start, tmp_path_factory):
    """The files of a copy that nothing went wrong with."""
    folder = shutil.copytree(start, tmp_path_factory.mktemp("whole") / "whole")
    make_copy(folder, lambda _: None)
    files = content(folder / "copies")
    assert len([name for name in files if name.endswith(".log")]) == 3
    return files


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


def check_copy(folder, end, start, whole):
    """Whoever looks finds no log, or the whole copy; the next run makes it, and leaves nothing else behind."""
    assert content(folder / "data") == content(start / "data")
    copies = folder / "copies"
    if (copies / "a-0").exists():
        found = content(copies)
        assert {name: found.get(name) for name in whole} == whole
        return
    assert not end.promised
    assert not copies.exists() or list(open_dir(copies)) == []
    if end.error is None and not end.promised and "of what was not fsynced" not in end.fault:
        assert not copies.exists() or list(copies.iterdir()) == []  # the run told of its error, and took all back
    make_copy(folder, lambda _: None)
    assert content(copies) == whole
    assert {path.name for path in copies.iterdir() if path.is_dir()} == {"a-0"}


def test_a_run_that_failed_left_a_part_of_the_copy_under_the_name_of_the_whole(start, whole, tmp_path):
    def check(folder, end):
        check_copy(folder, end, start, whole)

    assert each_fault(start, make_copy, check, folder=tmp_path, every=7) > 150


def test_whatever_the_disk_forgets_of_a_copy_the_name_stands_for_all_of_it(start, whole, tmp_path):
    def check(folder, end):
        check_copy(folder, end, start, whole)

    assert each_crash(start, make_copy, check, folder=tmp_path, every=2) > 60


def test_a_killed_run_left_a_part_of_the_copy_that_opened_as_sound(start, whole, tmp_path):
    disk = FaultyDisk()
    run_with(disk, make_copy, shutil.copytree(start, tmp_path / "counted"))
    folder = shutil.copytree(start, tmp_path / "killed")
    assert killed(__name__, "make_copy", folder, len(disk.seen) * 9 // 10)
    assert [path for path in (folder / "copies").iterdir() if path.name.endswith("-delete")]
    assert not (folder / "copies" / "a-0").exists()
    make_copy(folder, lambda _: None)
    assert content(folder / "copies") == whole
