"""`kseg.export` on Spark: the same rows as in this process, read back with Spark."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import kseg
from kseg.jobs import export as job
from tests.datasource.test_golden_reads import expected, found
from tests.exporting.lake import append, data_files, make_log, offsets, rows

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.parametrize(
    ("folder", "isolation"),
    [("before", "read_uncommitted"), ("before", "read_committed"), ("cleaned", "read_committed")],
)
def test_golden_topics_read_back_with_spark_are_the_source_s_rows(spark, tmp_path, folder, isolation):
    report = kseg.export(
        spark, GOLDEN / folder, tmp_path / "lake", includeHeaders=True, kafka_isolation_level=isolation,
        maxBytesPerTask=1_000_000,
    )  # fmt: skip
    frame = spark.read.parquet(str(tmp_path / "lake"))
    wanted = expected(folder, committed=isolation == "read_committed", headers=True)
    assert found(frame, headers=True) == wanted
    assert report.rows == len(wanted)
    reader = spark.read.format("kseg").option("includeHeaders", "true").load(str(GOLDEN / folder))
    types = {field.name: field.dataType for field in frame.schema}
    assert all(types[field.name] == field.dataType for field in reader.schema if field.name != "headers")
    assert types["headers"].simpleString() == reader.schema["headers"].dataType.simpleString()
    assert types["day"].simpleString() == "date"


def test_here_and_on_spark_the_rows_are_the_same(spark, tmp_path):
    options = {"topics": ["tx", "multi-segment"], "by": "hour", "maxBytesPerTask": 400_000}
    on_spark = kseg.export(spark, GOLDEN / "before", tmp_path / "spark", **options)
    here = kseg.export(None, GOLDEN / "before", tmp_path / "here", **options)
    assert rows(tmp_path / "spark") == rows(tmp_path / "here")
    assert on_spark.partitions == here.partitions
    assert on_spark.files == here.files


def test_runs_here_and_on_spark_go_on_from_each_other(spark, tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    assert kseg.export(spark, logs, target).rows == 30
    append(logs, count=4)
    assert kseg.export(None, logs, target).rows == 4
    append(logs, count=2)
    assert kseg.export(spark, logs, target).rows == 2
    assert offsets(target) == [("a", 0, i) for i in range(36)]
    assert spark.read.parquet(str(target)).count() == 36


def test_an_error_of_a_task_is_the_error_of_the_call(spark, tmp_path):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    log = logs / "a-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-5] ^= 0xFF
    data[70] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(kseg.ChecksumError) as caught:
        kseg.export(spark, logs, target)
    assert caught.value.path == str(log)
    assert pickle.loads(pickle.dumps(caught.value)).path == str(log)
    assert data_files(target) == []


def test_the_job_runs_on_the_session_that_is_there(spark, tmp_path, capsysbinary):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    assert job.main([str(logs), str(target), "--json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["rows"] == 30
    assert offsets(target) == [("a", 0, i) for i in range(30)]
    assert spark.range(3).count() == 3, "it goes on"
