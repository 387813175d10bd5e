"""The twins themselves, against what Kafka wrote: if they are wrong, nothing that is compared with them is right."""

from __future__ import annotations

import json

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.reference import batch as v2
from tests.reference import codecs, legacy, vectors

TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
PARTITIONS = [
    "plain-0",
    "tx-0",
    "mixed-codecs-0",
    "append-time-0",
    "rd-snappy-0",
    "java-gzip-0",
    "java-lz4-0",
    "rd-zstd-0",
]


@pytest.mark.parametrize("codec", codecs.NAMES)
def test_batches_both_ways(codec):
    data = vectors.batch(codec)
    read = v2.read_batch(data)
    assert read.records == vectors.BATCH_RECORDS
    fields = v2.Fields(base_offset=100, leader_epoch=3, codec=codecs.NAMES.index(codec))
    assert v2.encode_batch(read.records, fields) == data


@pytest.mark.parametrize("index", range(len(vectors.message_sets())))
def test_message_sets_both_ways(index):
    magic, codec, data = vectors.message_sets()[index]
    read = legacy.read_set(data)
    assert read == vectors.message_records(magic)
    again = legacy.encode_set(read, magic, codecs.NAMES.index(codec))
    assert legacy.read_set(again) == read
    if codec != "lz4":  # whose compressed bytes depend on the library's version
        assert again == data


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", codecs.NAMES[:4])
def test_legacy_logs(golden, magic, codec):
    directory = golden / "legacy" / f"legacy-v{magic}-{codec}-0"
    rows = [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": TYPES[record.timestamp_type],
            "key": None if record.key is None else record.key.decode(),
            "value": None if record.value is None else record.value.decode(),
        }
        for record in legacy.read_set((directory / "00000000000000000000.log").read_bytes())
    ]
    expected = directory.with_name(f"{directory.name}.jsonl").read_text().splitlines()
    assert rows == [json.loads(line) for line in expected]


@pytest.mark.parametrize("name", PARTITIONS)
def test_logs_of_a_broker(golden, name):
    topic, partition = name.rsplit("-", 1)
    table = pq.read_table(golden / "before.parquet")
    chosen = pc.and_(pc.equal(table["topic"], topic), pc.equal(table["partition"], int(partition)))
    expected = sorted(table.filter(chosen).to_pylist(), key=lambda row: row["offset"])
    rows = []
    for path in sorted((golden / "before" / name).glob("*.log")):
        data = path.read_bytes()
        for position, _ in v2.walk(data)[0]:
            batch = v2.read_batch(data, position)
            rows += [] if batch.is_control else batch.records
    assert [(row.offset, row.timestamp, row.timestamp_type, row.key, row.value) for row in rows] == [
        (row["offset"], row["timestamp_ms"], row["timestampType"], row["key"], row["value"]) for row in expected
    ]
    assert [row.headers for row in rows] == [
        tuple((header["key"].encode(), header["value"]) for header in row["headers"] or ()) for row in expected
    ]
