"""Records read straight from a file by one kernel: what a log holds, with the JIT and without."""

from __future__ import annotations

import pyarrow as pa
import pytest

import kseg
from kseg.format.arrow import RecordDecoder
from tests.builders import LogBuilder, sample

COLUMNS = ["offset", "timestamp", "timestampType", "key", "value"]


def rows_of(builder: LogBuilder) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in builder.records]


def read(builder: LogBuilder) -> list[tuple[object, ...]]:
    table = pa.Table.from_batches(kseg.open_log(builder.write()).read(columns=COLUMNS))
    stamps = table["timestamp"].cast("int64").to_pylist()
    unit = 1000 if table.schema.field("timestamp").type.unit == "us" else 1
    columns = [table[name].to_pylist() for name in ("offset", "timestampType", "key", "value")]
    found = zip(columns[0], stamps, *columns[1:], strict=True)
    return [(offset, stamp // unit, kind, key, value) for offset, stamp, kind, key, value in found]


@pytest.fixture
def no_walk(monkeypatch):
    monkeypatch.setattr(RecordDecoder, "decode", lambda *args: pytest.fail("left to the walk"))


@pytest.mark.usefixtures("no_walk")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_those_of_the_log(codec, tmp_path):
    builder = LogBuilder(tmp_path).batch(7, codec).append_time(3, codec).empty(2).skip(4).batch(30, codec)
    builder.transaction(3, producer_id=4, codec=codec).control("abort", producer_id=4).tombstone(b"key")
    builder.legacy(3, magic=1, codec=codec if codec != "zstd" else "none").batch(2, codec)
    assert read(builder) == rows_of(builder)


@pytest.mark.usefixtures("no_walk")
def test_batches_lie_across_the_ends_of_steps(tmp_path):
    builder = LogBuilder(tmp_path)
    for i in range(12):
        made = builder.make(3, content=lambda offset: (sample(offset)[0], b"%d" % offset * 9000, ()))
        builder.batch(made, "lz4" if i % 4 == 3 else "none")
    assert read(builder) == rows_of(builder)
