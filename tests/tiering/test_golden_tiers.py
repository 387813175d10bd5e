"""The golden tiers read as a consumer read them: with the local part and from the bucket alone, at both levels."""

from __future__ import annotations

import functools
import itertools
import json

import fsspec
import pyarrow.parquet as pq
import pytest

import kseg
from kseg.log.plan import plan_splits, read_splits
from kseg.schema import select_columns
from kseg.views.registry import get_view
from tests.tiering.conftest import TREES

TOPICS = ("tiered", "tiered-tx")
LEVELS = ("read_uncommitted", "read_committed")


@functools.cache
def expected_rows(path, topic, committed):
    rows = pq.read_table(path, filters=[("topic", "=", topic)]).to_pylist()
    return [
        (row["offset"], row["timestamp_ms"], row["timestampType"], row["key"], row["value"],
         [(h["key"], h["value"]) for h in row["headers"] or []])
        for row in sorted(rows, key=lambda row: row["offset"])
        if row["committed"] or not committed
    ]  # fmt: skip


def expected(tree, topic, isolation, *, end=2**63):
    path = next(iter(tree.glob("*.parquet")))
    return [row for row in expected_rows(path, topic, isolation == "read_committed") if row[0] < end]


def rows_of(batches):
    return [
        (row["offset"], round(row["timestamp"].timestamp() * 1000), row["timestampType"], row["key"], row["value"],
         [(h["key"], h["value"]) for h in row["headers"] or []])
        for batch in batches
        for row in batch.to_pylist()
    ]  # fmt: skip


@pytest.mark.parametrize("isolation", LEVELS)
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("name", TREES)
def test_local_and_remote_are_one_log(golden, golden_keys, name, topic, isolation):
    tree = golden / name
    log = kseg.open_log(tree / "local" / f"{topic}-0", remote=tree / "remote", keys=golden_keys)
    tiers = [segment.tier for segment in log.segments]
    assert tiers == ["remote"] * (len(tiers) - 1) + ["local"]
    ends = json.loads(next(iter(tree.glob("*.ends.json"))).read_text())
    assert [log.start_offset, log.end_offset] == ends[f"{topic}-0"]
    assert rows_of(log.read(isolation=isolation)) == expected(tree, topic, isolation)


@pytest.mark.parametrize("isolation", LEVELS)
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("name", TREES)
def test_a_bucket_alone(golden, golden_keys, name, topic, isolation):
    """All that was copied; with read_committed up to a transaction whose end is in no segment that was copied."""
    tree = golden / name
    found = kseg.open_dir(tree / "remote", keys=golden_keys)
    assert [(log.topic, log.partition) for log in found] == [("tiered", 0), ("tiered-tx", 0)]
    log = found[topic, 0]
    both = kseg.open_log(tree / "local" / f"{topic}-0", remote=tree / "remote", keys=golden_keys)
    assert log.end_offset == both.segments[-1].base_offset
    assert log.topic_id == both.topic_id
    assert log.leader_epochs() == both.leader_epochs()
    assert {segment.tier for segment in log.segments} == {"remote"}
    undecided = {"tiered": 0, "tiered-tx": 60}[topic]
    assert log.last_stable_offset == log.end_offset - undecided
    end = log.last_stable_offset if isolation == "read_committed" else log.end_offset
    assert rows_of(log.read(isolation=isolation)) == expected(tree, topic, isolation, end=end)


@pytest.mark.parametrize("name", TREES)
def test_splits_give_what_a_read_gives_also_elsewhere(golden, golden_keys, name):
    import pickle

    tree = golden / name
    log = kseg.open_log(tree / "local/tiered-tx-0", remote=tree / "remote", keys=golden_keys)
    splits = plan_splits(log, 0, log.end_offset, committed=True, target_bytes=100_000)
    assert len(splits) > len(log.segments)
    carried = pickle.dumps(splits)
    assert golden_keys["key1"].read_bytes()[40:80] not in carried
    found = rows_of(read_splits(pickle.loads(carried), select_columns(None)))
    assert found == expected(tree, "tiered-tx", "read_committed")


@pytest.mark.parametrize("name", TREES)
def test_times_and_ranges_over_both_tiers(golden, golden_keys, name):
    tree = golden / name
    log = kseg.open_log(tree / "local/tiered-0", remote=tree / "remote", keys=golden_keys)
    wanted = expected(tree, "tiered", "read_uncommitted")
    for place in (0, 1, 1999, 2000, 2001, 3300, len(wanted) - 1):
        offset, timestamp = wanted[place][:2]
        assert log.offset_for_time(timestamp)[:2] == (timestamp, offset)
    for start, end in ((0, 1), (1990, 2010), (3000, 3001), (log.end_offset - 1, log.end_offset), (0, log.end_offset)):
        assert rows_of(log.read(start, end)) == [row for row in wanted if start <= row[0] < end]


def test_aborted_transactions_and_producers_of_a_tiered_log(golden, golden_keys):
    tree = golden / "aiven/encrypted"
    log = kseg.open_log(tree / "local/tiered-tx-0", remote=tree / "remote", keys=golden_keys)
    aborted = log.aborted_transactions(0, log.end_offset)
    hidden = {row[0] for row in expected(tree, "tiered-tx", "read_uncommitted")} - {
        row[0] for row in expected(tree, "tiered-tx", "read_committed")
    }
    assert hidden
    covered = {offset for txn in aborted for offset in hidden if txn.first_offset <= offset <= txn.last_offset}
    assert covered == hidden
    assert len({txn.last_offset < log.segments[-1].base_offset for txn in aborted}) == 2, "markers in both tiers"


def test_one_partition_of_a_bucket_by_its_own_path(golden):
    plain = golden / "tiered/remote/kafka-tiered-storage/tiered-0-B3RXWuOsQ1C167V10rAPFA"
    assert (kseg.open_log(plain).topic, kseg.open_log(plain).end_offset) == ("tiered", 13151)
    chunked = next((golden / "aiven/plain/remote").glob("tiered-tx-*")) / "0"
    assert (kseg.open_log(chunked).topic, kseg.open_log(chunked).end_offset) == ("tiered-tx", 2988)


def test_a_partition_without_a_directory_is_read_from_the_tier(golden, tmp_path, caplog):
    log = kseg.open_log(tmp_path / "tiered-0", remote=golden / "aiven/plain/remote")
    assert (log.start_offset, log.end_offset) == (0, 8151)
    assert "only what is in the tier is read" in caplog.text
    with pytest.raises(kseg.LogError, match="neither here nor in the tier"):
        kseg.open_log(tmp_path / "other-0", remote=golden / "aiven/plain/remote")


def test_a_log_directory_with_its_tier(golden):
    found = kseg.open_dir(golden / "tiered/local", remote=golden / "tiered/remote")
    assert {"tiered-0": 0, "tiered-tx-0": 0, "__remote_log_metadata-0": 0}.items() <= {
        f"{log.topic}-{log.partition}": log.start_offset for log in found
    }.items()
    assert found["tiered", 0].end_offset == 14000
    assert kseg.open_dir(golden / "tiered/local")["tiered", 0].start_offset == 13151


def test_a_bucket_in_a_store_that_fsspec_reaches(golden, golden_keys):
    memory = fsspec.filesystem("memory")
    for file in (golden / "aiven/encrypted/remote").rglob("*"):
        if file.is_file():
            key = file.relative_to(golden / "aiven/encrypted/remote").as_posix()
            memory.pipe(f"/bucket/pre/{key}", file.read_bytes())
    tree = golden / "aiven/encrypted"
    alone = kseg.open_dir("memory://bucket/pre", keys=golden_keys)["tiered", 0]
    wanted = expected(tree, "tiered", "read_committed")
    assert rows_of(alone.read(isolation="read_committed")) == [row for row in wanted if row[0] < alone.end_offset]
    both = kseg.open_log(tree / "local/tiered-0", remote="memory://bucket/pre", keys=golden_keys)
    assert rows_of(both.read(isolation="read_committed")) == wanted


@pytest.mark.parametrize("name", TREES)
def test_the_view_of_segments_shows_tiers(golden, golden_keys, name):
    tree = golden / name
    logs = kseg.open_dir(tree / "local", remote=tree / "remote", keys=golden_keys)
    view = get_view("segments")
    rows = [row for unit in view.plan([logs["tiered", 0]]) for batch in unit.read() for row in batch.to_pylist()]
    assert [row["tier"] for row in rows] == ["remote"] * 4 + ["local"]
    assert rows[0]["path"].startswith(str(tree / "remote"))
    assert all(row["nextOffset"] == following["baseOffset"] for row, following in itertools.pairwise(rows))
    assert all(row["indexBytes"] is not None and row["maxTimestamp"] for row in rows)


@pytest.mark.parametrize("tier", ["tiered/remote", "aiven/plain/remote"])
def test_a_tier_beside_log_directories_hides_none_of_them(golden, tmp_path, tier):
    (tmp_path / "a-tier").symlink_to(golden / tier)
    assert {log.topic for log in kseg.open_dir(tmp_path)} == set(TOPICS)
    (tmp_path / "data").symlink_to(golden / "before")
    assert {log.topic for log in kseg.open_dir(tmp_path)} >= {"tx", "plain"}
