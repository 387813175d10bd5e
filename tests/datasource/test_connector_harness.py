"""The harness itself: Spark's own Kafka connector reads, in the tests' session, what a real broker holds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.errors import IllegalArgumentException

from tests.datasource.spark_session import session_conf

START_MS = 1_700_000_000_000
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def load(spark, broker, topic, **options):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
    return reader.options(**options).load()


def test_connector_reads_what_was_produced(spark_with_kafka, broker):
    broker.create_topic("connector", partitions=2)
    rows = [
        {"key": b"k", "value": b"v", "timestamp": START_MS, "headers": [("h", b"1"), ("n", None)]},
        {"key": None, "value": None, "timestamp": START_MS + 1},
    ]
    broker.produce("connector", rows, partition=0)
    broker.produce("connector", [{"value": b"other", "timestamp": START_MS + 2}], partition=1)

    frame = load(spark_with_kafka, broker, "connector", includeHeaders="true")
    found = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))

    assert frame.columns == COLUMNS
    assert [(row.key, row.value, row.partition, row.offset) for row in found] == [
        (b"k", b"v", 0, 0),
        (None, None, 0, 1),
        (None, b"other", 1, 0),
    ]
    assert {(row.topic, row.timestampType) for row in found} == {("connector", 0)}
    assert [row.headers for row in found] == [[("h", b"1"), ("n", None)], None, None]


def test_connector_refuses_a_wrong_option(spark_with_kafka, broker):
    with pytest.raises(IllegalArgumentException, match="starting offset can't be latest for batch queries"):
        load(spark_with_kafka, broker, "connector", startingOffsets="latest").count()


def test_session_shows_instants_in_utc(spark):
    text = spark.sql(f"select cast(timestamp_millis({START_MS}) as string) as at").first().at
    assert text == datetime.fromtimestamp(START_MS / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def test_session_settings_hold_for_a_block_only(spark):
    names = {"spark.sql.session.timeZone": "Asia/Tokyo", "kseg.tests.unknown": "1"}
    with session_conf(spark, **names):
        assert {name: spark.conf.get(name) for name in names} == names
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("kseg.tests.unknown", None) is None
