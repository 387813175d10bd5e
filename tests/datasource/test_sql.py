"""`USING kseg`: temporary views, tables of the catalog, and what Spark does to their options."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import kseg
from tests.golden.manifest import FOLDER as GOLDEN


@pytest.fixture
def data(tmp_path):
    """A copy to drop tables over, with a blank in its name."""
    folder = tmp_path / "log dir"
    for name in ("plain-0", "plain-1", "multi-segment-0"):
        shutil.copytree(GOLDEN / "before" / name, folder / name)
    return folder


@pytest.fixture
def sql(spark):
    """Run statements; tables and views that they make are gone afterwards."""
    yield lambda text: [tuple(row) for row in spark.sql(text).collect()]
    spark.sql("DROP VIEW IF EXISTS kseg_view")
    spark.sql("DROP VIEW IF EXISTS kseg_stored_view")
    spark.sql("DROP TABLE IF EXISTS kseg_table")


BY_PARTITION = "SELECT topic, partition, count(*), min(offset), max(offset) FROM {} GROUP BY ALL ORDER BY ALL"
PLAIN = [("plain", 0, 1482, 0, 1481), ("plain", 1, 1518, 0, 1517)]


def test_a_temporary_view(sql, data):
    sql(f"CREATE TEMPORARY VIEW kseg_view USING kseg OPTIONS (path '{data}', subscribe 'plain')")
    assert sql(BY_PARTITION.format("kseg_view")) == PLAIN


def test_a_temporary_view_of_a_view(sql, data):
    options = f"OPTIONS (path '{data}', view 'segments', columns 'topic,baseOffset,size')"
    sql(f"CREATE TEMPORARY VIEW kseg_view USING kseg {options}")
    assert len(sql("SELECT topic, baseOffset, size FROM kseg_view")) == len(list(data.glob("*/*.log")))


@pytest.mark.parametrize(
    "place",
    ["OPTIONS (path '{data}', subscribe 'plain')", "OPTIONS (subscribe 'plain') LOCATION '{data}'",
     "OPTIONS (paths '[\"{data}/plain-0\",\"{data}/plain-1\"]')"],
)  # fmt: skip
def test_a_table_keeps_its_options(spark, sql, data, place):
    sql(f"CREATE TABLE kseg_table USING kseg {place.format(data=data)}")
    assert sql(BY_PARTITION.format("kseg_table")) == PLAIN
    assert spark.table("kseg_table").count() == 3000
    columns = [field.simpleString() for field in spark.table("kseg_table").schema]
    assert columns == [field.simpleString() for field in spark.read.format("kseg").load(str(data)).schema]


def test_a_table_sees_what_was_appended_since(sql, tmp_path):
    with kseg.create_log(tmp_path / "t-0") as writer:
        writer.append(pa.table({"value": [b"a", b"b"]}))
    sql(f"CREATE TABLE kseg_table USING kseg OPTIONS (path '{tmp_path}')")
    assert sql("SELECT count(*) FROM kseg_table") == [(2,)]
    with kseg.append_to(tmp_path / "t-0") as writer:
        writer.append(pa.table({"value": [b"c"]}))
    assert sql("SELECT count(*) FROM kseg_table") == [(3,)]


def test_properties_of_a_table_are_no_options(sql, data):
    properties = "COMMENT 'old orders' TBLPROPERTIES ('subscribed' = 'no', 'columns' = 'key')"
    sql(f"CREATE TABLE kseg_table USING kseg OPTIONS (path '{data}', subscribe 'plain') {properties}")
    assert sql(BY_PARTITION.format("kseg_table")) == PLAIN


def test_a_table_of_a_view_and_of_few_columns(sql, data):
    sql(f"CREATE TABLE kseg_table USING kseg OPTIONS (path '{data}', view 'batches', columns 'topic,count')")
    assert sql("SELECT topic, sum(count) FROM kseg_table GROUP BY ALL ORDER BY ALL") == [
        ("multi-segment", 9000), ("plain", 3000),
    ]  # fmt: skip


def test_options_of_one_query_go_before_those_of_the_table(sql, data):
    sql(f"CREATE TABLE kseg_table USING kseg OPTIONS (path '{data}', subscribe 'plain')")
    later = """WITH (startingOffsets = '{"plain":{"0":1480,"1":1517}}')"""
    assert sql(f"SELECT partition, offset FROM kseg_table {later} ORDER BY ALL") == [(0, 1480), (0, 1481), (1, 1517)]
    sql("CREATE VIEW kseg_stored_view AS SELECT * FROM kseg_table WITH (subscribe = 'multi-segment')")
    assert sql("SELECT count(*) FROM kseg_stored_view") == [(9000,)]
    assert sql("SELECT count(*) FROM kseg_table") == [(3000,)]


def test_a_dropped_table_leaves_the_logs_alone(sql, data):
    before = sorted(path.stat().st_size for path in data.rglob("*"))
    sql(f"CREATE TABLE kseg_table USING kseg OPTIONS (path '{data}')")
    sql("DROP TABLE kseg_table")
    assert sorted(path.stat().st_size for path in data.rglob("*")) == before


def test_a_stream_of_a_table(spark, sql, data, tmp_path):
    sql(f"CREATE TABLE kseg_table USING kseg OPTIONS (path '{data}', subscribe 'plain', startingOffsets 'earliest')")
    source = spark.readStream.table("kseg_table")
    query = source.writeStream.format("memory").queryName("kseg_view").option("checkpointLocation", str(tmp_path / "c"))
    running = query.trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(60)
    finally:
        running.stop()
    assert sql(BY_PARTITION.format("kseg_view")) == PLAIN


def test_a_frame_that_is_loaded_has_no_metadata(spark, data):
    schema = spark.read.format("kseg").option("includeHeaders", "true").load(str(data)).schema
    assert all(not field.metadata for field in schema)


def test_a_table_with_columns_of_its_own_has_no_path(sql, data):
    sql(f"CREATE TABLE kseg_table (offset LONG) USING kseg OPTIONS (path '{data}')")
    with pytest.raises(Exception, match="no path is given"):
        sql("SELECT * FROM kseg_table")
    assert len(sql(f"SELECT * FROM kseg_table WITH (path = '{data}')")) == 12000
