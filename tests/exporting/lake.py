"""What an export wrote, as rows; and logs to export."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq

import kseg

DAY = 86_400_000
NEW_YEAR = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def data_files(target):
    """The files that a reader of Parquet sees, by their names in the target."""
    found = (path.relative_to(target) for path in target.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not re.search(r"(^|/)[_.]", str(path)))


def rows(target):
    """Every row, with what its directories say, by topic, partition and offset."""
    found = []
    for name in data_files(target):
        parts = dict(part.split("=", 1) for part in name.split("/")[:-1])
        table = pq.ParquetFile(target / name).read()
        times = table.column("timestamp").cast(pa.int64()).to_pylist() if "timestamp" in table.column_names else None
        if times is not None:
            table = table.drop_columns("timestamp")
        for i, row in enumerate(table.to_pylist()):
            found.append({**parts, **row, **({} if times is None else {"timestamp": times[i]})})
    return sorted(found, key=lambda row: (row["topic"], row.get("partition", 0), row.get("offset", 0)))


def offsets(target):
    return [(row["topic"], row["partition"], row["offset"]) for row in rows(target)]


def manifests(target):
    return [json.loads(path.read_bytes()) for path in sorted((target / "_kseg" / "runs").iterdir())]


def records(count, *, start=NEW_YEAR, step=1000, first=0):
    numbers = range(first, first + count)
    return pa.table(
        {
            "key": [b"k%d" % (i % 7) if i % 5 else None for i in numbers],
            "value": [b"value %d" % i if i % 11 else None for i in numbers],
            "timestamp": pa.array([start + i * step for i in numbers], pa.int64()),
        }
    )


def make_log(folder, name="a-0", count=30, **options):
    with kseg.create_log(folder / name) as writer:
        writer.append(records(count, **options), batch_records=10)
    return folder


def append(folder, name="a-0", count=30, **options):
    with kseg.append_to(folder / name) as writer:
        writer.append(records(count, **options), batch_records=10)
