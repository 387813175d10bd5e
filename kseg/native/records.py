"""Decode the records of many batches into columns, in one call.

The columns hold where each field lies, not the fields themselves; `gather.py` copies those that are wanted. A
position below `len(data)` is in `data`, any other in the arena of decompressed payloads, shifted by `len(data)` (see
`codecs.py`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.legacy import key_and_value, wrapper_base
from kseg.native.memory import load_i32, load_i64, load_u8, prefetch_byte, wrap_i64
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    COUNT,
    LAST_OFFSET,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    MIN_RECORD_SIZE,
)
from kseg.native.varint import BAD_VARINT, read_varint, read_varlong

# rows of the int64 array `columns`
OFFSET: Final = 0
TIMESTAMP: Final = 1
KEY_START: Final = 2
KEY_LENGTH: Final = 3  # -1: null
VALUE_START: Final = 4
VALUE_LENGTH: Final = 5
HEADERS_START: Final = 6  # of the first header, behind the count
HEADERS_COUNT: Final = 7
BATCH_ROW: Final = 8
TIMESTAMP_TYPE: Final = 9
RECORD_START: Final = 10  # of magic 2; its end is where the next one starts, or the payload's
RECORD_COLUMNS: Final = 11

# entries of the int64 array `totals`
KEY_BYTES: Final = 0
NULL_KEYS: Final = 1
VALUE_BYTES: Final = 2
NULL_VALUES: Final = 3
HEADERS: Final = 4
WITHOUT_HEADERS: Final = 5
HEADER_KEY_BYTES: Final = 6
HEADER_VALUE_BYTES: Final = 7
NULL_HEADER_VALUES: Final = 8
TOTALS: Final = 9

# entries of the int64 array `cursor`: where to go on in the row that was left in the middle
CURSOR_RECORD: Final = 0  # records of the row that are done; 0: the row is new
CURSOR_POSITION: Final = 1  # of the next record, from the payload's start
CURSOR: Final = 2

PIECE_FULL: Final = 1  # the columns are full, or their fields have grown to PIECE_BYTES: go on with the cursor
PIECE_BYTES: Final = 1 << 28
_AHEAD_BYTES: Final = 1024

DONE: Final = 0
BAD_COUNT: Final = -1  # negative, or more records than the payload has room for
SHORT_PAYLOAD: Final = -2  # the payload ends inside a record
BAD_LENGTH: Final = -3  # a record's fields do not add up to its length
BAD_HEADERS: Final = -4
LEFT_OVER: Final = -5  # bytes behind the last record
BAD_MESSAGE: Final = -6  # a legacy message whose lengths contradict its size


@inlined
def _is_full(columns: Any, filled: int, totals: Any) -> bool:
    if filled >= columns.shape[1]:
        return True
    return filled > 0 and totals[KEY_BYTES] + totals[VALUE_BYTES] + totals[HEADER_VALUE_BYTES] >= PIECE_BYTES


@inlined
def _skip_headers(data: Any, p: int, end: int, count: int, totals: Any) -> int:
    """Walk `count` headers and add up their bytes; return the position behind them, or -1."""
    for _ in range(count):
        length, p = read_varint(data, p, end)
        if p == BAD_VARINT or length < 0 or length > end - p:
            return -1
        p += length
        totals[HEADER_KEY_BYTES] += length
        length, p = read_varint(data, p, end)
        if p == BAD_VARINT or length > end - p:
            return -1
        if length >= 0:
            p += length
            totals[HEADER_VALUE_BYTES] += length
        else:
            totals[NULL_HEADER_VALUES] += 1
    return p


@inlined
def prefetch_records(data: Any, p: int) -> None:
    """Have what lies some records behind `p` brought near: lengths tell where records begin, and are waited for."""
    prefetch_byte(data, p + _AHEAD_BYTES)
    prefetch_byte(data, p + _AHEAD_BYTES + 64)


@inlined
def read_record(data: Any, p: int, end: int, totals: Any) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Parse one record of magic 2 at `p` of a payload that ends at `end`.

    Returns (next position or a status, timestamp delta, offset delta, key start, key length, value start, value length,
    first header, number of headers). Bytes of headers are added to `totals`.
    """
    length, p = read_varint(data, p, end)
    if p == BAD_VARINT or length > end - p:
        return SHORT_PAYLOAD, 0, 0, 0, 0, 0, 0, 0, 0
    if length < MIN_RECORD_SIZE - 1:
        return BAD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0
    stop = p + length
    timestamp_delta, p = read_varlong(data, p + 1, stop)  # one byte of attributes is skipped: nothing uses it
    if p == BAD_VARINT:
        return BAD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, p = read_varint(data, p, stop)
    if p == BAD_VARINT:
        return BAD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0
    key_length, key_start = read_varint(data, p, stop)
    if key_start == BAD_VARINT or key_length > stop - key_start:
        return BAD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0
    value_length, value_start = read_varint(data, key_start + max(key_length, 0), stop)
    if value_start == BAD_VARINT or value_length > stop - value_start:
        return BAD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0
    headers, headers_start = read_varint(data, value_start + max(value_length, 0), stop)
    if headers_start == BAD_VARINT or headers < 0 or headers > stop - headers_start:
        return BAD_HEADERS, 0, 0, 0, 0, 0, 0, 0, 0
    p = headers_start
    if headers:
        p = _skip_headers(data, p, stop, headers, totals)
        if p < 0:
            return BAD_HEADERS, 0, 0, 0, 0, 0, 0, 0, 0
    if p != stop:
        return BAD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0
    return stop, timestamp_delta, offset_delta, key_start, key_length, value_start, value_length, headers_start, headers


@inlined
def _fill_v2(
    data: Any, start: int, end: int, shift: Any, table: Any, row: int, range_start: int, range_end: int,
    columns: Any, first: int, totals: Any, cursor: Any,
) -> tuple[int, int]:  # fmt: skip
    """Decode one batch of magic 2 whose payload is `data[start:end]`; return (records kept so far, status)."""
    count = table[COUNT, row]
    if count < 0 or count * MIN_RECORD_SIZE > end - start:
        return first, BAD_COUNT
    base_offset = int(table[BASE_OFFSET, row])
    base_timestamp = int(table[BASE_TIMESTAMP, row])
    max_timestamp = table[MAX_TIMESTAMP, row]
    append_time = table[ATTRIBUTES, row] & LOG_APPEND_TIME_BIT != 0
    filled = first
    p = start + cursor[CURSOR_POSITION]
    for i in range(cursor[CURSOR_RECORD], count):
        if _is_full(columns, filled, totals):
            cursor[CURSOR_RECORD] = i
            cursor[CURSOR_POSITION] = p - start
            return filled, PIECE_FULL
        before_keys = totals[HEADER_KEY_BYTES]
        before_values = totals[HEADER_VALUE_BYTES]
        before_nulls = totals[NULL_HEADER_VALUES]
        record_start = p
        p, timestamp_delta, offset_delta, key_start, key_length, value_start, value_length, headers_start, headers = (
            read_record(data, p, end, totals)
        )
        if p < 0:
            return filled, p
        offset = wrap_i64(base_offset + offset_delta)
        if not range_start <= offset < range_end:
            totals[HEADER_KEY_BYTES] = before_keys
            totals[HEADER_VALUE_BYTES] = before_values
            totals[NULL_HEADER_VALUES] = before_nulls
            continue
        columns[OFFSET, filled] = offset
        columns[TIMESTAMP, filled] = max_timestamp if append_time else wrap_i64(base_timestamp + timestamp_delta)
        columns[KEY_START, filled] = shift + key_start
        columns[KEY_LENGTH, filled] = max(key_length, -1)
        columns[VALUE_START, filled] = shift + value_start
        columns[VALUE_LENGTH, filled] = max(value_length, -1)
        columns[HEADERS_START, filled] = shift + headers_start
        columns[HEADERS_COUNT, filled] = headers
        columns[BATCH_ROW, filled] = row
        columns[TIMESTAMP_TYPE, filled] = 1 if append_time else 0
        columns[RECORD_START, filled] = shift + record_start
        totals[KEY_BYTES] += max(key_length, 0)
        totals[NULL_KEYS] += key_length < 0
        totals[VALUE_BYTES] += max(value_length, 0)
        totals[NULL_VALUES] += value_length < 0
        totals[HEADERS] += headers
        totals[WITHOUT_HEADERS] += headers == 0
        filled += 1
    return filled, DONE if p == end else LEFT_OVER


@inlined
def legacy_base(data: Any, start: int, table: Any, row: int) -> int:
    """What is added to the relative offsets inside the wrapper of `row`, decompressed to `data[start:]`."""
    last = 0
    at = start
    for _ in range(table[COUNT, row]):
        last = load_i64(data, at)
        at += LOG_OVERHEAD + load_i32(data, at + 8)
    return int(wrapper_base(int(table[LAST_OFFSET, row]), last))


@inlined
def _fill_message(
    data: Any, at: int, end: int, shift: int, offset: int, timestamp: int, kind: int, row: int, magic: int,
    columns: Any, filled: int, totals: Any,
) -> bool:  # fmt: skip
    key_start, key_length, value_start, value_length = key_and_value(data, at, end, magic)
    if key_start < 0:
        return False
    columns[OFFSET, filled] = offset
    columns[TIMESTAMP, filled] = timestamp
    columns[KEY_START, filled] = shift + key_start
    columns[KEY_LENGTH, filled] = max(key_length, -1)
    columns[VALUE_START, filled] = shift + value_start
    columns[VALUE_LENGTH, filled] = max(value_length, -1)
    columns[HEADERS_START, filled] = 0
    columns[HEADERS_COUNT, filled] = 0
    columns[BATCH_ROW, filled] = row
    columns[TIMESTAMP_TYPE, filled] = kind
    columns[RECORD_START, filled] = 0
    totals[KEY_BYTES] += max(key_length, 0)
    totals[NULL_KEYS] += key_length < 0
    totals[VALUE_BYTES] += max(value_length, 0)
    totals[NULL_VALUES] += value_length < 0
    totals[WITHOUT_HEADERS] += 1
    return True


@inlined
def _fill_legacy(
    data: Any, start: int, end: int, shift: Any, table: Any, row: int, range_start: int, range_end: int,
    columns: Any, first: int, totals: Any, cursor: Any,
) -> tuple[int, int]:  # fmt: skip
    """Decode one legacy message, or the inner messages of a wrapper; return (records kept so far, status)."""
    attributes = table[ATTRIBUTES, row]
    wrapped = attributes & CODEC_MASK != 0
    wrapper_magic = table[MAGIC, row]
    relative = wrapped and wrapper_magic == 1
    kind = -1  # a consumer takes the type from the batch, whatever the inner messages say
    if wrapper_magic != 0:
        kind = 1 if attributes & LOG_APPEND_TIME_BIT else 0
    base = legacy_base(data, start, table, row) if relative else 0
    filled = first
    at = start + cursor[CURSOR_POSITION]
    for i in range(cursor[CURSOR_RECORD], table[COUNT, row]):
        if _is_full(columns, filled, totals):
            cursor[CURSOR_RECORD] = i
            cursor[CURSOR_POSITION] = at - start
            return filled, PIECE_FULL
        stop = at + LOG_OVERHEAD + load_i32(data, at + 8)
        magic = load_u8(data, at + 16)
        offset = wrap_i64(base + load_i64(data, at))
        timestamp = -1
        if magic != 0:
            if stop - at < 26:
                return filled, BAD_MESSAGE
            timestamp = table[MAX_TIMESTAMP, row] if relative and kind == 1 else load_i64(data, at + 18)
        if range_start <= offset < range_end:
            if not _fill_message(data, at, stop, shift, offset, timestamp, kind, row, magic, columns, filled, totals):
                return filled, BAD_MESSAGE
            filled += 1
        at = stop
    return filled, DONE


@kernel
def fill_records(
    data: Any, arena: Any, table: Any, first_row: int, end_row: int, skip: Any, starts: Any, ends: Any,
    range_start: int, range_end: int, columns: Any, totals: Any, cursor: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Decode the rows' payloads into `columns`; return (records, row where it stopped, status).

    Only records with an offset in `[range_start, range_end)` are kept. A count that its payload cannot hold is refused
    before anything is read. `totals` is added to. With PIECE_FULL, the call is repeated from the row where it stopped,
    with the same cursor and fresh columns and totals; the cursor of a first call is zero.
    """
    filled: Any = np.int64(0)  # typed: numba would compile what it is handed to once more for the literal 0
    shift = np.int64(data.shape[0])
    for row in range(first_row, end_row):
        if skip[row] or table[COUNT, row] == 0:
            continue
        start = starts[row]
        end = ends[row]
        in_arena = start >= shift
        source = arena if in_arena else data
        moved = shift if in_arena else np.int64(0)
        start -= moved
        end -= moved
        if table[MAGIC, row] == 2:
            filled, status = _fill_v2(
                source, start, end, moved, table, row, range_start, range_end, columns, filled, totals, cursor
            )
        else:
            filled, status = _fill_legacy(
                source, start, end, moved, table, row, range_start, range_end, columns, filled, totals, cursor
            )
        if status != DONE:
            return filled, row, status
        cursor[CURSOR_RECORD] = 0
        cursor[CURSOR_POSITION] = 0
    return filled, end_row, DONE
