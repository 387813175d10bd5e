"""Columns to batches of magic 2: records first, into the bytes behind the room for each header, then the headers.

Between the two steps the caller may compress the records; the headers are written from the batch table, so that
whatever a caller changes there (offsets, producer, attributes) is what the file says.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.crc32c import crc32c
from kseg.native.memory import store_i16, store_i32, store_i64, store_u8, wrap_i64
from kseg.native.records import (
    HEADERS_COUNT,
    HEADERS_START,
    KEY_LENGTH,
    KEY_START,
    OFFSET,
    TIMESTAMP,
    VALUE_LENGTH,
    VALUE_START,
)
from kseg.native.short_copies import copy_field
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COUNT,
    CRC,
    CRC_START,
    HEADER_SIZE,
    LAST_OFFSET,
    LEADER_EPOCH,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
)
from kseg.native.varint import varint_size, write_varint

# rows of `header_columns`: where each record header's key and value lie
HEADER_KEY_START: Final = 0
HEADER_KEY_LENGTH: Final = 1
HEADER_VALUE_START: Final = 2
HEADER_VALUE_LENGTH: Final = 3
HEADER_COLUMNS: Final = 4

# entries of `limits`
BATCH_BYTES: Final = 0  # a batch is closed before it would grow beyond this, its header included
BATCH_RECORDS: Final = 1
FIXED_BASE_TIMESTAMP: Final = 2  # 1: `limits[GIVEN_BASE_TIMESTAMP]` is the base of the deltas, else the first record's
GIVEN_BASE_TIMESTAMP: Final = 3
GIVEN_BASE_OFFSET: Final = 4  # -1: the first record's
STOP_BYTES: Final = 5  # no batch is begun behind so many bytes
LIMITS: Final = 6

MAX_DELTA: Final = 0x7FFFFFFF
RECORD_OVERHEAD: Final = (
    36  # length 5, attributes 1, timestamp 10, offset 5, key and value length 5 each, header count 5
)
HEADER_OVERHEAD: Final = 10


@inlined
def _field_size(length: int) -> int:
    return varint_size(length) + max(length, 0)


@inlined
def _write_field(out: Any, at: int, source: Any, start: int, length: int) -> int:
    at = write_varint(out, at, length)
    if length > 0:
        copy_field(out, at, source, start, length)
        at += length
    return at


@inlined
def _headers_size(columns: Any, row: int, header_columns: Any) -> int:
    first = columns[HEADERS_START, row]
    size = varint_size(columns[HEADERS_COUNT, row])
    for i in range(first, first + columns[HEADERS_COUNT, row]):
        size += _field_size(header_columns[HEADER_KEY_LENGTH, i]) + _field_size(header_columns[HEADER_VALUE_LENGTH, i])
    return size


@inlined
def _write_headers(
    out: Any, at: int, columns: Any, row: int, header_columns: Any, header_keys: Any, header_values: Any
) -> int:
    first = columns[HEADERS_START, row]
    count = columns[HEADERS_COUNT, row]
    at = write_varint(out, at, count)
    for i in range(first, first + count):
        at = _write_field(
            out, at, header_keys, header_columns[HEADER_KEY_START, i], header_columns[HEADER_KEY_LENGTH, i]
        )
        at = _write_field(
            out, at, header_values, header_columns[HEADER_VALUE_START, i], header_columns[HEADER_VALUE_LENGTH, i]
        )
    return at


@inlined
def _close_batch(table: Any, batch: int, end: int, last_offset: int, newest: int, count: int) -> None:
    table[SIZE, batch] = end - table[POSITION, batch]
    table[LAST_OFFSET, batch] = last_offset
    table[MAX_TIMESTAMP, batch] = newest
    table[COUNT, batch] = count


@kernel
def fill_batches(
    columns: Any, rows: int, keys: Any, values: Any, header_columns: Any, header_keys: Any, header_values: Any,
    limits: Any, out: Any, start: int, table: Any, first_row: int, first_batch: int,
) -> tuple[int, int]:  # fmt: skip
    """Encode records from `first_row` on to `out[start:]`, cut into batches, from `first_batch` of `table` on.

    Return the next record and the next batch: it stops behind the last record, or limits[STOP_BYTES] behind `start`,
    but not before one batch is done.

    `out` has room for everything: RECORD_OVERHEAD for each record, HEADER_OVERHEAD for each record header,
    HEADER_SIZE for each batch, and all the bytes. Of `table`, position, size, offsets, timestamps and count are
    filled.
    """
    batch_bytes, batch_records, stop = limits[BATCH_BYTES], limits[BATCH_RECORDS], start + limits[STOP_BYTES]
    batch = first_batch - 1
    at: Any = np.int64(start)  # typed: numba would compile what it is handed to once more for the literal 0
    position: Any = np.int64(start)
    count: Any = np.int64(0)
    newest: Any = np.int64(0)
    offset: Any = np.int64(0)
    base_offset: Any = np.int64(0)
    base_timestamp: Any = np.int64(0)
    for number in range(first_row, rows):
        row: Any = np.uint64(number)  # an index that cannot be negative
        last_offset, offset = offset, int(columns[OFFSET, row])
        timestamp = int(columns[TIMESTAMP, row])
        tail = (
            1
            + _field_size(columns[KEY_LENGTH, row])
            + _field_size(columns[VALUE_LENGTH, row])
            + _headers_size(columns, row, header_columns)
        )
        body = tail + varint_size(wrap_i64(timestamp - base_timestamp)) + varint_size(offset - base_offset)
        size = at - position + varint_size(body) + body
        is_full = size > batch_bytes or count >= batch_records or offset - base_offset > MAX_DELTA
        if is_full or count == 0:
            if count > 0:
                _close_batch(table, batch, at, last_offset, newest, count)
                if at >= stop:
                    return number, batch + 1
            batch += 1
            count = np.int64(0)
            newest = timestamp
            base_offset = offset if limits[GIVEN_BASE_OFFSET] < 0 else int(limits[GIVEN_BASE_OFFSET])
            base_timestamp = int(limits[GIVEN_BASE_TIMESTAMP]) if limits[FIXED_BASE_TIMESTAMP] else timestamp
            position = at
            table[POSITION, batch] = at
            table[BASE_OFFSET, batch] = base_offset
            table[BASE_TIMESTAMP, batch] = base_timestamp
            at += HEADER_SIZE
            body = tail + varint_size(wrap_i64(timestamp - base_timestamp)) + varint_size(offset - base_offset)
        at = write_varint(out, at, body)
        store_u8(out, at, 0)
        at = write_varint(out, at + 1, wrap_i64(timestamp - base_timestamp))
        at = write_varint(out, at, offset - base_offset)
        at = _write_field(out, at, keys, columns[KEY_START, row], columns[KEY_LENGTH, row])
        at = _write_field(out, at, values, columns[VALUE_START, row], columns[VALUE_LENGTH, row])
        at = _write_headers(out, at, columns, row, header_columns, header_keys, header_values)
        count += 1
        newest = max(newest, timestamp)
    if count > 0:
        _close_batch(table, batch, at, offset, newest, count)
    return rows, batch + 1


@inlined
def write_header(out: Any, table: Any, row: int) -> None:
    """Write the 61-byte header of a row at its POSITION, with the CRC of what is there; CRC and MAGIC are filled."""
    at = table[POSITION, row]
    end = at + table[SIZE, row]
    store_i64(out, at, table[BASE_OFFSET, row])
    store_i32(out, at + 8, table[SIZE, row] - LOG_OVERHEAD)
    store_i32(out, at + 12, table[LEADER_EPOCH, row])
    store_u8(out, at + 16, 2)
    store_i16(out, at + 21, table[ATTRIBUTES, row])
    store_i32(out, at + 23, table[LAST_OFFSET, row] - table[BASE_OFFSET, row])
    store_i64(out, at + 27, table[BASE_TIMESTAMP, row])
    store_i64(out, at + 35, table[MAX_TIMESTAMP, row])
    store_i64(out, at + 43, table[PRODUCER_ID, row])
    store_i16(out, at + 51, table[PRODUCER_EPOCH, row])
    store_i32(out, at + 53, table[BASE_SEQUENCE, row])
    store_i32(out, at + 57, table[COUNT, row])
    crc = crc32c(out, at + CRC_START, end)
    store_i32(out, at + 17, crc)
    table[CRC, row] = crc
    table[MAGIC, row] = 2


@kernel
def write_headers(out: Any, table: Any, rows: int) -> None:
    """Write the header of each row."""
    for row in range(rows):
        write_header(out, table, row)
