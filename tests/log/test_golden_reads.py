"""What kseg reads from logs that real brokers wrote is what a real consumer read from those brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kseg
from tests.log.rows import plain_rows

GOLDEN = Path(__file__).parent.parent / "golden"
EXPECTED = {"before": "before", "unclean": "before", "cleaned": "cleaned", "expired": "expired"}
KINDS = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
# The consumer read while a transaction was open; its ABORT marker came before the files were copied, so that the plain
# record behind it, which the consumer could not see then, is stable in the files.
STABLE_SINCE = {("before", "tx-0"): 432, ("unclean", "tx-0"): 432}
INTERNAL = ("__cluster_metadata", "__consumer_offsets", "__transaction_state")


def _partitions():
    for folder in EXPECTED:
        for path in sorted((GOLDEN / folder).iterdir()):
            if path.is_dir() and not path.name.startswith(INTERNAL):
                yield pytest.param(folder, path.name, id=f"{folder}-{path.name}")


def _expected(folder, name, isolation):
    table = pq.read_table(GOLDEN / f"{EXPECTED[folder]}.parquet")
    topic, partition = name.rsplit("-", 1)
    table = table.filter((pc.field("topic") == topic) & (pc.field("partition") == int(partition)))
    return [
        (
            row["offset"],
            row["timestamp_ms"],
            row["timestampType"],
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in table.to_pylist()
        if isolation == "read_uncommitted" or row["committed"] or row["offset"] == STABLE_SINCE.get((folder, name))
    ]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(("folder", "name"), list(_partitions()))
def test_rows_equal_what_a_consumer_read(folder, name, isolation):
    expected = _expected(folder, name, isolation)
    assert expected
    assert plain_rows(kseg.open_log(GOLDEN / folder / name).read(isolation=isolation)) == expected


@pytest.mark.parametrize(("folder", "name"), list(_partitions()))
def test_log_start_and_end_equal_the_brokers(folder, name):
    start, end = json.loads((GOLDEN / f"{EXPECTED[folder]}.parquet.ends.json").read_text())[name]
    log = kseg.open_log(GOLDEN / folder / name)
    late_marker = 1 if (folder, name) in STABLE_SINCE else 0
    assert (log.start_offset, log.high_watermark, log.end_offset) == (start, end + late_marker, end + late_marker)


@pytest.mark.parametrize("path", sorted((GOLDEN / "legacy").glob("*.jsonl")), ids=lambda path: path.stem)
def test_legacy_rows_equal_what_kafkas_classes_read(path):
    expected = [json.loads(line) for line in path.read_text().splitlines()]
    rows = plain_rows(kseg.open_log(path.with_suffix("")).read())
    found = [
        {
            "offset": offset,
            "timestamp": timestamp,
            "timestampType": KINDS[kind],
            "key": None if key is None else key.decode(),
            "value": None if value is None else value.decode(),
        }
        for offset, timestamp, kind, key, value, _ in rows
    ]
    assert found == expected


@pytest.mark.parametrize(
    "columns", [["offset"], ["value", "offset"], ["topic", "partition", "offset"], ["timestamp", "key"]]
)
@pytest.mark.parametrize(
    ("folder", "name"), [("before", "tx-0"), ("cleaned", "compact-tx-0"), ("before", "mixed-codecs-0")]
)
def test_a_projection_gives_the_same_values_as_the_whole(folder, name, columns):
    log = kseg.open_log(GOLDEN / folder / name)
    for isolation in ("read_uncommitted", "read_committed"):
        whole = [batch.select(columns).to_pylist() for batch in log.read(isolation=isolation)]
        part = [batch.to_pylist() for batch in log.read(isolation=isolation, columns=columns)]
        assert [row for rows in part for row in rows] == [row for rows in whole for row in rows]


@pytest.mark.parametrize(
    ("folder", "name"), [("before", "multi-segment-0"), ("cleaned", "compact-tx-0"), ("before", "java-gzip-0")]
)
def test_any_range_is_a_slice_of_the_whole(folder, name):
    log = kseg.open_log(GOLDEN / folder / name)
    whole = plain_rows(log.read())
    step = max(1, log.end_offset // 23)
    for start in range(0, log.end_offset + 1, step):
        for end in (start, start + 1, start + 17, start + 3 * step):
            found = plain_rows(log.read(start, end, batch_bytes=8192))
            assert found == [row for row in whole if start <= row[0] < end]


def test_a_log_directory_lists_its_partitions_and_knows_its_cluster():
    log_dir = kseg.open_dir(GOLDEN / "before")
    assert log_dir.cluster_id == "17iJIcWgT6Cxzhj6vFi-8A"
    assert ("tx", 1) in log_dir
    assert log_dir["tx", 1].end_offset == 420
    assert [str(log.topic) for log in log_dir.partitions] == sorted(log.topic for log in log_dir.partitions)
    with pytest.raises(kseg.LogError, match="no partition nothing-7 here"):
        log_dir["nothing", 7]
