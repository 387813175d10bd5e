"""Read batches from a file straight into Arrow's buffers: one call a record batch, in steps (`steps.py`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.plain_batches import STAMPS, fill_plain_batches
from kseg.native.records import HEADERS, PIECE_FULL
from kseg.native.row_block import LARGEST, ROOM, UNIT, inlined_split_block
from kseg.native.rows import FILLED, STATE, fill_rows, stamp_type
from kseg.native.steps import (
    BEFORE,
    DAMAGED,
    ENDED,
    FROM,
    FULL,
    ODD,
    OVER,
    READY,
    ROW,
    ROWS,
    STEP_CURSOR,
    check_step,
    end_of_group,
    is_at_end,
    read_step,
    unpack_rows,
)
from kseg.native.table import LAST_OFFSET
from kseg.native.visibility import fill_hidden

CURSOR: Final = STEP_CURSOR + 1

PAUSED: Final = 4  # so many bytes were read, whatever came of them


@inlined
def _walk_step(
    buffer: Any, table: Any, hidden: Any, producers: Any, firsts: Any, markers: Any, base_offset: int,
    range_start: int, range_end: int, cursor: Any,
) -> int:  # fmt: skip
    """Walk the whole batches in the buffer, take the rows that a reader wants; return what is wrong with the next."""
    found, wrong = check_step(buffer, table, base_offset, cursor)
    row: Any = np.int64(0)
    while row < found and table[LAST_OFFSET, row] < range_start:
        row += 1
    rows = found
    while rows > row + 1 and table[LAST_OFFSET, rows - 2] >= range_end - 1:
        rows -= 1
    if found > 0 and cursor[BEFORE] >= range_end - 1:
        row, rows = np.int64(0), 0
    cursor[OVER] = found > rows
    fill_hidden(table, row, rows, producers, firsts, markers, hidden)
    cursor[ROW], cursor[READY], cursor[ROWS] = row, row, rows
    return wrong


@inlined
def _end_of_group(table: Any, row: int, rows: int, hidden: Any, stamps: int) -> int:
    """Up to where rows are decompressed together, and have one timestamp type."""
    stop = end_of_group(table, row, rows)
    while row < stop and (hidden[row] or stamp_type(table, row) == stamps):
        row += 1
    return row


@kernel
def read_rows(
    pread: int, descriptor: int, end: int, most: int, buffer: Any, table: Any, hidden: Any, producers: Any, firsts: Any,
    markers: Any, base_offset: int, arena: Any, limit: int, functions: Any, starts: Any, ends: Any,
    range_start: int, range_end: int, block: Any, layout: Any, places: Any, kept: Any, cursor: Any, state: Any,
    saved: Any,
) -> int:  # fmt: skip
    """Read the records of `[range_start, range_end)` from a file, up to byte `end`, into Arrow's buffers.

    Returns ODD, FULL, ENDED, PAUSED where `most` bytes were read, or the negative status of `rows.fill_rows` for a
    batch whose records are broken; ROW of the cursor is then that batch, and what came before it is in the outputs.
    Buffer, table, arena and the ranges in `starts` and `ends` stay as they are from call to call; aborted transactions
    are given as to `visibility.fill_hidden`, outputs as `row_block.py` tells, the state as to `rows.fill_rows`. The
    call ends behind records with headers, if those are wanted: their bytes are still there then.
    """
    rows, unit, largest = layout[ROOM], layout[UNIT], layout[LARGEST]
    offsets, timestamps, key_offsets, keys, key_bitmap, value_offsets, values, value_bitmap = inlined_split_block(
        block, layout
    )
    key, value = (key_offsets, keys, key_bitmap), (value_offsets, values, value_bitmap)
    out = (rows, offsets, timestamps, key, value, places)
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
                if not unpack_rows(buffer, table, stop, hidden, arena, limit, functions, starts, ends, cursor):
                    return ODD
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
        if cursor[OVER]:
            return ENDED
        if cursor[FROM] > pause:
            return PAUSED
        if fill_plain_batches(
            buffer, producers, base_offset, arena, limit, functions, (range_start, range_end), (unit, largest), out,
            cursor, state,
        ):  # fmt: skip
            return FULL
        wrong = _walk_step(
            buffer, table, hidden, producers, firsts, markers, base_offset, range_start, range_end, cursor
        )
        is_behind = cursor[BEFORE] >= range_end - 1
        if wrong:
            return ENDED if is_behind and wrong == DAMAGED else ODD
        if cursor[ROWS] == 0 and not cursor[OVER] and not read_step(pread, descriptor, end, buffer, cursor):
            return ENDED if is_behind or is_at_end(end, cursor) else ODD
