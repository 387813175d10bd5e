"""Read batches from a file straight into Arrow's buffers: one call a record batch, in steps that stay in the cache.

Reading, checksums, decompression and decoding of so few bytes find them in the processor's own cache each time; done
for megabytes, each would fetch them from memory again. Whatever is odd ends the call before the batch that is odd:
the walk (`kseg.log.walk`) takes any batch, and can say what is wrong with one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.codecs import fill_payloads
from kseg.native.header_reads import STEP_BYTES, call_pread, move_to_front
from kseg.native.headers import fill_checked, find_disorder
from kseg.native.memory import load_i32
from kseg.native.records import HEADERS, PIECE_FULL
from kseg.native.rows import FILLED, STATE, fill_rows, stamp_type
from kseg.native.table import ATTRIBUTES, CODEC_MASK, LAST_OFFSET, LOG_OVERHEAD, POSITION, SIZE
from kseg.native.visibility import fill_hidden

# entries of the int64 array `cursor`
FROM: Final = 0  # position in the file of the buffer's first byte
HELD: Final = 1  # bytes in the buffer
WALKED: Final = 2  # bytes of them that the rows cover
ROW: Final = 3  # the next row to decode
READY: Final = 4  # rows before it have their payloads
ROWS: Final = 5
BEFORE: Final = 6  # last offset before the rows
LAST: Final = 7  # last offset so far
STAMPS: Final = 8  # timestamp type of all records in the outputs
CURSOR: Final = 9

ODD: Final = 0  # the next batch, if there is one, is not for this kernel
FULL: Final = 1  # the outputs are full, or what follows does not go with them
ENDED: Final = 2  # the last wanted offset, or the end of the range, was reached
PAUSED: Final = 3  # so many bytes were read, whatever came of them

TOGETHER_BYTES: Final = 64 << 10  # of compressed batches that are decompressed before they are decoded


@inlined
def _read_step(pread: int, descriptor: int, end: int, buffer: Any, cursor: Any) -> bool:
    """Move what is left to the buffer's start and read on behind it; say whether any bytes came.

    A batch that fills much of a step is read to its end and no further, so that nothing of the next one is moved.
    """
    walked, left = cursor[WALKED], cursor[HELD] - cursor[WALKED]
    move_to_front(buffer, walked, left)
    cursor[FROM] += walked
    cursor[HELD], cursor[WALKED] = left, 0
    size: Any = np.int64(STEP_BYTES)
    if left >= LOG_OVERHEAD:
        batch = load_i32(buffer, 8) + LOG_OVERHEAD
        size = batch - left if batch > STEP_BYTES // 2 else size
    size = min(size, np.int64(buffer.shape[0]) - left, end - cursor[FROM] - left)
    if size <= 0:
        return False
    got = call_pread(pread, descriptor, buffer, left, size, cursor[FROM] + left)
    cursor[HELD] += max(got, 0)
    return bool(got > 0)


@inlined
def _walk_step(
    buffer: Any, table: Any, hidden: Any, producers: Any, firsts: Any, markers: Any, base_offset: int,
    range_start: int, range_end: int, cursor: Any,
) -> bool:  # fmt: skip
    """Walk the whole batches in the buffer, and take the rows that a reader wants; say whether the next one is odd."""
    cursor[BEFORE] = cursor[LAST]
    found, walked, status = fill_checked(buffer, cursor[WALKED], cursor[HELD], cursor[FROM], table, 0)
    disorder, last = find_disorder(table, found, base_offset, cursor[LAST])
    if disorder >= 0:
        found, walked = disorder, table[POSITION, disorder] - cursor[FROM]
    cursor[LAST], cursor[WALKED] = last, walked
    row: Any = np.int64(0)
    while row < found and table[LAST_OFFSET, row] < range_start:
        row += 1
    rows = found
    while rows > row + 1 and table[LAST_OFFSET, rows - 2] >= range_end - 1:
        rows -= 1
    fill_hidden(table, row, rows, producers, firsts, markers, hidden)
    cursor[ROW], cursor[READY], cursor[ROWS] = row, row, rows
    return bool(found == 0 and (status < 0 or disorder >= 0))


@inlined
def _end_of_group(table: Any, row: int, rows: int, hidden: Any, stamps: int) -> int:
    """Up to where rows are decompressed together: what came out of them should be in the cache when it is decoded."""
    compressed = 0
    while row < rows and compressed < TOGETHER_BYTES:
        if not hidden[row] and stamp_type(table, row) != stamps:
            break
        if table[ATTRIBUTES, row] & CODEC_MASK:
            compressed += table[SIZE, row]
        row += 1
    return row


@kernel
def read_rows(
    pread: int, descriptor: int, end: int, most: int, buffer: Any, table: Any, hidden: Any, producers: Any, firsts: Any,
    markers: Any, base_offset: int, arena: Any, limit: int, functions: Any, starts: Any, ends: Any,
    range_start: int, range_end: int, rows: int, offsets: Any, timestamps: Any, unit: int, largest: int,
    key_offsets: Any, keys: Any, key_bitmap: Any, value_offsets: Any, values: Any, value_bitmap: Any,
    places: Any, kept: Any, cursor: Any, state: Any, saved: Any,
) -> int:  # fmt: skip
    """Read the records of `[range_start, range_end)` from a file, up to byte `end`, into Arrow's buffers.

    Returns ODD, FULL, ENDED, PAUSED where `most` bytes were read, or the negative status of `rows.fill_rows` for a
    batch whose records are broken; ROW of the cursor is then that batch, and what came before it is in the outputs.
    The cursor of a first call holds FROM and LAST, zeros else. Buffer, table, arena and the ranges in `starts` and
    `ends` stay as they are from call to call; aborted transactions are given as to `visibility.fill_hidden`, outputs
    and state as to `rows.fill_rows`. The call ends behind records with headers, if those are wanted: their bytes are
    still there then.
    """
    pause = cursor[FROM] + most
    while True:
        while cursor[ROW] < cursor[ROWS]:
            row = cursor[ROW]
            if row == cursor[READY]:
                if state[FILLED] == 0:
                    cursor[STAMPS] = stamp_type(table, row)
                stop = _end_of_group(table, row, cursor[ROWS], hidden, cursor[STAMPS])
                if stop == row:
                    return FULL
                ready, _ = fill_payloads(
                    buffer, cursor[FROM], table, row, stop, hidden, arena, limit, functions, starts, ends
                )
                if ready == row:
                    return ODD
                cursor[READY] = ready
            for i in range(STATE):
                saved[i] = state[i]
            stopped, status = fill_rows(
                buffer, arena, table, row, cursor[READY], hidden, starts, ends, range_start, range_end, rows, offsets,
                timestamps, unit, largest, key_offsets, keys, key_bitmap, value_offsets, values, value_bitmap, places,
                kept, state,
            )  # fmt: skip
            if status < 0:  # once more, without the damaged batch: its records are in the buffers already
                for i in range(STATE):
                    state[i] = saved[i]
                fill_rows(
                    buffer, arena, table, row, stopped, hidden, starts, ends, range_start, range_end, rows, offsets,
                    timestamps, unit, largest, key_offsets, keys, key_bitmap, value_offsets, values, value_bitmap,
                    places, kept, state,
                )  # fmt: skip
                cursor[ROW] = stopped
                return status
            cursor[ROW] = stopped
            if status == PIECE_FULL or state[HEADERS]:
                return FULL
        if cursor[LAST] >= range_end - 1:
            return ENDED
        if cursor[FROM] > pause:
            return PAUSED
        if _walk_step(buffer, table, hidden, producers, firsts, markers, base_offset, range_start, range_end, cursor):
            return ODD
        if cursor[ROWS] == 0 and not _read_step(pread, descriptor, end, buffer, cursor):
            return ENDED if cursor[HELD] == 0 and cursor[FROM] >= end else ODD
