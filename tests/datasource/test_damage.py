"""Damage and changed files through Spark: `corrupt`, and segments that vanish or are replaced after planning."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

import kseg
from kseg.datasource.source import KsegDataSource
from kseg.datasource.spark_schema import record_schema
from kseg.options import SourceOptions
from tests.builders import LogBuilder
from tests.log.test_damage import batches_of, flip

GOLDEN = Path(__file__).parent.parent / "golden" / "before"
NAME = "multi-segment-0"


@pytest.fixture
def damaged(tmp_path):
    """A partition with a bad checksum and a bad length, and the offsets that are lost with them."""
    directory = shutil.copytree(GOLDEN / NAME, tmp_path / NAME)
    batches = batches_of(directory)
    hit = [batches[len(batches) // 3], batches[len(batches) // 2]]
    flip(hit[0][0], hit[0][1] + 100)
    flip(hit[1][0], hit[1][1] + 9)
    return directory, {offset for _, _, _, base, last in hit for offset in range(base, last + 1)}


def frames(spark, directory, **options):
    """The same read by both roads, in several tasks."""
    reader = spark.read.format("kseg").options(maxBytesPerTask="100k", **options)
    return [reader.load(str(directory)), kseg.scan(spark, directory, maxBytesPerTask="100k", **options)]


def test_fail_names_the_place(spark, damaged):
    directory, _ = damaged
    for frame in frames(spark, directory):
        with pytest.raises(PySparkException, match=r"\.log, byte \d+.*checksum|no whole batch"):
            frame.select("offset").collect()


def test_skip_goes_on_at_the_next_sound_batch(spark, damaged):
    directory, lost = damaged
    for options in ({}, {"maxRecordsPerPartition": 777}):
        for frame in frames(spark, directory, corrupt="skip", **options):
            assert frame.rdd.getNumPartitions() > 3
            assert "_corrupt" not in frame.columns
            assert sorted(row.offset for row in frame.select("offset").collect()) == sorted({*range(9000)} - lost)


def test_column_gives_each_damaged_place_once(spark, damaged):
    directory, lost = damaged
    for options in ({}, {"maxRecordsPerPartition": 777}):
        for frame in frames(spark, directory, corrupt="column", **options):
            assert frame.columns[-1] == "_corrupt"
            rows = frame.collect()
            places = [row for row in rows if row["_corrupt"] is not None]
            assert len(places) == 2
            covered = {n for row in places for n in range(row["_corrupt"].startOffset, row["_corrupt"].endOffset)}
            assert covered == lost
            for row in places:
                assert (row.topic, row.partition, row.offset) == ("multi-segment", 0, row["_corrupt"].startOffset)
                assert row.key is row.value is row.timestamp is row.timestampType is None
                assert row["_corrupt"].file.endswith(".log") and row["_corrupt"].position > 0 and row["_corrupt"].reason
            sound = sorted(row.offset for row in rows if row["_corrupt"] is None)
            assert sound == sorted({*range(9000)} - lost)


def test_damage_that_lies_in_several_ranges_is_told_by_the_first(tmp_path):
    LogBuilder(tmp_path).batch(10).batch(10).corrupt(byte=80).batch(10).write()
    source = KsegDataSource({"path": str(tmp_path), "corrupt": "column", "maxRecordsPerPartition": "7"})
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    rows = [[row for batch in reader.read(task) for row in batch.to_pylist()] for task in tasks]
    assert len(tasks) > 3
    assert [row["offset"] for task in rows for row in task] == [*range(11), *range(20, 30)]
    assert [row["_corrupt"]["endOffset"] for task in rows for row in task if row["_corrupt"]] == [20]


def test_the_column_is_there_when_it_should_be_and_only_then(spark, damaged):
    directory, _ = damaged
    reader = spark.read.format("kseg").option("corrupt", "column")
    assert reader.option("columns", "offset").load(str(directory)).columns == ["offset", "_corrupt"]
    assert reader.option("columns", "_corrupt,offset").load(str(directory)).columns == ["_corrupt", "offset"]
    with pytest.raises(PySparkException, match="must have the column _corrupt"):
        spark.read.format("kseg").option("corrupt", "column").schema("offset long").load(str(directory)).collect()
    with pytest.raises(PySparkException, match="unknown column '_corrupt'"):
        spark.read.format("kseg").option("columns", "_corrupt").load(str(directory)).collect()
    with pytest.raises(PySparkException, match="which is for records"):
        spark.read.format("kseg").option("corrupt", "skip").option("view", "batches").load(str(directory)).collect()


@pytest.mark.parametrize("corrupt", ["skip", "column"])
def test_a_stream_goes_on_behind_damage(spark, damaged, tmp_path, corrupt):
    directory, lost = damaged
    stream = spark.readStream.format("kseg").option("startingOffsets", "earliest").option("corrupt", corrupt)
    stream = stream.option("maxOffsetsPerTrigger", 2500).load(str(directory))
    columns = ["offset", "_corrupt IS NOT NULL AS bad"] if corrupt == "column" else ["offset", "false AS bad"]
    query = stream.selectExpr(*columns).writeStream.format("memory").queryName(f"damaged_{corrupt}")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.table(f"damaged_{corrupt}").collect()
    assert sorted(row.offset for row in rows if not row.bad) == sorted({*range(9000)} - lost)
    assert sum(row.bad for row in rows) == (2 if corrupt == "column" else 0)
    spark.catalog.dropTempView(f"damaged_{corrupt}")


def vanish(file):
    file.unlink()


def replace(file):
    """As a cleaner does: another file under the same name."""
    shutil.copy(file, file.with_suffix(".cleaned"))
    file.with_suffix(".cleaned").replace(file)


def rewrite(file):
    """Other first bytes in the same file, as of a store that gives an inode again."""
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "message"), [(vanish, "vanished"), (replace, "was replaced"), (rewrite, "was replaced")]
)
def test_files_that_change_after_planning_say_to_load_again(spark, tmp_path, change, message):
    directory = shutil.copytree(GOLDEN / NAME, tmp_path / NAME)
    planned = frames(spark, directory)
    assert planned[0].rdd.getNumPartitions() > 1  # Spark plans now, and keeps the plan
    change(sorted(directory.glob("*.log"))[1])
    for frame in planned:
        with pytest.raises(PySparkException, match=f"{message} since the read was planned; plan the read again"):
            frame.collect()


def test_what_is_withheld_is_said_once_in_batch_and_stream(spark, tmp_path, caplog):
    LogBuilder(tmp_path).batch(5).batch(5).write()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    assert kseg.scan(spark, tmp_path).count() == 6
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "4 offsets behind the high watermark are not read, in 1 partitions: orders-0"
    ]
    caplog.clear()
    reader = KsegDataSource({"path": str(tmp_path), "startingOffsets": "earliest"}).streamReader(
        record_schema(SourceOptions())
    )
    start = reader.initialOffset()
    for _ in range(3):
        reader.latestOffset(start, ReadAllAvailable())
    assert len([record for record in caplog.records if "4 offsets behind" in record.message]) == 1
    caplog.clear()
    assert kseg.scan(spark, tmp_path, readPastHighWatermark=True).count() == 10
    assert not caplog.records
