"""Records of a chunk as columns, a run of whole batches at a time, in buffers that are reused."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kseg.format.arrow import MAX_BATCH_BYTES
from kseg.format.batch import payload_error, record_error, size_error
from kseg.format.codec import BlockFunctions
from kseg.format.file_span import BUFFER_BYTES, TABLE_ROWS
from kseg.log.walk import Chunk, WalkRoom
from kseg.native import codecs, records, steps
from kseg.native import table as t
from kseg.native.memory import pooled
from kseg.native.rows import measure_rows

ARENA_BYTES = 1 << 20  # so that decompressed records are still in the processor's cache when they are read
CHECKED_RECORDS = 1 << 12
EVERYTHING = (-(2**63), 2**63 - 1)


@dataclass(slots=True)
class Payloads:
    """Whole batches and where the bytes of their records lie; valid until the next ones are asked for.

    `records` is how many there are at most, whatever the batches say.
    """

    chunk: Chunk
    rows: range
    skip: NDArray[np.bool_]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    arena: t.Bytes
    records: int
    payload_bytes: int

    def groups(self, most: int) -> Iterator[Payloads]:
        """The same batches, so many at a time that they have about `most` bytes of records, or one that has more."""
        rows, table = self.rows, self.chunk.table
        sums = np.cumsum((self.ends - self.starts)[rows.start : rows.stop])
        edges = np.flatnonzero(np.diff(sums // most, prepend=0)) + rows.start
        for first, stop in itertools.pairwise(sorted({rows.start, *edges.tolist(), rows.stop})):
            there, size, _ = measure_rows(table, first, stop, self.skip, self.starts, self.ends)
            yield dataclasses.replace(self, rows=range(first, stop), records=int(there), payload_bytes=int(size))


@dataclass(slots=True)
class Run:
    """Whole batches and where the fields of their records lie; valid until the next run is asked for."""

    chunk: Chunk
    rows: range
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    arena: t.Bytes
    columns: NDArray[np.int64]
    count: int
    payload_bytes: int


class StepRoom:
    """Memory for kernels that go through a file by steps; the rows of a step are those of `chunk`."""

    def __init__(self, max_batch_bytes: int) -> None:
        self.buffer = pooled(min(BUFFER_BYTES, max_batch_bytes))
        self.table = t.new_table(TABLE_ROWS)
        self.skip = np.empty(TABLE_ROWS, np.bool_)
        self.starts, self.ends, self.fates = np.empty((3, TABLE_ROWS), np.int64)

    def chunk(self, cursor: NDArray[np.int64]) -> Chunk:
        """The rows of the step that a cursor is in."""
        return Chunk(self.buffer, int(cursor[steps.FROM]), self.table, int(cursor[steps.ROWS]))


class RunDecoder:
    """Decompresses and decodes runs of batches; one object per thread.

    Attributes:
        room: For the walk that gives the chunks.
        functions: The addresses of decompressors.
        limit: The largest batch that is decoded, decompressed or not.
        arena: What batches are decompressed into.
        entries: For the keys of batches, as `native.keys` lists them.
    """

    def __init__(self, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self.room = WalkRoom()
        self.limit = max_batch_bytes
        self.functions = BlockFunctions()
        self.arena = np.empty(min(ARENA_BYTES, max_batch_bytes), np.uint8)
        self.entries = np.empty((0, 3), np.int64)
        self._columns = np.empty((records.RECORD_COLUMNS, 0), np.int64)

    @functools.cached_property
    def steps(self) -> StepRoom:
        """For kernels that go through a file by steps."""
        return StepRoom(self.limit)

    def decode(self, chunk: Chunk, rows: range, skip: NDArray[np.bool_]) -> Iterator[Run]:
        """Decode `rows`; those with `skip[row]` have no records in the result.

        Raises:
            FormatError: A payload or a record is damaged.
        """
        for payloads in self.unpack(chunk, rows, skip):
            yield self.decode_rows(payloads, payloads.rows)

    def unpack(self, chunk: Chunk, rows: range, skip: NDArray[np.bool_]) -> Iterator[Payloads]:
        """Decompress `rows`; those with `skip[row]` have no bytes in the result.

        Raises:
            FormatError: A payload is damaged.
        """
        starts, ends = np.empty(rows.stop, np.int64), np.empty(rows.stop, np.int64)
        row = rows.start
        while row < rows.stop:
            stop, status = codecs.fill_payloads(
                chunk.data, chunk.file_position, chunk.table, row, rows.stop, skip, self.arena, self.limit,
                self.functions.addresses, starts, ends,
            )  # fmt: skip
            if status < 0:
                raise payload_error(chunk.table, stop, status)
            if stop == row:
                self._grow_arena(chunk.table, row)
                continue
            there, payload_bytes, _ = measure_rows(chunk.table, row, stop, skip, starts, ends)
            yield Payloads(chunk, range(row, stop), skip, starts, ends, self.arena, int(there), int(payload_bytes))
            row = stop

    def unpack_whole(self, chunk: Chunk, rows: range, most: int) -> Payloads | None:
        """Decompress `rows` into one arena, which may get as large as `most`; None where they need more.

        Raises:
            FormatError: A payload is damaged.
        """
        starts, ends = np.empty(rows.stop, np.int64), np.empty(rows.stop, np.int64)
        skip = np.zeros(rows.stop, np.bool_)
        while True:
            stop, status = codecs.fill_payloads(
                chunk.data, chunk.file_position, chunk.table, rows.start, rows.stop, skip, self.arena, self.limit,
                self.functions.addresses, starts, ends,
            )  # fmt: skip
            if status < 0:
                raise payload_error(chunk.table, stop, status)
            if stop == rows.stop:
                break
            if 2 * self.arena.size > min(most, self.limit):
                return None
            self._grow_arena(chunk.table, stop)
        there, payload_bytes, _ = measure_rows(chunk.table, rows.start, rows.stop, skip, starts, ends)
        return Payloads(chunk, rows, skip, starts, ends, self.arena, int(there), int(payload_bytes))

    def payloads_of(self, cursor: NDArray[np.int64]) -> Payloads:
        """What a kernel that goes by steps has decompressed and not worked on."""
        room = self.steps
        rows = range(int(cursor[steps.ROW]), int(cursor[steps.READY]))
        there, payload_bytes, _ = measure_rows(room.table, rows.start, rows.stop, room.skip, room.starts, room.ends)
        return Payloads(
            room.chunk(cursor), rows, room.skip, room.starts, room.ends, self.arena, int(there), int(payload_bytes)
        )

    def _grow_arena(self, table: t.Table, row: int) -> None:
        if self.arena.size >= self.limit:
            raise size_error(table, row, self.limit)
        size = min(2 * self.arena.size, self.limit)
        self.arena = np.empty(0, np.uint8)  # let the old one go before the new one comes
        self.arena = np.empty(size, np.uint8)

    def check_records(self, found: Payloads) -> None:
        """Decode all rows that were unpacked, some records at a time, and keep nothing of them.

        Raises:
            FormatError: A record is damaged.
        """
        if self._columns.shape[1] < CHECKED_RECORDS:
            self._columns = np.empty((records.RECORD_COLUMNS, CHECKED_RECORDS), np.int64)
        chunk, row, status = found.chunk, found.rows.start, records.PIECE_FULL
        cursor = np.zeros(records.CURSOR, np.int64)
        while status == records.PIECE_FULL:
            _, row, status = records.fill_records(
                chunk.data, found.arena, chunk.table, row, found.rows.stop, found.skip, found.starts, found.ends,
                *EVERYTHING, self._columns, np.zeros(records.TOTALS, np.int64), cursor,
            )  # fmt: skip
        if status != records.DONE:
            raise record_error(chunk.table, row, status)

    def decode_rows(self, found: Payloads, rows: range) -> Run:
        """Decode some of the rows that were unpacked.

        Raises:
            FormatError: A record is damaged.
        """
        chunk, there = found.chunk, found.records
        if self._columns.shape[1] < there:
            self._columns = np.empty((records.RECORD_COLUMNS, there + there // 4), np.int64)
        count, stop, status = records.fill_records(
            chunk.data, found.arena, chunk.table, rows.start, rows.stop, found.skip, found.starts, found.ends,
            *EVERYTHING, self._columns, np.zeros(records.TOTALS, np.int64), np.zeros(records.CURSOR, np.int64),
        )  # fmt: skip
        if status != records.DONE:
            raise record_error(chunk.table, stop, status)
        return Run(chunk, rows, found.starts, found.ends, found.arena, self._columns, int(count), found.payload_bytes)
