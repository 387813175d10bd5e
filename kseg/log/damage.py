"""Damaged places of a log: what a reader passed over, as objects and as rows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import pyarrow as pa

from kseg.schema import CORRUPT_COLUMN
from kseg.types import MAX_OFFSET

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that no records could be read from, and the offsets that may be missing for it.

    Attributes:
        path: The file.
        position: Where the bytes begin.
        size: How many there are.
        start: The first offset that may be missing: the one behind the last sound record before.
        end: The first offset that is there again; equal to `start` where none is missing.
        reason: What is wrong with the first of the bytes.
    """

    path: str
    position: int
    size: int
    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}, byte {self.position}: {self.reason}; {self.size} bytes, offsets [{self.start}, {self.end})"
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as a plain mapping."""
        return asdict(self)

    def until(self, end: int) -> Self:
        """The same with the first offset that is there again."""
        return replace(self, end=min(max(end, self.start), MAX_OFFSET))

    def touches(self, start: int, end: int) -> bool:
        """Whether an offset of `[start, end)` may be missing, or the place lies between two of them."""
        return self.start < end and max(self.end, self.start + 1) > start


class Records(Iterator[pa.RecordBatch]):
    """The record batches of a read.

    Attributes:
        damages: What was passed over so far.
        schema: The columns of each batch, known also where a read gives none.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], damages: list[Damage], schema: pa.Schema) -> None:
        self._batches = batches
        self.damages = damages
        self.schema = schema

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Let go of the files, before the end."""
        if (close := getattr(self._batches, "close", None)) is not None:
            close()


def record_fields(schema: pa.Schema) -> pa.Schema:
    """The columns that come from records: all but the one that tells damage."""
    return pa.schema([field for field in schema if field.name != CORRUPT_COLUMN])


def to_rows(items: Iterable[pa.RecordBatch | Damage], schema: pa.Schema, topic: str, partition: int) -> Iterator[Any]:
    """Record batches with the columns of `schema`; where it has the column for damage, each place is a row."""
    names = schema.names
    tells = CORRUPT_COLUMN in names
    for item in items:
        if not isinstance(item, Damage):
            yield _widened(item, schema) if tells else item
        elif tells:
            row = {"topic": topic, "partition": partition, "offset": item.start, CORRUPT_COLUMN: _as_struct(item)}
            known = {name: value for name, value in row.items() if name in names}
            yield pa.RecordBatch.from_pylist([known], schema=schema)


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.nulls(batch.num_rows, field.type) if field.name == CORRUPT_COLUMN else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_struct(damage: Damage) -> dict[str, Any]:
    return {
        "file": damage.path,
        "position": damage.position,
        "size": damage.size,
        "startOffset": damage.start,
        "endOffset": damage.end,
        "reason": damage.reason,
    }


def log_damages(damages: Sequence[Damage], what: str) -> None:
    """Say once what a read has passed over."""
    if not damages:
        return
    size, offsets = sum(damage.size for damage in damages), sum(damage.end - damage.start for damage in damages)
    logger.warning(
        "%s: %d damaged places of %d bytes were passed over, and up to %d offsets in them; the first: %s",
        what, len(damages), size, offsets, damages[0],
    )  # fmt: skip
