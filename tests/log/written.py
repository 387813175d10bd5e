"""Rows to write, a clock to write them by, and what a written directory must hold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kseg.index.offset import OffsetIndex
from kseg.index.time import TimeIndex
from kseg.native import table as t
from tests.index.twins import index_twin, table_of

START = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def clock():
    """A time near that of the records, so that no producer expires and no segment is old."""
    return START / 1000 + 60


def numbered(count, start=0, **columns):
    """Rows that differ from each other, without offsets."""
    numbers = range(start, start + count)
    return pa.table(
        {
            "key": [b"k%d" % i if i % 5 else None for i in numbers],
            "value": [b"value %d" % i * (i % 4) if i % 7 else None for i in numbers],
            "timestamp": [START + i for i in numbers],
        }
        | columns
    )


def names(directory, pattern="*"):
    return sorted(path.name for path in Path(directory).glob(pattern))


def bases(directory):
    return [int(name[:20]) for name in names(directory, "*.log")]


def check_indexes(segment, interval):
    """The index files hold what Kafka's rule says of the batches in the segment."""
    table, rows = table_of(segment.path)
    columns = table[[t.LAST_OFFSET, t.MAX_TIMESTAMP, t.SIZE], :rows].T.tolist()
    offsets, times = index_twin(columns, segment.base_offset, interval)
    sidecar = Path(segment.path).with_suffix
    assert list(OffsetIndex.parse(sidecar(".index").read_bytes(), segment.base_offset)) == offsets
    assert list(TimeIndex.parse(sidecar(".timeindex").read_bytes(), segment.base_offset)) == times
