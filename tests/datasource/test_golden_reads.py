"""All golden data through `format("kseg")` and through `kseg.scan`, as a consumer read them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kseg
from kseg.views.registry import read_view

GOLDEN = Path(__file__).parent.parent / "golden"
EXPECTED = {"before": "before", "cleaned": "cleaned", "expired": "expired"}
LATE = ("tx", 0, 432)  # its transaction was decided after the consumer had read (tests/log/test_golden_reads.py)


def expected(folder, *, committed, headers):
    rows = pq.read_table(GOLDEN / f"{EXPECTED[folder]}.parquet").to_pylist()
    return sorted(
        (
            row["topic"], row["partition"], row["offset"], row["timestamp_ms"], row["timestampType"], row["key"],
            row["value"], [(h["key"], h["value"]) for h in row["headers"]] if headers else None,
        )
        for row in rows
        if not committed or row["committed"] or (row["topic"], row["partition"], row["offset"]) == LATE
    )  # fmt: skip


def found(frame, *, headers):
    columns = ["topic", "partition", "offset", "unix_millis(timestamp) ms", "timestampType", "key", "value"]
    rows = frame.selectExpr(*columns, *(["headers"] if headers else [])).collect()
    return sorted(
        (
            row.topic, row.partition, row.offset, row.ms, row.timestampType, _bytes(row.key), _bytes(row.value),
            [(h.key, _bytes(h.value)) for h in row.headers or []] if headers else None,
        )
        for row in rows
    )  # fmt: skip


def _bytes(value):
    return None if value is None else bytes(value)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("folder", EXPECTED)
def test_the_source_gives_what_a_consumer_read(spark, folder, isolation):
    reader = spark.read.format("kseg").option("kafka.isolation.level", isolation).option("includeHeaders", "true")
    frame = reader.load(str(GOLDEN / folder))
    assert found(frame, headers=True) == expected(folder, committed=isolation == "read_committed", headers=True)


@pytest.mark.parametrize("folder", EXPECTED)
def test_scan_gives_the_same(spark, folder):
    frame = kseg.scan(spark, GOLDEN / folder, kafka_isolation_level="read_committed", maxBytesPerTask=100_000)
    assert frame.rdd.getNumPartitions() > 1
    assert found(frame, headers=False) == expected(folder, committed=True, headers=False)


def test_columns_types_and_order_are_those_of_the_kafka_source(spark):
    plain = spark.read.format("kseg").option("subscribe", "plain").load(str(GOLDEN / "before"))
    assert [(field.name, field.dataType.simpleString()) for field in plain.schema] == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"),
    ]  # fmt: skip
    with_headers = spark.read.format("kseg").option("includeHeaders", "true").load(str(GOLDEN / "before" / "plain-0"))
    assert with_headers.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


@pytest.mark.parametrize("folder", ["before", "cleaned"])
def test_fewer_columns_in_any_order_give_the_same_values(spark, folder):
    whole = spark.read.format("kseg").load(str(GOLDEN / folder))
    by_schema = spark.read.format("kseg").schema("offset long, topic string").load(str(GOLDEN / folder))
    by_option = spark.read.format("kseg").option("columns", "offset,topic").load(str(GOLDEN / folder))
    scanned = kseg.scan(spark, GOLDEN / folder, columns=["offset", "topic"])
    wanted = sorted(whole.select("offset", "topic").collect())
    for frame in (by_schema, by_option, scanned):
        assert frame.columns == ["offset", "topic"]
        assert sorted(frame.collect()) == wanted


def test_repeated_actions_joins_and_unions_on_one_frame_are_right(spark):
    frame = spark.read.format("kseg").option("subscribe", "plain").load(str(GOLDEN / "before"))
    assert frame.count() == 3000
    assert frame.where("partition = 1").count() == 1518
    assert frame.count() == 3000
    both = frame.where("partition = 0").union(frame.where("partition = 1"))
    assert sorted(tuple(row) for row in both.groupBy("partition").count().collect()) == [(0, 1482), (1, 1518)]
    assert frame.alias("a").join(frame.alias("b"), ["partition", "offset"]).count() == 3000


def test_offsets_times_and_sql(spark):
    path = str(GOLDEN / "before")
    reader = spark.read.format("kseg").option("subscribe", "multi-segment")
    some = reader.option("startingOffsets", '{"multi-segment":{"0":100}}')
    some = some.option("endingOffsets", '{"multi-segment":{"0":250}}').load(path)
    assert sorted(row.offset for row in some.select("offset").collect()) == list(range(100, 250))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW plain USING kseg OPTIONS (path '{path}', subscribe 'plain')")
    assert spark.sql("SELECT count(*) FROM plain").first()[0] == 3000
    spark.catalog.dropTempView("plain")


@pytest.mark.parametrize("view", ["batches", "segments", "offsets", "groups", "transactions", "topics"])
def test_views_are_dataframes(spark, view):

    frame = spark.read.format("kseg").option("view", view).load(str(GOLDEN / "before"))
    logs = list(kseg.open_dir(GOLDEN / "before"))
    if view in ("batches", "segments"):
        logs = [log for log in logs if not log.topic.startswith("__")]
    assert frame.count() == sum(batch.num_rows for batch in read_view(view, logs))
    assert frame.count() > 0


def test_what_is_wrong_is_said_in_one_line(spark):
    reader = spark.read.format("kseg")
    with pytest.raises(Exception, match="unknown column 'colour'"):
        reader.option("columns", "colour").load(str(GOLDEN / "before")).collect()
    with pytest.raises(Exception, match="no-such-topic"):
        spark.read.format("kseg").option("subscribe", "no-such-topic").load(str(GOLDEN / "before")).collect()
    with pytest.raises(Exception, match="minPartitions"):
        spark.read.format("kseg").option("minPartitions", "0").load(str(GOLDEN / "before")).collect()


def test_min_partitions_and_max_records_shape_the_tasks(spark):
    path = str(GOLDEN / "before" / "multi-segment-0")
    assert spark.read.format("kseg").load(path).rdd.getNumPartitions() == 1
    assert spark.read.format("kseg").option("minPartitions", "7").load(path).rdd.getNumPartitions() >= 7
    limited = spark.read.format("kseg").option("maxRecordsPerPartition", "1000").load(path)
    assert limited.rdd.getNumPartitions() >= 9
    assert limited.count() == 9000
