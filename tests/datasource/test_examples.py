"""The programs in examples/ run, on golden data; test_docs.py has that of duplicates."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import kseg
from tests.golden.manifest import FOLDER

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
DATA = str(FOLDER / "before")


def main_of(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def test_every_example_has_a_test():
    tested = {"audit_duplicates", "backfill_to_parquet", "consumer_lag", "replay"}
    assert {file.stem for file in EXAMPLES.glob("*.py")} == tested


def test_replay_prints_or_writes_a_range(spark, tmp_path, capfd):
    # the first record of `multi-segment` is of 22:13:20, and there is one each second
    arguments = (DATA, "multi-segment", "2023-11-14T22:30:00", "2023-11-14T22:30:40+00:00")
    assert main_of("replay")(*arguments, str(tmp_path / "out")) == 0
    assert "40 records of multi-segment" in capfd.readouterr().out
    rows = spark.read.json(str(tmp_path / "out")).orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(1000, 1040))
    assert main_of("replay")(*arguments) == 0
    assert "|        0|  1000|2023-11-14 22:30:00|" in capfd.readouterr().out


def test_replay_into_a_broker(spark_with_kafka, broker, capfd):
    broker.create_topic("replayed")
    arguments = (DATA, "multi-segment", "2023-11-14T22:30:00", "2023-11-14T22:30:40")
    assert main_of("replay")(*arguments, f"kafka://{broker.address}/replayed") == 0
    wanted = [row for batch in kseg.open_log(f"{DATA}/multi-segment-0").read(1000, 1040) for row in batch.to_pylist()]
    assert [(row.key, row.value) for row in broker.consume("replayed")] == [
        (row["key"], row["value"]) for row in wanted
    ]


def test_backfill_adds_what_is_new(spark, tmp_path, capfd):
    for name in ("plain-0", "tx-0", "tx-1"):
        shutil.copytree(FOLDER / "before" / name, tmp_path / "data" / name)
    places = (str(tmp_path / "data"), str(tmp_path / "lake"), str(tmp_path / "checkpoint"), "plain", "tx")
    backfill = main_of("backfill_to_parquet")
    assert backfill(*places) == 0
    logs = list(kseg.open_dir(tmp_path / "data"))
    expected = sum(batch.num_rows for log in logs for batch in log.read(isolation="read_committed"))
    assert f"{expected} records added" in capfd.readouterr().out
    with kseg.append_to(tmp_path / "data" / "plain-0") as writer:
        writer.append(pa.table({"value": [b"new"], "timestamp": [1_700_000_000_000]}))
    assert backfill(*places) == 0
    assert "1 records added" in capfd.readouterr().out
    frame = spark.read.parquet(str(tmp_path / "lake"))
    assert frame.count() == frame.select("topic", "partition", "offset").distinct().count() == expected + 1
    assert ds.dataset(tmp_path / "lake", partitioning="hive").count_rows(ds.field("topic") == "plain") == 1483


@pytest.mark.parametrize(("limit", "status"), [("0", 1), ("999", 1), ("1000000", 0)])
def test_lag(spark, capfd, limit, status):
    assert main_of("consumer_lag")(DATA, limit) == status
    assert "g-classic" in capfd.readouterr().out
