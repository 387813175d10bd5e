"""Tiers through `format("kseg")`, `kseg.scan`, views and streams."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import kseg
from kseg.datasource.source import KsegDataSource
from kseg.datasource.spark_schema import record_schema
from kseg.options import SourceOptions
from kseg.tiering.chunks import Transform
from tests.tiering.conftest import TREES
from tests.tiering.tiers import delete_local, upload, write_log

GOLDEN = Path(__file__).parent.parent / "golden"
UNDECIDED = 60  # records at the end of what was copied of tiered-tx, whose transaction ends in no copied segment


@pytest.fixture(scope="module")
def key_option(tmp_path_factory):
    target = tmp_path_factory.mktemp("keys") / "private.pem"
    shutil.copy(GOLDEN / "aiven/encrypted/keys/private.pem", target)
    target.chmod(0o600)
    return f"key1={target}"


def expected(tree, ends=None):
    rows = pq.read_table(next(iter(tree.glob("*.parquet")))).to_pylist()
    return sorted(
        (row["topic"], row["offset"], row["timestamp_ms"], row["key"], row["value"])
        for row in rows
        if row["committed"] and (ends is None or row["offset"] < ends[row["topic"]])
    )


def found(frame):
    rows = frame.selectExpr("topic", "offset", "unix_millis(timestamp) ms", "key", "value").collect()
    return sorted((row.topic, row.offset, row.ms, _bytes(row.key), _bytes(row.value)) for row in rows)


def _bytes(value):
    return None if value is None else bytes(value)


@pytest.mark.parametrize("name", TREES)
def test_local_and_remote_are_one_log(spark, name, key_option):
    tree = GOLDEN / name
    reader = spark.read.format("kseg").option("remote", str(tree / "remote")).option("remoteKeys", key_option)
    frame = reader.option("kafka.isolation.level", "read_committed").load(str(tree / "local"))
    assert found(frame) == expected(tree)


@pytest.mark.parametrize("name", TREES)
def test_scan_reads_both_tiers(spark, name, key_option):
    tree = GOLDEN / name
    frame = kseg.scan(
        spark,
        tree / "local",
        remote=tree / "remote",
        remoteKeys=key_option,
        kafka_isolation_level="read_committed",
        maxBytesPerTask=400_000,
    )
    assert frame.rdd.getNumPartitions() > 3
    assert found(frame) == expected(tree)


@pytest.mark.parametrize("name", TREES)
def test_a_bucket_alone(spark, name, key_option):
    tree = GOLDEN / name
    logs = kseg.open_dir(tree / "local")
    ends = {topic: logs[topic, 0].segments[0].base_offset for topic in ("tiered", "tiered-tx")}
    ends["tiered-tx"] -= UNDECIDED
    options = {"remoteKeys": key_option, "kafka.isolation.level": "read_committed"}
    by_path = spark.read.format("kseg").options(**options).load(str(tree / "remote"))
    by_option = spark.read.format("kseg").options(**options).option("remote", str(tree / "remote")).load()
    assert found(by_path) == found(by_option) == expected(tree, ends)


def test_the_view_of_segments_shows_tiers(spark):
    tree = GOLDEN / "aiven/compressed"
    reader = spark.read.format("kseg").option("view", "segments").option("remote", str(tree / "remote"))
    rows = reader.option("subscribe", "tiered").load(str(tree / "local")).orderBy("baseOffset").collect()
    assert [row.tier for row in rows] == ["remote"] * 4 + ["local"]
    assert rows[0].path.endswith("tiered-hugE6-OcRgmeEltD4czfOw/0/00000000000000000000-XUWiTZR4S7KCD7O1gE4fyA.log")


def test_the_view_of_batches_reads_tiers(spark):
    tree = GOLDEN / "aiven/compressed"
    reader = spark.read.format("kseg").option("view", "batches").option("remote", str(tree / "remote"))
    rows = reader.option("subscribe", "tiered-tx").load(str(tree / "local")).orderBy("baseOffset").collect()
    log = kseg.open_log(tree / "local/tiered-tx-0", remote=tree / "remote")
    assert [row.baseOffset for row in rows] == [header.base_offset for header in log.batches()]


def test_a_key_that_is_missing_or_no_file_is_said_without_showing_it(spark):
    tree = GOLDEN / "aiven/encrypted"
    reader = spark.read.format("kseg").option("remote", str(tree / "remote"))
    with pytest.raises(PySparkException, match="encrypted with key 'key1'; keys given: none"):
        reader.load(str(tree / "local")).count()
    with pytest.raises(PySparkException, match="files, never keys themselves") as caught:
        reader.option("remoteKeys", "key1=-----BEGIN PRIVATE KEY-----topsecret").load(str(tree / "local")).count()
    assert "topsecret" not in str(caught.value)


def reader_of(folder, **options):
    source = KsegDataSource({"path": str(folder), **{name: str(value) for name, value in options.items()}})
    return source.streamReader(record_schema(SourceOptions(columns=("offset", "value"))))


def test_a_batch_whose_segments_are_offloaded_after_it_was_planned_is_read_from_the_tier(tmp_path):
    partition = write_log(tmp_path / "data")
    (tmp_path / "tier").mkdir()
    reader = reader_of(tmp_path / "data", remote=tmp_path / "tier")
    parts = reader.partitions({"orders": {"0": 0}}, {"orders": {"0": 350}})
    upload(partition, tmp_path / "tier", transform=Transform(compression=True))
    delete_local(partition, below=300)
    batches = [batch for part in parts for batch in reader.read(part)]
    assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == list(range(350))
    again = [batch for part in reader.partitions({"orders": {"0": 0}}, {"orders": {"0": 350}})
             for batch in reader.read(part)]  # fmt: skip
    assert [offset for batch in again for offset in batch.column(0).to_pylist()] == list(range(350))


def test_a_stream_goes_on_over_segments_that_are_offloaded_between_its_runs(spark, tmp_path):
    partition = write_log(tmp_path / "data")
    (tmp_path / "tier").mkdir()

    def run(most):
        seen = []
        query = (
            spark.readStream.format("kseg")
            .option("remote", str(tmp_path / "tier"))
            .option("maxOffsetsPerTrigger", str(most))
            .option("startingOffsets", "earliest")
            .load(str(tmp_path / "data"))
            .writeStream.foreachBatch(lambda frame, _: seen.extend(row.offset for row in frame.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        return sorted(seen)

    assert run(150) == list(range(400))
    write_log(tmp_path / "data", segments=3)
    upload(partition, tmp_path / "tier")
    delete_local(partition, below=600)
    assert [s.tier for s in kseg.open_log(partition, remote=tmp_path / "tier").segments].count("local") == 1
    assert run(150) == list(range(400, 700))
