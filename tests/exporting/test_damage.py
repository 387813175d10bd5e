"""Exports of damaged logs: what is sound is exported, and what was passed over is told wherever it is asked for."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

import kseg
from tests.builders import LogBuilder
from tests.exporting.lake import append, data_files, make_log, manifests, offsets, rows

LOST = range(5, 10)


@pytest.fixture
def logs(tmp_path):
    """Topic `a` is sound; of `b` the second of three batches is damaged."""
    folder = make_log(tmp_path / "logs")
    LogBuilder(folder, "b").segment().batch(5).batch(5).corrupt(byte=80).batch(5).write()
    return folder


def check(report, logs):
    (damage,) = report.damages
    assert (damage.path, damage.start, damage.end) == (str(logs / "b-0" / f"{0:020d}.log"), 5, 10)
    assert (report.damaged_bytes, report.damaged_offsets) == (damage.size, 5)
    assert report.rows == 40
    assert {(p.topic, p.rows) for p in report.partitions} == {("a", 30), ("b", 10)}
    assert f"damaged: {damage}" in str(report)
    assert "passed over 1 damaged places" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["damages"] == [damage.to_dict()]


@pytest.mark.parametrize("task_bytes", [100, 1 << 20])
def test_skip_exports_what_is_sound_and_counts_the_rest(tmp_path, logs, task_bytes):
    target = tmp_path / "lake"
    report = kseg.export(None, logs, target, corrupt="skip", maxBytesPerTask=task_bytes)
    check(report, logs)
    wanted = [("a", 0, i) for i in range(30)] + [("b", 0, i) for i in range(15) if i not in LOST]
    assert offsets(target) == wanted
    assert manifests(target)[0]["damages"] == [damage.to_dict() for damage in report.damages]
    assert pq.ParquetFile(target / data_files(target)[0]).schema_arrow.names[-1] == "timestampType"


@pytest.mark.parametrize("task_bytes", [100, 1 << 20])
def test_column_gives_each_place_as_a_row(tmp_path, logs, task_bytes):
    target = tmp_path / "lake"
    report = kseg.export(None, logs, target, corrupt="column", maxBytesPerTask=task_bytes)
    check(report, logs)
    found = rows(target)
    (place,) = [row for row in found if row["_corrupt"] is not None]
    assert (place["topic"], place["day"], place["partition"], place["offset"]) == (
        "b", "__HIVE_DEFAULT_PARTITION__", 0, 5,
    )  # fmt: skip
    (damage,) = report.damages
    assert place["_corrupt"] == {
        "file": damage.path, "position": damage.position, "size": damage.size, "startOffset": 5, "endOffset": 10,
        "reason": damage.reason,
    }  # fmt: skip
    assert place["key"] is place["value"] is place["timestamp"] is None
    assert len(found) == 41


@pytest.mark.parametrize("columns", [["offset"], ["_corrupt", "offset"], ["value"]])
def test_the_column_stands_where_it_is_named_or_last(tmp_path, logs, columns):
    target = tmp_path / "lake"
    report = kseg.export(None, logs, target, corrupt="column", columns=columns)
    assert report.rows == 40
    wanted = columns if "_corrupt" in columns else [*columns, "_corrupt"]
    for name in data_files(target):
        assert pq.ParquetFile(target / name).schema_arrow.names == wanted
    assert sum(row["_corrupt"] is not None for row in rows(target)) == 1


def test_damage_is_told_by_the_run_that_met_it(tmp_path, logs):
    target = tmp_path / "lake"
    kseg.export(None, logs, target, corrupt="skip")
    append(logs, count=2)
    second = kseg.export(None, logs, target)  # what is new is sound
    assert (second.rows, second.damages) == (2, ())


def test_nothing_sound_makes_no_files(tmp_path):
    logs, target = tmp_path / "logs", tmp_path / "lake"
    LogBuilder(logs, "b").segment().batch(5).corrupt(byte=80).segment().batch(5).corrupt(byte=80).write()
    report = kseg.export(None, logs, target, corrupt="skip")
    assert (report.rows, report.files, len(report.damages)) == (0, 0, 2)
    assert data_files(target) == []
