"""Decodes bytes with `RecordDecoder` as the log layer does, and gives the twins' records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from kseg.format.arrow import MAX_BATCH_BYTES, RecordDecoder
from kseg.native import headers, memory
from kseg.native import table as t
from kseg.schema import select_columns
from tests.reference.record import Record
from tests.reference.rows import records_of

EVERYTHING = (-(1 << 63), (1 << 63) - 1)


def table_for(data: bytes, file_position: int = 0) -> t.Table:
    """The batch table of bytes that are whole batches."""
    table = t.new_table(256)
    rows, stopped, status = headers.fill_headers(memory.as_array(data), 0, len(data), file_position, table, 0)
    assert (stopped, status) == (len(data), headers.WALKED)
    return np.ascontiguousarray(table[:, :rows])


def stream(
    data: bytes,
    columns: Sequence[str] | None = None,
    *,
    span: tuple[int, int] = EVERYTHING,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    skip: Sequence[int] = (),
    file_position: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Decode all of `data`, which lies at `file_position` of its file, batch by batch."""
    decoder = RecordDecoder(select_columns(columns), topic="orders", partition=3, max_batch_bytes=max_batch_bytes)
    table = table_for(data, file_position)
    skipped = np.zeros(table.shape[1], np.bool_)
    skipped[list(skip)] = True
    return decoder.decode(memory.as_array(data), file_position, table, range(table.shape[1]), skipped, *span)


def decoded(data: bytes, columns: Sequence[str] | None = None, **options: object) -> list[pa.RecordBatch]:
    """Decode all of `data` at once."""
    return list(stream(data, columns, **options))  # type: ignore[arg-type]


def decode(data: bytes, **options: object) -> list[Record]:
    """Decode all columns into records."""
    return records_of(decoded(data, **options))
