"""Arrow input in pieces of a good size for the encoder.

Large tables are cut, so that memory stays bounded and buffers stay warm; small record batches are joined, so that they
do not end up as small Kafka batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kseg.errors import LogError, OptionError

PIECE_BYTES: Final = 4 << 20
PIECE_ROWS: Final = 1 << 16

ArrowData: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch | pa.Table]"
_WANTED: Final = "a table, a record batch or an iterable of record batches is wanted"


def iter_pieces(data: ArrowData, *, batch_bytes: int, batch_records: int | None) -> Iterator[pa.RecordBatch]:
    """Cut or join the rows of `data` into record batches; each but the last of a schema is full.

    Args:
        batch_bytes: Of a Kafka batch; a piece holds several.
        batch_records: Of a Kafka batch; a piece is a multiple of it, so that all but the last are full.
    """
    size = max(PIECE_BYTES, 4 * batch_bytes)
    unit = batch_records or 1
    most = max(PIECE_ROWS // unit, 1) * unit
    held: list[pa.RecordBatch] = []
    rows = held_bytes = 0
    for batch in _batches(data):
        if held and not held[0].schema.equals(batch.schema):
            yield from _cut(held, rows, unit, most, size)
            held, rows, held_bytes = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        held_bytes += batch.nbytes
        if rows >= most or held_bytes >= size:
            whole = rows - rows % unit
            yield from _cut(held, whole, unit, most, size)
            held = _rest(held, whole)
            rows -= whole
            held_bytes = sum(part.nbytes for part in held)
    yield from _cut(held, rows, unit, most, size)


def check_first_offset(piece: pa.RecordBatch, end_offset: int, path: Path) -> None:
    """Refuse rows that begin below the log's end; what else is wrong with their offsets the encoder tells.

    Raises:
        LogError: They do.
    """
    column = piece.column("offset") if "offset" in piece.schema.names else None
    if column is None or not pa.types.is_integer(column.type):
        return
    first = column[0].as_py()
    if first is not None and 0 <= first < end_offset:
        raise LogError(f"offset {first} is below the log's end, {end_offset}", path=str(path), offset=first)


def _batches(data: ArrowData) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch | pa.Table):
        data = (data,)
    try:
        parts: Iterator[Any] = iter(data)
    except TypeError:
        raise OptionError(f"{_WANTED}, got {type(data).__name__}") from None
    for part in parts:
        if isinstance(part, pa.RecordBatch | pa.Table) and not part.num_columns:
            raise OptionError("there is no column in what is appended")
        if isinstance(part, pa.RecordBatch):
            yield part
        elif isinstance(part, pa.Table):
            yield from part.to_batches()
        else:
            raise OptionError(f"{_WANTED}, got an iterable of {type(part).__name__}")


def _cut(held: list[pa.RecordBatch], rows: int, unit: int, most: int, size: int) -> Iterator[pa.RecordBatch]:
    """The first `rows` rows in pieces."""
    if not rows:
        return
    table = pa.Table.from_batches(held).slice(0, rows)
    step = max(min(rows * size // max(table.nbytes, 1) // unit * unit, most), unit)
    for start in range(0, rows, step):
        yield from _halves(table.slice(start, step), unit, size)


def _halves(table: pa.Table, unit: int, size: int) -> Iterator[pa.RecordBatch]:
    """Halve what is still too large, since some rows are larger than others.

    Not where both halves are about as large as the whole: then the bytes are those of a dictionary that all rows share.
    """
    half = table.num_rows // 2 // unit * unit
    if table.nbytes > 2 * size and half:
        parts = table.slice(0, half), table.slice(half)
        if sum(part.nbytes for part in parts) < 1.5 * table.nbytes:
            for part in parts:
                yield from _halves(part, unit, size)
            return
    yield from table.combine_chunks().to_batches()


def _rest(held: list[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    """What is left behind the first `rows` rows."""
    rest = []
    for batch in held:
        skipped = min(rows, batch.num_rows)
        rows -= skipped
        if skipped < batch.num_rows:
            rest.append(batch.slice(skipped))
    return rest
