"""Batches to Arrow: decompress, decode and gather whole runs of batches with a handful of kernel calls.

A `RecordDecoder` owns the buffers that are reused from run to run (arena, places of payloads). What it gives away lives
in `RowBuffers`, which nobody overwrites.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.format.batch import payload_error, record_error, size_error
from kseg.format.codec import BlockFunctions
from kseg.format.file_span import FileSpan
from kseg.format.row_buffers import NOTHING, Payloads, RowBuffers, fixed_column
from kseg.format.straight import Numbers, StraightReader
from kseg.native import codecs, records
from kseg.native import table as t
from kseg.native.gather import fill_offsets
from kseg.native.memory import pooled
from kseg.native.records import PIECE_BYTES
from kseg.native.rows import FILLED, MIXED_TYPES, NEXT_RECORD, STATE, measure_rows

MAX_BATCH_BYTES = 128 << 20
ARENA_BYTES = 4 << 20  # more, and memory that was let go has left the CPU's cache; less, and Python's part is seen
HEADER_ONLY = frozenset({"topic", "partition", "offset"})
KEPT_TEMPLATES = 64
_RECORD_COLUMNS = frozenset({"key", "value", "offset", "timestamp"})
_SAME_COLUMNS = _RECORD_COLUMNS | {"topic", "partition"}  # the others may need another look in each record batch
MAX_FIELD_BYTES = 2**31 - 1  # of a column in one record batch: its offsets are int32
_BATCH_COLUMNS = {"leaderEpoch": t.LEADER_EPOCH, "producerId": t.PRODUCER_ID, "producerEpoch": t.PRODUCER_EPOCH}
MAX_ROWS = 1 << 18  # of a record batch: a bomb of tiny records comes in pieces


class RecordDecoder:
    """Turns rows of a batch table into record batches of one schema.

    Args:
        schema: The wanted columns (`kseg.schema.select_columns`).
        max_batch_bytes: The largest batch that is decoded, decompressed or not; a larger one is an error.
        arena_bytes: About how many decompressed bytes go into one record batch.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        topic: str,
        partition: int,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        arena_bytes: int = ARENA_BYTES,
    ) -> None:
        self.schema = schema
        self._kinds: dict[str, pa.DataType] = {field.name: field.type for field in schema}
        self._of_topic: dict[str, Any] = {"topic": topic, "partition": partition}
        self._constants: dict[tuple[str, Any], pa.Array] = {}
        self._templates: dict[tuple[int, int], list[pa.Array | None]] = {}
        self._of_records = [(place, name) for place, name in enumerate(schema.names) if name in _RECORD_COLUMNS]
        self._of_batches = [(place, name) for place, name in enumerate(schema.names) if name not in _SAME_COLUMNS]
        self._limit = max_batch_bytes
        self._functions = BlockFunctions()
        self._arena = pooled(min(arena_bytes, max_batch_bytes))
        self._places = np.empty((3, 0), np.int64)
        self._key_bytes: float | None = None  # of a record, in what was decoded last
        self._headers_suffice = HEADER_ONLY.issuperset(schema.names)
        self._straight = StraightReader(
            self._kinds, self._functions, max_batch_bytes=max_batch_bytes, piece_bytes=arena_bytes
        )

    @property
    def reads_straight(self) -> bool:
        """Whether `read_straight` is the way to read a local file now."""
        return self._straight.is_fit

    def read_straight(
        self, span: FileSpan, aborted: tuple[Numbers, Numbers, Numbers], base_offset: int, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """Give the visible records of `[start, end)` of a file; see `StraightReader.read`."""

        # given to each read: kept by the reader it would be a cycle, which holds all buffers until it is collected
        def assemble(columns: RowBuffers, payloads: Payloads, totals: list[int], stamps: int) -> pa.RecordBatch:
            return self._assemble(columns, payloads, range(0), totals, stamps)

        return self._straight.read(span, aborted, base_offset, start, end, assemble)

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
        if not self._headers_suffice:
            yield from self._decode_run(data, file_position, table, rows, skip, start, end)
            return
        for run, dense in _runs_of_dense(table, rows, self._limit):
            if dense:
                yield from self._offsets_only(table, run, skip, start, end)
            else:
                yield from self._decode_run(data, file_position, table, run, skip, start, end)

    def _decode_run(
        self,
        data: t.Bytes,
        file_position: int,
        table: t.Table,
        rows: range,
        skip: NDArray[np.bool_],
        start: int,
        end: int,
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
                    raise size_error(table, row, self._limit)
                size = min(2 * self._arena.size, self._limit)
                self._arena = NOTHING  # let the old one go before the new one comes
                self._arena = pooled(size)
                continue
            payloads = Payloads(data, self._arena, table, skip, starts, ends, kept)
            yield from self._decode_rows(payloads, range(row, stop), start, end)
            if status < 0:  # made where it is raised: held by this frame it would be a cycle with all our buffers
                raise payload_error(table, stop, status)
            row = stop

    def _decode_rows(self, payloads: Payloads, rows: range, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Decode rows whose payloads are at hand, in as many pieces as their number of records asks for."""
        table, skip = payloads.table, payloads.skip
        count, size, kind = measure_rows(table, rows.start, rows.stop, skip, payloads.starts, payloads.ends)
        room = min(size, PIECE_BYTES)
        key_room = self._key_room(min(count, MAX_ROWS), room)
        state = np.zeros(STATE, np.int64)
        row, status = rows.start, records.PIECE_FULL
        while status == records.PIECE_FULL:
            columns = RowBuffers(self._kinds, min(count, MAX_ROWS), key=key_room, value=room)
            stop, status = columns.fill(payloads, row, rows.stop, start, end, state)
            if state[FILLED]:
                self._key_bytes = float(state[records.KEY_BYTES] / state[FILLED])
                key_room = self._key_room(min(count, MAX_ROWS), room)
                done = range(row, stop + 1 if status == records.PIECE_FULL else stop)
                yield self._assemble(columns, payloads, done, state.tolist(), int(kind))
            elif status == records.PIECE_FULL:  # one record is larger than a piece should be
                room = key_room = min(size, MAX_FIELD_BYTES)
            if status < 0:
                raise record_error(table, stop, status)
            row = stop
            state[:NEXT_RECORD] = 0

    def _assemble(
        self, columns: RowBuffers, payloads: Payloads, rows: range, totals: list[int], stamps: int
    ) -> pa.RecordBatch:
        columns.give_back(totals)
        arrays = self._template(totals[FILLED], stamps).copy()
        for place, name in self._of_records:
            arrays[place] = columns.array(name, totals)
        for place, name in self._of_batches:
            if arrays[place] is None:
                arrays[place] = self._column(name, columns, payloads, rows, totals[FILLED])
            elif name == "headers" and totals[records.HEADERS]:
                arrays[place] = columns.headers(payloads, totals)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _template(self, count: int, stamps: int) -> list[pa.Array | None]:
        """A record batch of so many rows, with the columns that are the same in every row; None for the others."""
        found = self._templates.get((count, stamps))
        if found is None:
            if len(self._templates) >= KEPT_TEMPLATES:
                self._templates.clear()
            same = {**self._of_topic, "headers": None}
            if stamps != MIXED_TYPES:
                same["timestampType"] = stamps
            found = [self._constant(name, count, same[name]) if name in same else None for name in self._kinds]
            self._templates[count, stamps] = found
        return found

    def _key_room(self, count: int, room: int) -> int:
        """Bytes for so many keys, as long as those before; where that is too little, the piece ends earlier.

        Keys are short, as a rule. Were there room for as many bytes as the payloads have, nearly all of it would have
        to be given back, which costs a copy of the rest.
        """
        return room if self._key_bytes is None else min(room, int(self._key_bytes * count * 1.125) + 1024)

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

    def _constant(self, name: str, count: int, value: Any) -> pa.Array:
        """A column that is the same in every row: made once for the largest batch."""
        made = self._constants.get((name, value))
        if made is None or len(made) < count:
            made = self._constants[name, value] = _repeated(value, self._kinds[name], 2 * count)
        return made.slice(0, count)

    def _column(self, name: str, columns: RowBuffers, payloads: Payloads, rows: range, count: int) -> pa.Array:
        """A column that batches tell."""
        table, kept = payloads.table[:, rows.start : rows.stop], payloads.kept[rows.start : rows.stop]
        if name == "timestampType":
            values = _timestamp_types(table).repeat(kept)
        elif name == "sequence":
            values = _sequences(table, kept, columns.offsets(count))
        else:
            values = table[_BATCH_COLUMNS[name]].repeat(kept)
        return fixed_column(values, self._kinds[name])


def _repeated(value: Any, kind: pa.DataType, length: int) -> pa.Array:
    """So many times the same value, for which `pa.repeat` takes long where it is a number or text."""
    if value is not None and pa.types.is_integer(kind):
        return pa.array(np.full(length, value, kind.to_pandas_dtype()), kind)
    if value is not None and pa.types.is_string(kind):
        text = value.encode()
        offsets = np.arange(length + 1, dtype=np.int32) * np.int32(len(text))
        return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(offsets), pa.py_buffer(text * length)])
    return pa.repeat(pa.scalar(value, kind), length)


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
