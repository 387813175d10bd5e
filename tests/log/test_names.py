"""Names of segment files, partition directories and snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.log.names import (
    DirKind,
    FileKind,
    FileState,
    PartitionDir,
    SegmentFile,
    SnapshotFile,
    parse_partition_dir,
    parse_segment_file,
    parse_snapshot_file,
    partition_dir_name,
    segment_file_name,
    snapshot_file_name,
)
from kseg.types import TopicPartition

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.log", SegmentFile(0, FileKind.LOG)),
        ("00000000000000042107.index", SegmentFile(42107, FileKind.OFFSET_INDEX)),
        ("00000000000000042107.timeindex.swap", SegmentFile(42107, FileKind.TIME_INDEX, FileState.SWAP)),
        ("09223372036854775807.txnindex.cleaned", SegmentFile(2**63 - 1, FileKind.TXN_INDEX, FileState.CLEANED)),
        ("00000000000000000007.snapshot.deleted", SegmentFile(7, FileKind.SNAPSHOT, FileState.DELETED)),
        ("09223372036854775808.log", None),
        ("0.log", None),
        ("000000000000000000000.log", None),  # of its name a broker makes that of the file with 20 digits
        ("00000000000000000000.log.tmp", None),
        ("00000000000000000000.logs", None),
        ("00000000000000000000.log\n", None),
        ("-0000000000000000001.log", None),
        ("\u0660" * 20 + ".log", None),
        ("leader-epoch-checkpoint", None),
        ("", None),
    ],
)
def test_segment_files(name, expected):
    assert parse_segment_file(name) == expected
    if expected is not None:
        assert expected.name == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", PartitionDir(TopicPartition("orders", 0))),
        ("my.topic-with-dashes-12", PartitionDir(TopicPartition("my.topic-with-dashes", 12))),
        ("-x--3", PartitionDir(TopicPartition("-x-", 3))),
        (f"a.b-0.{ID}-delete", PartitionDir(TopicPartition("a.b", 0), DirKind.DELETE, ID)),
        (f"a-1.{ID}-future", PartitionDir(TopicPartition("a", 1), DirKind.FUTURE, ID)),
        (f"a-1.{ID}-stray", PartitionDir(TopicPartition("a", 1), DirKind.STRAY, ID)),
        ("__cluster_metadata-0", PartitionDir(TopicPartition("__cluster_metadata", 0))),
        ("remote-log-index-cache", None),
        ("orders", None),
        ("orders-", None),
        ("orders-x", None),
        ("-0", None),
        ("or ders-0", None),
        ("orders-2147483648", None),
        ("orders-delete", None),
        ("orders-0\n", None),
        ("lost+found", None),
        (".kseg", None),
    ],
)
def test_partition_directories(name, expected):
    assert parse_partition_dir(name) == expected
    if expected is not None:
        assert partition_dir_name(expected.topic_partition, expected.kind, expected.unique_id) == name


def test_only_raft_owns_the_metadata_log():
    assert parse_partition_dir("__cluster_metadata-0").is_cluster_metadata
    assert not parse_partition_dir("__consumer_offsets-0").is_cluster_metadata


def test_long_topics_are_cut_where_kafka_cuts_them():
    tp = TopicPartition("t" * 249, 100)
    assert len(partition_dir_name(tp, DirKind.DELETE)) == 255
    assert len(partition_dir_name(tp, DirKind.STRAY)) == 255
    assert len(partition_dir_name(tp, DirKind.FUTURE)) == 249 + 4 + 33 + 7
    cut = parse_partition_dir(partition_dir_name(tp, DirKind.DELETE))
    assert tp.topic.startswith(cut.topic_partition.topic)


def test_snapshots():
    assert snapshot_file_name(304, 2) == "00000000000000000304-0000000002.checkpoint"
    assert parse_snapshot_file("00000000000000000304-0000000002.checkpoint") == SnapshotFile(304, 2)
    assert parse_snapshot_file("00000000000000000304-0000000002.checkpoint.deleted").suffix == ".deleted"
    assert parse_snapshot_file("00000000000000000304-0000000002-8812.checkpoint.part").suffix == ".part"
    assert parse_snapshot_file("bootstrap.checkpoint") is None


@given(st.integers(0, 2**63 - 1), st.sampled_from(FileKind), st.sampled_from(FileState))
def test_segment_names_round_trip(base, kind, state):
    assert parse_segment_file(segment_file_name(base, kind, state)) == SegmentFile(base, kind, state)


@given(st.text())
def test_any_name_has_an_answer(name):
    parse_segment_file(name)
    parse_partition_dir(name)
    parse_snapshot_file(name)


def test_every_golden_name_is_known(golden):
    others = {"leader-epoch-checkpoint", "partition.metadata", "quorum-state"}
    count = 0
    for directory in (golden / "before").iterdir():
        if directory.is_dir():
            assert parse_partition_dir(directory.name) is not None
            for file in directory.iterdir():
                assert file.name in others or parse_segment_file(file.name) is not None
                count += 1
    assert count > 100
