"""Batches to Arrow: decompress, decode and gather whole runs of batches with a handful of kernel calls.

A `RecordDecoder` owns the buffers that are reused from run to run (arena, record columns). What it gives away lives
in fresh buffers of Arrow's own pool: they stay warm as batches are released, and nobody's data is overwritten.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.errors import CorruptRecordError
from kseg.format.batch import payload_error, record_error, size_error
from kseg.format.codec import BlockFunctions
from kseg.native import codecs, records
from kseg.native import table as t
from kseg.native.gather import fill_offsets, gather_binary, gather_headers

MAX_BATCH_BYTES = 128 << 20
ARENA_BYTES = 4 << 20
HEADER_ONLY = frozenset({"topic", "partition", "offset"})
MAX_ROWS = 1 << 18  # of a record batch: a bomb of tiny records comes in pieces
MAX_MILLISECONDS = (2**63 - 1) // 1000  # that fit in microseconds
NO_BITMAP = np.empty(0, np.uint8)


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
        self._topic = pa.scalar(topic, pa.string())
        self._partition = pa.scalar(partition, pa.int32())
        self._constants: dict[str, pa.Array] = {}
        self._limit = max_batch_bytes
        self._functions = BlockFunctions()
        self._arena = np.empty(min(arena_bytes, max_batch_bytes), np.uint8)
        self._columns = np.empty((records.RECORD_COLUMNS, 0), np.int64)
        self._headers_suffice = HEADER_ONLY.issuperset(schema.names)

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
        starts = np.empty(rows.stop, np.int64)
        ends = np.empty(rows.stop, np.int64)
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
                self._arena = NO_BITMAP  # let the old one go before the new one comes
                self._arena = np.empty(size, np.uint8)
                continue
            yield from self._decode_rows(data, table, range(row, stop), skip, starts, ends, start, end)
            if status < 0:  # made where it is raised: held by this frame it would be a cycle with all our buffers
                raise payload_error(table, stop, status)
            row = stop

    def _decode_rows(
        self, data: t.Bytes, table: t.Table, rows: range, skip: NDArray[np.bool_], starts: NDArray[np.int64],
        ends: NDArray[np.int64], start: int, end: int,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Decode rows whose payloads are at hand, in as many pieces as their number of records asks for."""
        self._make_room(table, rows, skip, starts, ends)
        cursor = np.zeros(records.CURSOR, np.int64)
        row, status = rows.start, records.PIECE_FULL
        while status == records.PIECE_FULL:
            totals = np.zeros(records.TOTALS, np.int64)
            before = cursor.copy()
            count, stop, status = records.fill_records(
                data, self._arena, table, row, rows.stop, skip, starts, ends, start, end, self._columns, totals, cursor
            )
            if status < 0:  # once more, without the damaged batch: its records are counted already
                totals[:], cursor[:] = 0, before
                count, _, _ = records.fill_records(
                    data, self._arena, table, row, stop, skip, starts, ends, start, end, self._columns, totals, cursor
                )
            if count:
                arrays = [self._column(name, data, table, count, totals) for name in self.schema.names]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            if status < 0:
                raise record_error(table, stop, status)
            row = stop

    def _make_room(
        self, table: t.Table, rows: range, skip: NDArray[np.bool_], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Columns for all records, but not for more than one record batch should hold."""
        span = slice(rows.start, rows.stop)
        room = np.where(
            table[t.MAGIC, span] == 2, (ends[span] - starts[span]) // t.MIN_RECORD_SIZE, table[t.COUNT, span]
        )
        records_there = int(np.clip(np.minimum(table[t.COUNT, span], room), 0, None)[~skip[span]].sum())
        capacity = min(records_there, MAX_ROWS)
        if self._columns.shape[1] < capacity:
            self._columns = np.empty((records.RECORD_COLUMNS, min(capacity + capacity // 4, MAX_ROWS)), np.int64)

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
                arrays = [offsets if name == "offset" else self._constant(name, total) for name in self.schema.names]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constant(self, name: str, count: int) -> pa.Array:
        """A column that is the same in every row: made once for the largest batch, and sliced."""
        made = self._constants.get(name)
        if made is None or len(made) < count:
            value = self._topic if name == "topic" else self._partition
            made = self._constants[name] = pa.repeat(value, count + count // 4)
        return made.slice(0, count)

    def _column(self, name: str, data: t.Bytes, table: t.Table, count: int, totals: NDArray[np.int64]) -> pa.Array:
        columns = self._columns
        if name in ("topic", "partition"):
            return self._constant(name, count)
        if name == "key":
            starts, lengths = columns[records.KEY_START], columns[records.KEY_LENGTH]
            return self._binary(data, starts, lengths, count, totals[records.KEY_BYTES], totals[records.NULL_KEYS])
        if name == "value":
            starts, lengths = columns[records.VALUE_START], columns[records.VALUE_LENGTH]
            return self._binary(data, starts, lengths, count, totals[records.VALUE_BYTES], totals[records.NULL_VALUES])
        if name == "headers":
            return self._headers(data, count, totals)
        kind = self.schema.field(name).type
        batch_rows = columns[records.BATCH_ROW, :count]
        if name == "offset":
            return _fixed(columns[records.OFFSET, :count], kind, np.int64)
        if name == "timestamp":
            return _fixed(_in_unit(columns[records.TIMESTAMP, :count], kind), kind, np.int64)
        if name == "timestampType":
            return _fixed(columns[records.TIMESTAMP_TYPE, :count], kind, np.int32)
        if name == "sequence":
            return _fixed(_sequences(table, batch_rows, columns[records.OFFSET, :count]), kind, np.int32)
        sources: dict[str, tuple[int, type[np.generic]]] = {
            "leaderEpoch": (t.LEADER_EPOCH, np.int32),
            "producerId": (t.PRODUCER_ID, np.int64),
            "producerEpoch": (t.PRODUCER_EPOCH, np.int16),
        }
        source, width = sources[name]
        return _fixed(table[source].take(batch_rows), kind, width)

    def _binary(
        self, data: t.Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64], count: int, size: int, nulls: int
    ) -> pa.Array:
        offsets, payload = pa.allocate_buffer(4 * (count + 1)), pa.allocate_buffer(int(size))
        bitmap = np.zeros((count + 7) // 8, np.uint8) if nulls else NO_BITMAP
        gather_binary(
            data, self._arena, starts, lengths, count, np.frombuffer(offsets, np.int32), _writable(payload), bitmap
        )
        validity = pa.py_buffer(bitmap) if nulls else None
        return pa.Array.from_buffers(pa.binary(), count, [validity, offsets, payload], null_count=int(nulls))

    def _headers(self, data: t.Bytes, count: int, totals: NDArray[np.int64]) -> pa.Array:
        number = int(totals[records.HEADERS])
        kind = self.schema.field("headers").type
        if not number:
            return pa.nulls(count, kind)
        list_offsets, key_offsets = pa.allocate_buffer(4 * (count + 1)), pa.allocate_buffer(4 * (number + 1))
        value_offsets = pa.allocate_buffer(4 * (number + 1))
        keys = pa.allocate_buffer(int(totals[records.HEADER_KEY_BYTES]))
        values = pa.allocate_buffer(int(totals[records.HEADER_VALUE_BYTES]))
        without, null_values = int(totals[records.WITHOUT_HEADERS]), int(totals[records.NULL_HEADER_VALUES])
        list_bitmap = np.zeros((count + 7) // 8, np.uint8) if without else NO_BITMAP
        value_bitmap = np.zeros((number + 7) // 8, np.uint8) if null_values else NO_BITMAP
        ascii_only = gather_headers(
            data, self._arena, self._columns, count, np.frombuffer(list_offsets, np.int32), list_bitmap,
            np.frombuffer(key_offsets, np.int32), _writable(keys), np.frombuffer(value_offsets, np.int32),
            _writable(values), value_bitmap,
        )  # fmt: skip
        key_array = pa.Array.from_buffers(pa.string(), number, [None, key_offsets, keys])
        if not ascii_only:
            key_array = _mended_text(key_array)
        value_validity = pa.py_buffer(value_bitmap) if null_values else None
        value_array = pa.Array.from_buffers(pa.binary(), number, [value_validity, value_offsets, values])
        items = pa.StructArray.from_arrays([key_array, value_array], fields=list(kind.value_type))
        list_validity = pa.py_buffer(list_bitmap) if without else None
        return pa.Array.from_buffers(kind, count, [list_validity, list_offsets], null_count=without, children=[items])


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


def _writable(buffer: pa.Buffer) -> t.Bytes:
    return np.frombuffer(buffer, np.uint8) if buffer.size else np.empty(0, np.uint8)


def _fixed(values: NDArray[np.int64], kind: pa.DataType, width: type[np.generic]) -> pa.Array:
    buffer = pa.allocate_buffer(values.size * np.dtype(width).itemsize)
    np.copyto(np.frombuffer(buffer, width), values, casting="unsafe")
    return pa.Array.from_buffers(kind, values.size, [None, buffer])


def _in_unit(milliseconds: NDArray[np.int64], kind: pa.DataType) -> NDArray[np.int64]:
    """Timestamps in the column's unit, milliseconds or microseconds; what does not fit is an error, as in Spark."""
    if kind.unit == "ms":
        return milliseconds
    largest = int(np.abs(milliseconds).max(initial=0))
    if largest < 0 or largest > MAX_MILLISECONDS:
        raise CorruptRecordError(f"a timestamp of {largest} ms does not fit the microseconds of the column")
    return milliseconds * 1000


def _sequences(table: t.Table, batch_rows: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """A record's sequence number: the batch's first plus the offset delta, wrapping to 0; -1 without a producer."""
    bases = table[t.BASE_SEQUENCE].take(batch_rows)
    sequences = (bases + offsets - table[t.BASE_OFFSET].take(batch_rows)) & 0x7FFFFFFF
    return np.where(bases < 0, -1, sequences)


def _mended_text(keys: pa.Array) -> pa.Array:
    """Replace what is not UTF-8, as Java's decoder does; nothing to do for sound text."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([text.as_buffer().to_pybytes().decode("utf-8", "replace") for text in keys], pa.string())
    return keys
