"""Batches to Arrow: decompress, decode and gather whole runs of batches with a handful of kernel calls.

A `RecordDecoder` owns the buffers that are reused from run to run (arena, places of payloads). What it gives away lives
in `RowBuffers`, which nobody overwrites. Runs are small, so that bytes are in the CPU's cache from when they are read
or decompressed until they are copied; several of them go into one record batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.format.batch import payload_error, record_error, size_error
from kseg.format.codec import BlockFunctions
from kseg.format.row_buffers import NOTHING, Payloads, RowBuffers, fixed_column
from kseg.native import codecs, records
from kseg.native import table as t
from kseg.native.gather import fill_offsets
from kseg.native.records import PIECE_BYTES
from kseg.native.rows import MIXED_TYPES, measure_rows

MAX_BATCH_BYTES = 128 << 20
BATCH_BYTES = 4 << 20
FIRST_BATCH_BYTES = 128 << 10
ARENA_BYTES = 1 << 20
HEADER_ONLY = frozenset({"topic", "partition", "offset"})
KEPT_SLICES = 64
MAX_FIELD_BYTES = 2**31 - 1  # of a column in one record batch: its offsets are int32
_BATCH_COLUMNS = {"leaderEpoch": t.LEADER_EPOCH, "producerId": t.PRODUCER_ID, "producerEpoch": t.PRODUCER_EPOCH}
BY_PIECE = frozenset({"headers", "timestampType", "sequence", *_BATCH_COLUMNS})
KEY_SLACK, FEWEST_KEY_BYTES = 1.25, 4096  # room for keys, from their share of the bytes before
MAX_ROWS = 1 << 18  # of a record batch: a bomb of tiny records comes in pieces


@dataclass(slots=True)
class _Pending:
    """A record batch that is being filled."""

    columns: RowBuffers
    stamps: int
    """The timestamp type of all records, or MIXED_TYPES."""
    size: int = 0
    """Bytes of the payloads that are in it."""
    counts: list[int] = field(default_factory=list)
    """Records of each piece."""
    parts: dict[str, list[pa.Array | None]] = field(default_factory=dict)
    """Columns that are made piece by piece; None where all is null, or needs no column."""


class RecordDecoder:
    """Turns rows of a batch table into record batches of one schema.

    Args:
        schema: The wanted columns (`kseg.schema.select_columns`).
        max_batch_bytes: The largest batch that is decoded, decompressed or not; a larger one is an error.
        batch_bytes: About how many bytes of payloads, decompressed, go into one record batch.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        topic: str,
        partition: int,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.schema = schema
        self._kinds: dict[str, pa.DataType] = {field.name: field.type for field in schema}
        self._of_topic: dict[str, Any] = {"topic": topic, "partition": partition}
        self._constants: dict[tuple[str, Any], pa.Array] = {}
        self._slices: dict[tuple[str, Any, int], pa.Array] = {}
        self._limit = max_batch_bytes
        self._functions = BlockFunctions()
        self._arena = np.empty(min(ARENA_BYTES, batch_bytes, max_batch_bytes), np.uint8)
        self._places = np.empty((3, 0), np.int64)
        self._headers_suffice = HEADER_ONLY.issuperset(schema.names)
        self._batch_bytes = batch_bytes
        self._wanted_bytes = min(FIRST_BATCH_BYTES, batch_bytes)  # of the next batch: the first ones come soon
        self._key_share = 1.0  # of the payloads' bytes, at most
        self._pending: _Pending | None = None
        self._by_piece = [name for name in schema.names if name in BY_PIECE]

    def decode(
        self,
        data: t.Bytes,
        file_position: int,
        table: t.Table,
        rows: range,
        skip: NDArray[np.bool_],
        start: int,
        end: int,
    ) -> Iterator[pa.RecordBatch]:
        """Decode the records of `rows` whose offsets are in `[start, end)`; rows with `skip[row]` are passed over.

        `data` holds the rows' bytes and begins at `file_position` of its file. Damage raises a `FormatError` after
        everything before it was given.
        """
        yield from self.add(data, file_position, table, rows, skip, start, end, is_last=True)

    def add(
        self,
        data: t.Bytes,
        file_position: int,
        table: t.Table,
        rows: range,
        skip: NDArray[np.bool_],
        start: int,
        end: int,
        *,
        is_last: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The same where more follows: records may be kept for the next batch, until `finish`, but not past damage."""
        if not self._headers_suffice:
            yield from self._decode_run(data, file_position, table, rows, skip, start, end, is_last=is_last)
            return
        for run, dense in _runs_of_dense(table, rows, self._limit):
            if dense:
                yield from self._offsets_only(table, run, skip, start, end)
            else:
                yield from self._decode_run(data, file_position, table, run, skip, start, end, is_last=True)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give what was kept."""
        pending, self._pending = self._pending, None
        if pending is None or not pending.columns.filled:
            return
        if pending.size:
            self._key_share = KEY_SLACK * pending.columns.key_bytes / pending.size
        self._wanted_bytes = min(2 * self._wanted_bytes, self._batch_bytes)
        arrays = [self._column(name, pending) for name in self._kinds]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _decode_run(
        self,
        data: t.Bytes,
        file_position: int,
        table: t.Table,
        rows: range,
        skip: NDArray[np.bool_],
        start: int,
        end: int,
        *,
        is_last: bool,
    ) -> Iterator[pa.RecordBatch]:
        if self._places.shape[1] < rows.stop:
            self._places = np.empty((3, rows.stop + rows.stop // 4), np.int64)
        starts, ends, kept = self._places
        row = rows.start
        while row < rows.stop:
            stop, status = codecs.fill_payloads(
                data, file_position, table, row, rows.stop, skip, self._arena, self._limit,
                self._functions.addresses, starts, ends,
            )  # fmt: skip
            if status == codecs.ARENA_FULL and stop == row:
                if self._arena.size >= self._limit:
                    yield from self.finish()
                    raise size_error(table, row, self._limit)
                size = min(2 * self._arena.size, self._limit)
                self._arena = NOTHING  # let the old one go before the new one comes
                self._arena = np.empty(size, np.uint8)
                continue
            if stop > row:
                payloads = Payloads(data, self._arena, table, skip, starts, ends, kept)
                behind = (rows.stop - stop) / (stop - row) if is_last else None
                yield from self._decode_rows(payloads, range(row, stop), start, end, behind)
            if status < 0:  # made where it is raised: held by this frame it would be a cycle with all our buffers
                yield from self.finish()
                raise payload_error(table, stop, status)
            row = stop
        if is_last:
            yield from self.finish()

    def _decode_rows(
        self, payloads: Payloads, rows: range, start: int, end: int, behind: float | None
    ) -> Iterator[pa.RecordBatch]:
        """Decode rows whose payloads are at hand, in as many pieces as their number of records asks for.

        `behind` tells how many times as much will still come, None where nobody knows.
        """
        table = payloads.table
        count, size, stamps = measure_rows(table, rows.start, rows.stop, payloads.skip, payloads.starts, payloads.ends)
        if self._pending is not None and self._pending.stamps != stamps:
            yield from self.finish()
        wanted = self._wanted_bytes if behind is None else min(int(size * (1 + behind)), self._batch_bytes)
        row, status, limit = rows.start, records.PIECE_FULL, PIECE_BYTES
        before: RowBuffers | None = None
        while status == records.PIECE_FULL:
            room = min(max(size, wanted + wanted // 8), limit)
            pending = self._pending or _Pending(self._new_columns(count, size, room, before), int(stamps))
            self._pending = pending
            columns, first = pending.columns, pending.columns.filled
            stop, status = columns.fill(payloads, row, rows.stop, start, end)
            self._take_piece(pending, payloads, range(row, stop + (status == records.PIECE_FULL)), first)
            if status == records.PIECE_FULL:
                # where nothing was filled, one record is larger than a piece should be
                limit = PIECE_BYTES if columns.filled else MAX_FIELD_BYTES
                yield from self.finish()
                before, self._key_share = columns, 1.0
            elif status < 0:
                yield from self.finish()
                raise record_error(table, stop, status)
            row = stop
        pending.size += size
        if pending.size + size // 2 >= wanted:
            yield from self.finish()

    def _new_columns(self, count: int, size: int, room: int, before: RowBuffers | None) -> RowBuffers:
        """Buffers for `room` bytes of payloads, if all are like those of `count` records in `size` bytes."""
        most = min(int(count * room / max(size, 1)) + 1, MAX_ROWS)
        columns = RowBuffers(self._kinds, most, min(int(self._key_share * room) + FEWEST_KEY_BYTES, room), room)
        if before is not None:
            columns.go_on_from(before)
        return columns

    def _take_piece(self, pending: _Pending, payloads: Payloads, rows: range, first: int) -> None:
        """Make the columns that need the rows, whose bytes are gone when the next ones come."""
        count = pending.columns.filled - first
        if not count:
            return
        pending.counts.append(count)
        table, kept = payloads.table[:, rows.start : rows.stop], payloads.kept[rows.start : rows.stop]
        for name in self._by_piece:
            part: pa.Array | None = None
            if name == "headers":
                part = pending.columns.headers(payloads, first)
            elif name in _BATCH_COLUMNS:
                part = fixed_column(table[_BATCH_COLUMNS[name]].repeat(kept), self._kinds[name])
            elif name == "sequence":
                part = fixed_column(_sequences(table, kept, pending.columns.offsets[first:][:count]), self._kinds[name])
            elif pending.stamps == MIXED_TYPES:
                part = fixed_column(_timestamp_types(table).repeat(kept), self._kinds[name])
            pending.parts.setdefault(name, []).append(part)

    def _offsets_only(
        self, table: t.Table, rows: range, skip: NDArray[np.bool_], start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """Answer from headers alone: these batches hold every offset from their base to their last."""
        counts = table[t.COUNT, rows.start : rows.stop]
        edges = np.flatnonzero(np.diff(np.cumsum(counts) // MAX_ROWS)) + 1  # about MAX_ROWS records in each piece
        for first, last in itertools.pairwise([0, *edges.tolist(), len(rows)]):
            span = slice(rows.start + first, rows.start + last)
            skipped, bases, sizes = skip[span], table[t.BASE_OFFSET, span], table[t.COUNT, span]
            there = np.minimum(bases + sizes, end) - np.maximum(bases, start)
            total = int(np.clip(there, 0, None)[~skipped].sum())
            if total:
                buffer = pa.allocate_buffer(8 * total)
                fill_offsets(bases, sizes, skipped, start, end, np.frombuffer(buffer, np.int64))
                offsets = pa.Array.from_buffers(pa.int64(), total, [None, buffer])
                arrays = [
                    offsets if name == "offset" else self._constant(name, total, self._of_topic[name])
                    for name in self._kinds
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constant(self, name: str, count: int, value: Any = None) -> pa.Array:
        """A column that is the same in every row: made once for the largest batch, and sliced once for each length."""
        found = self._slices.get((name, value, count))
        if found is None:
            made = self._constants.get((name, value))
            if made is None or len(made) < count:
                kind = self._kinds[name]
                made = self._constants[name, value] = pa.repeat(pa.scalar(value, kind), count + count // 4)
            if len(self._slices) >= KEPT_SLICES:
                self._slices.clear()
            found = self._slices[name, value, count] = made.slice(0, count)
        return found

    def _column(self, name: str, pending: _Pending) -> pa.Array:
        count = pending.columns.filled
        if name in ("key", "value", "offset", "timestamp"):
            return pending.columns.array(name)
        if name in self._of_topic:
            return self._constant(name, count, self._of_topic[name])
        if name == "timestampType" and pending.stamps != MIXED_TYPES:
            return self._constant(name, count, pending.stamps)
        parts = pending.parts[name]
        if all(part is None for part in parts):
            return self._constant(name, count)
        filled = [
            part if part is not None else pa.nulls(size, self._kinds[name])
            for part, size in zip(parts, pending.counts, strict=True)
        ]
        return filled[0] if len(filled) == 1 else pa.concat_arrays(filled)


def _runs_of_dense(table: t.Table, rows: range, limit: int) -> Iterator[tuple[range, bool]]:
    """Cut rows into runs that can, and runs that cannot, be answered from headers (compacted or legacy batches).

    A count that no payload of that size, or none below `limit` once decompressed, can hold is not believed.
    """
    span = slice(rows.start, rows.stop)
    deltas = table[t.LAST_OFFSET, span] - table[t.BASE_OFFSET, span]
    counts = table[t.COUNT, span]
    room = np.where(table[t.ATTRIBUTES, span] & t.CODEC_MASK, limit, table[t.SIZE, span] - t.HEADER_SIZE)
    dense = (table[t.MAGIC, span] == 2) & (counts == deltas + 1) & (counts > 0)
    dense &= counts <= room // t.MIN_RECORD_SIZE
    edges = [0, *(np.flatnonzero(dense[1:] != dense[:-1]) + 1).tolist(), len(rows)]
    for first, last in itertools.pairwise(edges):
        if last > first:
            yield range(rows.start + first, rows.start + last), bool(dense[first])


def _timestamp_types(table: t.Table) -> NDArray[np.int64]:
    """Each batch's timestamp type, -1 for magic 0, which has none; inner messages are not asked, as in a consumer."""
    append_time = table[t.ATTRIBUTES] & t.LOG_APPEND_TIME_BIT != 0
    return np.where(table[t.MAGIC] == 0, -1, append_time)


def _sequences(table: t.Table, kept: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """A record's sequence number: the batch's first plus the offset delta, wrapping to 0; -1 without a producer."""
    bases = table[t.BASE_SEQUENCE].repeat(kept)
    sequences = (bases + offsets - table[t.BASE_OFFSET].repeat(kept)) & 0x7FFFFFFF
    return np.where(bases < 0, -1, sequences)
