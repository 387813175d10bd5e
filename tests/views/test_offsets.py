"""The view of committed offsets: what a coordinator would know after it has loaded the log."""

from __future__ import annotations

import logging

import pytest

import kseg
from kseg.errors import CorruptRecordError
from kseg.views.offsets import committed_offsets
from tests.views.support import commit, create, record_table, rows_of, uncommit, write

TOPIC = "__consumer_offsets"


def standing(root):
    """Offsets by group, topic and partition."""
    rows = rows_of("offsets", kseg.open_dir(root))
    return {(row["group"], row["topic"], row["partition"]): row["offset"] for row in rows}


def test_golden_groups(golden):
    rows = {row["group"]: row for row in rows_of("offsets", kseg.open_dir(golden / "before"))}
    classic, new = rows["g-classic"], rows["g-new"]
    assert set(rows) == {"g-classic", "g-new"}
    assert (classic["topic"], classic["partition"], classic["offset"]) == ("plain", 1, 546)
    assert (classic["endOffset"], classic["lag"]) == (1518, 1518 - 546)
    assert (new["topic"], new["partition"], new["offset"], new["lag"]) == ("rd-zstd", 0, 335, 1500 - 335)
    assert classic["topicId"] == kseg.open_log(golden / "before" / "plain-1").topic_id
    assert classic["commitTimestamp"].isoformat() == "2026-11-16T00:11:25.040000+00:00"


def test_the_last_commit_counts_and_a_tombstone_removes(tmp_path):
    records = [commit("g", "t", 0, 1), commit("g", "t", 1, 5), commit("g", "t", 0, 2), commit("h", "t", 0, 9)]
    write(tmp_path, TOPIC, [*records, uncommit("g", "t", 1)])
    assert standing(tmp_path) == {("g", "t", 0): 2, ("h", "t", 0): 9}
    assert [found.offset for found in committed_offsets(kseg.open_dir(tmp_path), group="h")] == [9]


def test_the_old_key_and_the_new_key_are_one_place(tmp_path):
    legacy = commit("g", "t", 0, 7, kind="LegacyOffsetCommit", version=0)
    write(tmp_path, TOPIC, [commit("g", "t", 0, 1), legacy])
    assert standing(tmp_path) == {("g", "t", 0): 7}


@pytest.mark.parametrize(
    ("end", "offset"),
    [("commit", 20), ("abort", 10), ("open", 10)],
)
def test_commits_inside_a_transaction(tmp_path, end, offset):
    with create(tmp_path, f"{TOPIC}-0") as writer:
        writer.append(record_table(TOPIC, [commit("g", "t", 0, 10)]))
        writer.append(record_table(TOPIC, [commit("g", "t", 0, 20)]), producer_id=5, transactional=True)
        if end != "open":
            writer.append_marker(5, commit=end == "commit")
        # Behind an open transaction, which hides it from consumers and not from a coordinator.
        writer.append(record_table(TOPIC, [commit("other", "t", 0, 3)]))
    assert standing(tmp_path) == {("g", "t", 0): offset, ("other", "t", 0): 3}


def test_a_newer_plain_commit_survives_the_marker(tmp_path):
    with create(tmp_path, f"{TOPIC}-0") as writer:
        writer.append(record_table(TOPIC, [commit("g", "t", 0, 20)]), producer_id=5, transactional=True)
        writer.append(record_table(TOPIC, [commit("g", "t", 0, 30)]))
        writer.append_marker(5, commit=True)
    assert standing(tmp_path) == {("g", "t", 0): 30}


def test_transactions_of_several_producers_in_one_chunk(tmp_path):
    with create(tmp_path, f"{TOPIC}-0") as writer:
        for producer in (1, 2, 3):
            rows = record_table(TOPIC, [commit("g", "t", producer, 100 + producer), commit("g", "u", 0, producer)])
            writer.append(rows, producer_id=producer, transactional=True)
        writer.append_marker(2, commit=False)
        writer.append_marker(3, commit=True)
        writer.append_marker(1, commit=True)
    assert standing(tmp_path) == {("g", "t", 1): 101, ("g", "t", 3): 103, ("g", "u", 0): 3}


def test_ends_and_lag(tmp_path):
    with create(tmp_path, "orders-0", topic_id="AAAAAAAAAAAAAAAAAAAAbQ") as writer:
        writer.append(record_table("orders", [(b"k", b"v")] * 10))
    other_topic = commit("old", "orders", 0, 4, version=4, topicId="AAAAAAAAAAAAAAAAAAAAcg")
    records = [commit("g", "orders", 0, 4), commit("ahead", "orders", 0, 12), commit("g", "away", 0, 4), other_topic]
    write(tmp_path, TOPIC, records)
    rows = {
        (row["group"], row["topic"]): (row["endOffset"], row["lag"])
        for row in rows_of("offsets", kseg.open_dir(tmp_path))
    }
    assert rows == {
        ("g", "orders"): (10, 6),
        ("ahead", "orders"): (10, 0),
        ("g", "away"): (None, None),
        ("old", "orders"): (None, None),
    }


def test_unknown_records_do_not_disturb(tmp_path, caplog):
    unknown_type, unknown_version = (
        (b"\x00\x63new", b"\x00\x00?"),
        (b"\x00\x01\x00\x01g\x00\x01t\0\0\0\0", b"\x00\x63?"),
    )
    write(tmp_path, TOPIC, [unknown_type, unknown_version, commit("g", "t", 1, 1)])
    with caplog.at_level(logging.WARNING):
        assert standing(tmp_path) == {("g", "t", 1): 1}
    assert caplog.messages == ["a commit at offset 1 is passed over: version 99 of OffsetCommitValue"]


def test_damage_names_the_place(tmp_path):
    write(tmp_path, TOPIC, [commit("g", "t", 0, 1), (b"\x00\x01\x00\x09g", b"\x00\x00")])
    with pytest.raises(CorruptRecordError) as caught:
        standing(tmp_path)
    assert caught.value.path == str(tmp_path / f"{TOPIC}-0")
    assert caught.value.offset == 1
    write(tmp_path / "b", TOPIC, [(None, b"\x00\x00")])
    with pytest.raises(CorruptRecordError, match="no key"):
        standing(tmp_path / "b")


def test_nothing_where_there_is_no_coordinator(tmp_path):
    with create(tmp_path, "orders-0") as writer:
        writer.append(record_table("orders", [(b"k", b"v")]))
    assert rows_of("offsets", kseg.open_dir(tmp_path)) == []


def test_a_torn_tail_is_left_out(tmp_path):
    write(tmp_path, TOPIC, [commit("g", "t", 0, 1)])
    with (tmp_path / f"{TOPIC}-0" / "00000000000000000000.log").open("ab") as file:
        file.write(b"\0" * 100)
    assert standing(tmp_path) == {("g", "t", 0): 1}
    assert rows_of("transactions", kseg.open_dir(tmp_path)) == []
