"""Read batches from a file straight into Arrow's buffers: one call a record batch, in steps (`steps.py`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.header_reads import STEP_BYTES
from kseg.native.memory import load_i32, move_bytes
from kseg.native.plain_batches import SMALL_BYTES, STAMPS, fill_plain_batches
from kseg.native.plain_records import SLACK
from kseg.native.records import HEADERS, PIECE_FULL, VALUE_BYTES
from kseg.native.row_block import LARGEST, ROOM, UNIT, inlined_split_block
from kseg.native.rows import FILLED, IN_PLACE, OUT_OF_PLACE, fill_rows, stamp_type
from kseg.native.steps import (
    BEFORE,
    DAMAGED,
    ENDED,
    FROM,
    FULL,
    HELD,
    ODD,
    OVER,
    READY,
    ROW,
    ROWS,
    STEP_CURSOR,
    WALKED,
    check_step,
    end_of_group,
    is_at_end,
    read_step,
    unpack_rows,
)
from kseg.native.table import ATTRIBUTES, CODEC_MASK, COUNT, LAST_OFFSET, LOG_OVERHEAD, MAGIC, POSITION, SIZE
from kseg.native.visibility import fill_hidden

NOWHERE: Final = np.int64(-1)  # typed, as the places are that it stands beside
IN_PLACE_BYTES: Final = STEP_CURSOR + 1  # entry of the cursor: how large batches are that may be read in place, else 0
CURSOR: Final = STEP_CURSOR + 2

LARGE_RECORD_BYTES: Final = 512

PAUSED: Final = 4  # so many bytes were read, whatever came of them


@inlined
def _walk_step(
    buffer: Any, table: Any, hidden: Any, aborted: Any, base_offset: int, span: Any, cursor: Any
) -> int:  # fmt: skip
    """Walk the whole batches in the buffer, take the rows that a reader wants; return what is wrong with the next."""
    range_start, range_end = span
    found, wrong = check_step(buffer, table, base_offset, cursor)
    if found > 0:
        _measure_step(table, found, cursor)
    row: Any = np.int64(0)
    while row < found and table[LAST_OFFSET, row] < range_start:
        row += 1
    rows = found
    while rows > row + 1 and table[LAST_OFFSET, rows - 2] >= range_end - 1:
        rows -= 1
    if found > 0 and cursor[BEFORE] >= range_end - 1:
        row, rows = np.int64(0), 0
    cursor[OVER] = found > rows
    fill_hidden(table, row, rows, aborted[0], aborted[1], aborted[2], hidden)
    cursor[ROW], cursor[READY], cursor[ROWS] = row, row, rows
    return wrong


@inlined
def _end_of_group(table: Any, row: int, rows: int, hidden: Any, stamps: int) -> int:
    """Up to where rows are decompressed together, and have one timestamp type."""
    stop = end_of_group(table, row, rows)
    while row < stop and (hidden[row] or stamp_type(table, row) == stamps):
        row += 1
    return row


@inlined
def _measure_step(table: Any, found: int, cursor: Any) -> None:
    """Note how large the last batch of a step was, if batches like those are read in place; else 0.

    Small values are not: to move them over each other takes longer than to copy them elsewhere.
    """
    size: Any = np.int64(0)
    records: Any = np.int64(0)
    cursor[IN_PLACE_BYTES] = 0
    for row in range(found):
        if table[ATTRIBUTES, row] & CODEC_MASK or table[MAGIC, row] != 2:
            return
        size += table[SIZE, row]
        records += table[COUNT, row]
    if size > SMALL_BYTES * found and size // LARGE_RECORD_BYTES >= records:
        cursor[IN_PLACE_BYTES] = table[SIZE, found - 1]


@inlined
def _next_window(buffer: Any, window: Any, at: int, values: Any, value_at: int, cursor: Any) -> tuple[Any, Any]:
    """Where the next bytes go, with what is left of those before: (the array, its place in `values` or NOWHERE).

    Uncompressed batches go to where their values will be in the end. So these are moved within the CPU's cache, and no
    other memory is written to.
    """
    walked: Any = np.int64(cursor[WALKED])
    left: Any = np.int64(cursor[HELD]) - walked
    needed: Any = left + max(np.int64(STEP_BYTES), np.int64(cursor[IN_PLACE_BYTES]))
    if left >= LOG_OVERHEAD:
        needed = max(needed, np.int64(load_i32(window, walked + 8)) + LOG_OVERHEAD)
    room: Any = min(np.int64(values.shape[0]) - value_at, np.int64(buffer.shape[0]))
    fits = cursor[IN_PLACE_BYTES] > 0 and needed + SLACK <= room
    if at < 0 and not fits:
        return buffer, NOWHERE
    if fits and at == value_at and walked == 0:
        return window, at
    target, place = (values[value_at : value_at + room], value_at) if fits else (buffer, NOWHERE)
    move_bytes(target, 0, window, walked, left)
    cursor[FROM] += walked
    cursor[HELD], cursor[WALKED] = left, 0
    return target, place


@inlined
def _keep_rest(buffer: Any, window: Any, table: Any, cursor: Any) -> None:
    """Copy what was read in place and is not decoded to the same place of the buffer."""
    first = cursor[WALKED]
    if cursor[ROW] < cursor[ROWS]:
        first = table[POSITION, cursor[ROW]] - cursor[FROM]
    move_bytes(buffer, first, window, first, cursor[HELD] - first)


@inlined
def _read_rows(
    source: Any, buffer: Any, table: Any, hidden: Any, aborted: Any, base_offset: int, arena: Any, limit: int,
    functions: Any, starts: Any, ends: Any, span: Any, scale: Any, out: Any, kept: Any, cursor: Any, state: Any,
) -> tuple[int, Any, Any]:  # fmt: skip
    """As `read_rows` tells: (status, where the bytes are that are held, its place in the values or NOWHERE)."""
    pread, descriptor, end, pause = source
    rows, offsets, timestamps, key, value, places = out
    window: Any = buffer
    at: Any = NOWHERE
    while True:
        while cursor[ROW] < cursor[ROWS]:
            row = cursor[ROW]
            if row == cursor[READY]:
                if state[FILLED] == 0:
                    cursor[STAMPS] = stamp_type(table, row)
                stop = _end_of_group(table, row, cursor[ROWS], hidden, cursor[STAMPS])
                if stop == row:
                    return FULL, window, at
                if not unpack_rows(window, table, stop, hidden, arena, limit, functions, starts, ends, cursor):
                    return ODD, window, at
            state[IN_PLACE] = at >= 0
            cursor[ROW], status = fill_rows(
                window, arena, table, row, cursor[READY], hidden, starts, ends, span[0], span[1], rows, offsets,
                timestamps, scale[0], scale[1], key[0], key[1], key[2], value[0], value[1], value[2], places, kept,
                state,
            )  # fmt: skip
            if status < 0:
                return status, window, at
            if status == PIECE_FULL or state[HEADERS]:
                return FULL, window, at
            if status == OUT_OF_PLACE:
                _keep_rest(buffer, window, table, cursor)
                window, at, cursor[IN_PLACE_BYTES] = buffer, NOWHERE, 0
        if cursor[OVER]:
            return ENDED, window, at
        if cursor[FROM] > pause:
            return PAUSED, window, at
        if at < 0 and fill_plain_batches(
            buffer, aborted[0], base_offset, arena, limit, functions, span, scale, out, cursor, state
        ):
            return FULL, window, at
        wrong = _walk_step(window, table, hidden, aborted, base_offset, span, cursor)
        if at >= 0 and cursor[ROWS] > 0 and cursor[IN_PLACE_BYTES] == 0:
            _keep_rest(buffer, window, table, cursor)
            window, at = buffer, NOWHERE
        is_behind = cursor[BEFORE] >= span[1] - 1
        if wrong:
            return ENDED if is_behind and wrong == DAMAGED else ODD, window, at
        if cursor[ROWS] == 0 and not cursor[OVER]:
            window, at = _next_window(buffer, window, at, value[1], state[VALUE_BYTES], cursor)
            if not read_step(pread, descriptor, end, window, cursor):
                return ENDED if is_behind or is_at_end(end, cursor) else ODD, window, at


@kernel
def read_rows(
    pread: int, descriptor: int, end: int, most: int, buffer: Any, table: Any, hidden: Any, producers: Any, firsts: Any,
    markers: Any, base_offset: int, arena: Any, limit: int, functions: Any, starts: Any, ends: Any,
    range_start: int, range_end: int, block: Any, layout: Any, places: Any, kept: Any, cursor: Any, state: Any,
) -> int:  # fmt: skip
    """Read the records of `[range_start, range_end)` from a file, up to byte `end`, into Arrow's buffers.

    Returns ODD, FULL, ENDED, PAUSED where `most` bytes were read, or the negative status of `rows.fill_rows` for a
    batch whose records are broken; ROW of the cursor is then that batch, and what came before it is in the outputs.
    Buffer, table, arena and the ranges in `starts` and `ends` stay as they are from call to call; aborted transactions
    are given as to `visibility.fill_hidden`, outputs as `row_block.py` tells, the state as to `rows.fill_rows`. The
    call ends behind records with headers, if those are wanted: their bytes are still there then.
    """
    offsets, timestamps, key_offsets, keys, key_bitmap, value_offsets, values, value_bitmap = inlined_split_block(
        block, layout
    )
    key, value = (key_offsets, keys, key_bitmap), (value_offsets, values, value_bitmap)
    status, window, at = _read_rows(
        (pread, descriptor, end, cursor[FROM] + most), buffer, table, hidden, (producers, firsts, markers), base_offset,
        arena, limit, functions, starts, ends, (range_start, range_end), (layout[UNIT], layout[LARGEST]),
        (layout[ROOM], offsets, timestamps, key, value, places), kept, cursor, state,
    )  # fmt: skip
    if at >= 0 and status in (FULL, PAUSED):
        _keep_rest(buffer, window, table, cursor)
    return status
