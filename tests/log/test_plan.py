"""Splits: together they give what a read gives, however they are cut, and never another file's records."""

from __future__ import annotations

import os
import pickle
import shutil

import pytest

import kseg
from kseg.log.names import FileKind, segment_file_name
from kseg.log.plan import group_splits, plan_splits, read_split, read_splits
from kseg.schema import RECORD_SCHEMA, select_columns
from tests.builders import LogBuilder
from tests.log.rows import plain_rows

PARTITIONS = ["multi-segment-0", "compact-tx-0", "tx-0", "retained-0", "mixed-codecs-0"]


def split_rows(splits):
    return [row for split in splits for row in plain_rows(read_split(split, RECORD_SCHEMA))]


@pytest.mark.parametrize("target_bytes", [1, 20_000, 300_000, 1 << 30])
@pytest.mark.parametrize("name", PARTITIONS)
def test_splits_of_any_size_give_what_a_read_gives(golden, name, target_bytes):
    log = kseg.open_log(golden / "before" / name)
    for committed, isolation in ((False, "read_uncommitted"), (True, "read_committed")):
        end = log.last_stable_offset if committed else log.high_watermark
        splits = plan_splits(log, log.start_offset, end, committed=committed, target_bytes=target_bytes)
        assert split_rows(pickle.loads(pickle.dumps(splits))) == plain_rows(log.read(isolation=isolation))
        if target_bytes == 1:
            assert len(splits) > len(log.segments)
        if target_bytes == 1 << 30:
            assert len(splits) == len([segment for segment in log.segments if segment.size])


@pytest.mark.parametrize(("start", "end"), [(0, 1), (17, 4000), (3999, 4001), (8999, 9000), (5000, 5000)])
def test_splits_of_a_range_read_no_more_than_the_range_takes(golden, start, end):
    log = kseg.open_log(golden / "before" / "multi-segment-0")
    splits = plan_splits(log, start, end, target_bytes=50_000)
    assert split_rows(splits) == plain_rows(log.read(start, end))
    if end - start <= 2:
        assert sum(split.size for split in splits) < 200_000


def test_groups_keep_the_order_and_leave_nothing_out(golden):
    log = kseg.open_log(golden / "before" / "multi-segment-0")
    splits = plan_splits(log, 0, log.end_offset, target_bytes=40_000)
    groups = group_splits(splits, target_bytes=200_000)
    assert [split for group in groups for split in group] == splits
    assert 1 < len(groups) < len(splits)
    assert all(sum(split.size for split in group) <= 200_000 for group in groups)
    assert len(group_splits(splits, target_bytes=1 << 30, min_groups=7)) >= 7
    assert group_splits([]) == []
    offsets = [
        n
        for group in groups
        for batch in read_splits(group, select_columns(["offset"]))
        for n in batch["offset"].to_pylist()
    ]
    assert offsets == list(range(9000))


@pytest.fixture
def planned(tmp_path):
    builder = LogBuilder(tmp_path).segment(0).batch(5).batch(5).segment(10).batch(5)
    path = builder.write()
    log = kseg.open_log(path)
    return path, plan_splits(log, 0, log.end_offset)


def test_a_segment_that_vanished_says_to_plan_again(planned):
    path, splits = planned
    (path / segment_file_name(0, FileKind.LOG)).unlink()
    with pytest.raises(kseg.LogError, match="vanished since the read was planned; plan the read again"):
        list(read_split(splits[0], RECORD_SCHEMA))
    assert len(split_rows(splits[1:])) == 5


@pytest.mark.parametrize("how", ["another file", "the same inode, other bytes", "a shorter file"])
def test_a_segment_that_was_replaced_is_never_read_by_old_positions(planned, how):
    path, splits = planned
    file = path / segment_file_name(0, FileKind.LOG)
    if how == "another file":
        shutil.copy(file, path / "copy")
        (path / "copy").rename(file)
    elif how == "a shorter file":
        os.truncate(file, file.stat().st_size - 1)
    else:
        other = LogBuilder(path.parent, "other").segment(0).record(b"k", b"v").batch(9).batch(9).write()
        assert (other / file.name).stat().st_size > file.stat().st_size  # or its size would tell already
        file.write_bytes((other / file.name).read_bytes())
    with pytest.raises(kseg.LogError, match="was replaced since the read was planned"):
        list(read_split(splits[0], RECORD_SCHEMA))


def test_a_log_that_grows_after_planning_gives_what_was_planned(planned):
    path, splits = planned
    grown = LogBuilder(path.parent, "grown").segment(15).batch(4).write()
    with (path / segment_file_name(10, FileKind.LOG)).open("ab") as file:
        file.write((grown / segment_file_name(15, FileKind.LOG)).read_bytes())
    assert [row[0] for row in split_rows(splits)] == list(range(15))
