"""Walk a byte range of a segment and fill the batch table; check the checksums of its rows.

Nothing here decompresses or looks at records, except the first record of a control batch, which tells the marker's
type.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel, stay_apart
from kseg.native.crc32c import crc32, inlined_crc32c
from kseg.native.memory import load_i16, load_i32, load_i64, load_u8, wrap_i64
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    COORDINATOR_EPOCH,
    COUNT,
    CRC,
    CRC_START,
    HEADER_SIZE,
    LAST_OFFSET,
    LEADER_EPOCH,
    LEGACY_CRC_START,
    LEGACY_MIN_LENGTH,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MARKER_TIMESTAMP,
    MARKER_TYPE,
    MAX_TIMESTAMP,
    POSITION,
    PREFIX_SIZE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
)
from kseg.native.varint import BAD_VARINT, read_varint, read_varlong

WALKED: Final = 0  # the range ended exactly behind a batch
INCOMPLETE: Final = 1  # the last batch runs past the end of the range
TABLE_FULL: Final = 2
BAD_LENGTH: Final = -1  # a length below the smallest that any format allows
BAD_MAGIC: Final = -2
SHORT_BATCH: Final = -3  # shorter than its own header
BAD_CHECKSUM: Final = -5

MAX_OFFSET: Final = 2**63 - 1  # no batch may end there: nothing could follow, and no range could end behind it

ABORT: Final = 0
COMMIT: Final = 1


@inlined
def _fill_marker(data: Any, start: int, end: int, table: Any, row: int) -> None:
    """Read type, time and coordinator epoch of the control record at `start`; what is broken stays -1."""
    _, p = read_varint(data, start, end)
    if p == BAD_VARINT or p >= end:
        return
    delta, p = read_varlong(data, p + 1, end)
    if p == BAD_VARINT:
        return
    _, p = read_varint(data, p, end)
    if p == BAD_VARINT:
        return
    key_length, p = read_varint(data, p, end)
    if p == BAD_VARINT or key_length < 4 or key_length > end - p or load_i16(data, p) < 0:
        return
    kind = load_i16(data, p + 2)
    table[MARKER_TYPE, row] = kind
    table[MARKER_TIMESTAMP, row] = table[MAX_TIMESTAMP, row]
    if not table[ATTRIBUTES, row] & LOG_APPEND_TIME_BIT:
        table[MARKER_TIMESTAMP, row] = wrap_i64(int(table[BASE_TIMESTAMP, row]) + int(delta))
    value_length, p = read_varint(data, p + key_length, end)
    if p == BAD_VARINT or kind < 0 or kind > COMMIT or value_length < 6 or value_length > end - p:
        return
    table[COORDINATOR_EPOCH, row] = load_i32(data, p + 2)


@inlined
def fill_v2_row(data: Any, at: int, size: int, table: Any, row: int) -> None:
    """Fill a row from the header at `at` of `data`, of whose batch `size` bytes are there."""
    attributes = load_i16(data, at + 21) & 0xFFFF
    count = load_i32(data, at + 57)
    table[LEADER_EPOCH, row] = load_i32(data, at + 12)
    table[CRC, row] = load_i32(data, at + 17) & 0xFFFFFFFF
    table[ATTRIBUTES, row] = attributes
    table[LAST_OFFSET, row] = wrap_i64(load_i64(data, at) + load_i32(data, at + 23))
    table[BASE_TIMESTAMP, row] = load_i64(data, at + 27)
    table[MAX_TIMESTAMP, row] = load_i64(data, at + 35)
    table[PRODUCER_ID, row] = load_i64(data, at + 43)
    table[PRODUCER_EPOCH, row] = load_i16(data, at + 51)
    table[BASE_SEQUENCE, row] = load_i32(data, at + 53)
    table[COUNT, row] = count
    table[MARKER_TYPE, row] = -1
    table[COORDINATOR_EPOCH, row] = -1
    table[MARKER_TIMESTAMP, row] = -1
    if attributes & CONTROL_BIT and not attributes & CODEC_MASK and count > 0:
        _fill_marker(data, at + HEADER_SIZE, at + size, table, row)


@inlined
def fill_legacy_row(data: Any, at: int, size: int, magic: int, table: Any, row: int) -> None:
    """Fill a row from the legacy message at `at` of `data`, which has `size` bytes."""
    attributes = load_u8(data, at + 17)
    compressed = attributes & CODEC_MASK
    timestamp = -1
    if magic == 1 and size >= 26:
        timestamp = load_i64(data, at + 18)
    table[LEADER_EPOCH, row] = -1
    table[CRC, row] = load_i32(data, at + 12) & 0xFFFFFFFF
    table[ATTRIBUTES, row] = attributes
    table[LAST_OFFSET, row] = load_i64(data, at)
    if compressed:
        table[BASE_OFFSET, row] = -1
    table[BASE_TIMESTAMP, row] = timestamp
    table[MAX_TIMESTAMP, row] = timestamp
    table[PRODUCER_ID, row] = -1
    table[PRODUCER_EPOCH, row] = -1
    table[BASE_SEQUENCE, row] = -1
    table[COUNT, row] = -1 if compressed else 1
    table[MARKER_TYPE, row] = -1
    table[COORDINATOR_EPOCH, row] = -1
    table[MARKER_TIMESTAMP, row] = -1


@inlined
def _checksum(data: Any, at: int, end: int, magic: int) -> Any:
    if magic == 2:
        return inlined_crc32c(data, at + CRC_START, end)
    return crc32(data, at + LEGACY_CRC_START, end)


@inlined
def _fill(
    data: Any, start: int, end: int, file_position: int, table: Any, first_row: int, check: bool
) -> tuple[int, int, int]:
    row = first_row
    at = start
    while at < end:
        if end - at <= PREFIX_SIZE:  # as Kafka's file iterator: a batch needs more than the common prefix
            return row - first_row, at, INCOMPLETE
        length = load_i32(data, at + 8)
        if length < LEGACY_MIN_LENGTH:
            return row - first_row, at, BAD_LENGTH
        size = length + LOG_OVERHEAD
        if size > end - at:
            return row - first_row, at, INCOMPLETE
        magic = load_u8(data, at + 16)
        if magic > 2:
            return row - first_row, at, BAD_MAGIC
        if magic == 2 and size < HEADER_SIZE:
            return row - first_row, at, SHORT_BATCH
        if row >= table.shape[1]:
            return row - first_row, at, TABLE_FULL
        table[POSITION, row] = file_position + at
        table[SIZE, row] = size
        table[BASE_OFFSET, row] = load_i64(data, at)
        table[MAGIC, row] = magic
        if magic == 2:
            fill_v2_row(data, at, size, table, row)
        else:
            fill_legacy_row(data, at, size, magic, table, row)
        if check and _checksum(data, at, at + size, magic) != table[CRC, row]:
            return row - first_row, at, BAD_CHECKSUM
        row += 1
        at += size
    return row - first_row, at, WALKED


@kernel
def fill_headers(
    data: Any, start: int, end: int, file_position: int, table: Any, first_row: int
) -> tuple[int, int, int]:
    """Walk the batches of `data[start:end]` into `table` from `first_row` on; return (rows filled, next, status).

    `file_position` is where `data[0]` lies in its file. `next` is where the walk stopped in `data`: behind the last
    whole batch. With INCOMPLETE, the bytes from `next` on are the start of a batch, or too few to tell.
    """
    return _fill(data, start, end, file_position, table, first_row, False)


@kernel
def fill_checked(
    data: Any, start: int, end: int, file_position: int, table: Any, first_row: int
) -> tuple[int, int, int]:
    """Walk as `fill_headers` does, and compare each batch's checksum while its bytes are at hand.

    With BAD_CHECKSUM the walk stopped before that batch, whose row stands behind the rows that are counted.
    """
    stay_apart()
    return _fill(data, start, end, file_position, table, first_row, True)


@kernel
def scan_candidate(data: Any, start: int, end: int, left: int, base_offset: int, next_offset: int) -> tuple[int, int]:
    """Where, from `start` on, the first 17 bytes of a batch could be, and its size; (-1, 0) where that is nowhere.

    Magic, length and offset are possible: the batch would end within `left` bytes of `data[0]`, and its offset is in
    `[next_offset, base_offset + 2^31)`.
    """
    for at in range(start, end - PREFIX_SIZE + 1):
        magic = load_u8(data, at + 16)
        if magic > 2:
            continue
        size = load_i32(data, at + 8) + LOG_OVERHEAD
        smallest = HEADER_SIZE if magic == 2 else LEGACY_MIN_LENGTH + LOG_OVERHEAD
        if size < smallest or size > left - at:
            continue
        offset = load_i64(data, at)
        if next_offset <= offset <= base_offset + 0x7FFFFFFF:
            return at, size
    return -1, 0


@kernel
def scan_checksums(data: Any, file_position: int, table: Any, first_row: int, rows: int) -> tuple[int, Any]:
    """Compare stored and computed checksum of each row; return (row, computed) of the first that differs, or (-1, 0).

    The rows are whole inside `data`, which `fill_headers` has seen to.
    """
    for row in range(first_row, first_row + rows):
        at = table[POSITION, row] - file_position
        end = at + table[SIZE, row]
        computed = _checksum(data, at, end, table[MAGIC, row])
        if computed != table[CRC, row]:
            return row, computed
    return -1, np.int64(0)


@kernel
def find_disorder(table: Any, rows: int, base_offset: int, last_offset: int) -> tuple[int, int]:
    """Find the first row whose offsets do not rise, or fit no segment or not this; return it and the offset before it.

    Where all are in order, that is -1 and the last offset.
    """
    before = max(last_offset, base_offset - 1)
    for row in range(rows):
        last = int(table[LAST_OFFSET, row])
        first = int(table[BASE_OFFSET, row])
        if first < 0 and table[MAGIC, row] < 2:  # a wrapper, of which only the last offset is known yet
            first = last
        if last < 0 or first <= before or last < first or last - base_offset > 0x7FFFFFFF or last == MAX_OFFSET:
            return row, before
        before = last
    return -1, before
