"""Drives the kernels one after the other, as `format` does, and turns what they fill into the twins' records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kseg.format.codec import BlockFunctions
from kseg.native import codecs, headers, memory, records
from kseg.native import table as t
from tests.reference.record import Record
from tests.reference.varint import decode_varint

EVERYTHING = (-(1 << 63), (1 << 63) - 1)
FUNCTIONS = BlockFunctions()


@dataclass
class Walk:
    """What `fill_headers` said."""

    table: t.Table
    rows: int
    next: int
    status: int


def walk(data: bytes, *, file_position: int = 0, capacity: int = 64) -> Walk:
    """Fill a table from all of `data`."""
    table = t.new_table(capacity)
    rows, stopped, status = headers.fill_headers(memory.as_array(data), 0, len(data), file_position, table, 0)
    return Walk(table, rows, stopped, status)


@dataclass
class Decoded:
    """What the kernels made of some batches; `status` is that of the kernel that stopped first."""

    records: list[Record]
    status: int
    row: int
    totals: np.ndarray
    table: t.Table


class Decoder:
    """Runs payloads and records over `data`, which holds whole batches; the arrays stay for a look at them."""

    def __init__(self, data: bytes, *, arena: int = 1 << 16, limit: int = 1 << 20) -> None:
        self.data = data
        self.array = memory.as_array(data)
        self.walk = walk(data)
        self.arena = np.zeros(arena, np.uint8)
        self.limit = limit
        self.skip = np.zeros(self.walk.rows, np.bool_)
        self.starts = np.zeros(self.walk.rows, np.int64)
        self.ends = np.zeros(self.walk.rows, np.int64)
        self.columns = np.zeros((records.RECORD_COLUMNS, 0), np.int64)

    def payloads(self) -> tuple[int, int]:
        """Find or make the payload of every row."""
        row, status = codecs.fill_payloads(
            self.array, 0, self.walk.table, 0, self.walk.rows, self.skip, self.arena, self.limit, FUNCTIONS.addresses,
            self.starts, self.ends,
        )  # fmt: skip
        return row, status

    def decode(self, start: int = EVERYTHING[0], end: int = EVERYTHING[1]) -> Decoded:
        """Decode all rows."""
        totals = np.zeros(records.TOTALS, np.int64)
        row, status = self.payloads()
        if status != codecs.DONE:
            return Decoded([], status, row, totals, self.walk.table)
        table, rows = self.walk.table, self.walk.rows
        room = int(np.maximum(table[t.COUNT, :rows], 0).sum())
        self.columns = np.zeros((records.RECORD_COLUMNS, min(room, 100_000)), np.int64)
        count, row, status = records.fill_records(
            self.array,
            self.arena,
            table,
            0,
            rows,
            self.skip,
            self.starts,
            self.ends,
            start,
            end,
            self.columns,
            totals,
            np.zeros(records.CURSOR, np.int64),
        )
        return Decoded([self._record(index) for index in range(count)], status, row, totals, table)

    def _field(self, start: int, length: int) -> bytes | None:
        if length < 0:
            return None
        source, at = (self.data, start) if start < len(self.data) else (self.arena, start - len(self.data))
        return bytes(source[at : at + length])

    def _record(self, index: int) -> Record:
        column = [int(value) for value in self.columns[:, index]]
        return Record(
            column[records.OFFSET],
            column[records.TIMESTAMP],
            self._field(column[records.KEY_START], column[records.KEY_LENGTH]),
            self._field(column[records.VALUE_START], column[records.VALUE_LENGTH]),
            self._headers(column[records.HEADERS_START], column[records.HEADERS_COUNT]),
            column[records.TIMESTAMP_TYPE],
        )

    def _headers(self, start: int, count: int) -> tuple[tuple[bytes, bytes | None], ...]:
        if count <= 0:
            return ()
        inside = start < len(self.data)
        source = self.data if inside else bytes(self.arena)
        at = start if inside else start - len(self.data)
        made: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            size, at = decode_varint(source, at)
            key, at = source[at : at + size], at + size
            size, at = decode_varint(source, at)
            value = None if size < 0 else source[at : at + size]
            at += max(size, 0)
            made.append((key, value))
        return tuple(made)


def decode(data: bytes, **limits: int) -> Decoded:
    """Decode whole batches with fresh arrays."""
    return Decoder(data, **limits).decode()
