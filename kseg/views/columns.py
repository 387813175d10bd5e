"""Arrow types that the views share, and rows of small views as record batches.

Timestamps are microseconds, as Spark keeps them. Kafka's -1 for "none", and what has no place in 64 bits of
microseconds, become null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
ROWS_PER_BATCH: Final = 8192
_MAX_MS: Final = (2**63 - 1) // 1000


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list type with the name that Spark gives its elements."""
    return pa.list_(pa.field("element", kind))


INT_LIST: Final = list_of(pa.int32())
TEXT_LIST: Final = list_of(pa.string())


def to_micros(ms: int | None) -> int | None:
    """Milliseconds as microseconds; None where there is no time, or none that fits."""
    return None if ms is None or not 0 <= ms <= _MAX_MS else ms * 1000


def micros_array(ms: NDArray[np.int64], hidden: NDArray[np.bool_] | None = None) -> pa.Array:
    """A column of times; rows of `hidden` are null."""
    absent = (ms < 0) | (ms > _MAX_MS)
    if hidden is not None:
        absent |= hidden
    return pa.array(np.where(absent, 0, ms) * 1000, pa.int64(), mask=absent).cast(TIMESTAMP)


def to_batches(schema: pa.Schema, rows: Iterable[Mapping[str, object]]) -> Iterator[pa.RecordBatch]:
    """Rows as record batches; for views whose rows are few. Columns that a row does not name are null."""
    left = iter(rows)
    while part := list(islice(left, ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist(part, schema=schema)
