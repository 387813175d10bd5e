"""Index entries from the batch table: Kafka's rule for when a batch gets an entry, and for when a segment is full.

One rule serves appending and rebuilding (Kafka's LogSegment.append and .recover agree). Before each batch the limits
are asked whether the segment has to be rolled first; then, in this order:

1. a greater timestamp than all before is remembered with the batch's last offset;
2. if more than the interval was appended since the last entry, the batch gets an offset entry, and the greatest
   timestamp a time entry unless the last time entry already has it;
3. the batch's size is counted.

So a segment's first batch never has an entry.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import kernel
from kseg.native.table import LAST_OFFSET, MAX_TIMESTAMP, SIZE

MAX_INT32: Final = 2**31 - 1

# What is known of the segment so far: the kernel reads and updates it.
STATE_BASE_OFFSET: Final = 0
STATE_INTERVAL: Final = 1  # index.interval.bytes
STATE_SIZE: Final = 2  # bytes of the segment: where the next batch goes
STATE_UNINDEXED: Final = 3  # bytes since the last entry
STATE_FIRST_TIMESTAMP: Final = 4  # greatest timestamp of the first batch: the clock of segment.ms
STATE_MAX_TIMESTAMP: Final = 5
STATE_MAX_TIMESTAMP_OFFSET: Final = 6
STATE_OFFSET_ENTRIES: Final = 7  # entries so far
STATE_LAST_INDEXED: Final = 8  # offset of the last offset entry
STATE_TIME_ENTRIES: Final = 9
STATE_LAST_TIME: Final = 10  # timestamp of the last time entry
STATE_LAST_TIME_OFFSET: Final = 11
STATE_FIELDS: Final = 12

LIMIT_SEGMENT_BYTES: Final = 0
LIMIT_SEGMENT_MS: Final = 1
LIMIT_OFFSET_ENTRIES: Final = 2
LIMIT_TIME_ENTRIES: Final = 3
LIMIT_AGE_MS: Final = 4  # now - creation: the clock of segment.ms where the first batch has no timestamp
LIMIT_FIELDS: Final = 5

STOP_NONE: Final = 0  # all rows were taken
STOP_SEGMENT_BYTES: Final = 1  # from here to STOP_OFFSET_RANGE: roll before this row
STOP_SEGMENT_MS: Final = 2
STOP_OFFSET_INDEX_FULL: Final = 3
STOP_TIME_INDEX_FULL: Final = 4
STOP_OFFSET_RANGE: Final = 5  # the offset is not within 2^31 - 1 of the base, or below it
STOP_BATCH_TOO_LARGE: Final = 6  # no segment can take it
STOP_OUT_OF_ORDER: Final = 7  # offsets do not ascend where an entry is due
STOP_LOG_TOO_LARGE: Final = 8  # positions are 32-bit
STOP_NO_SPACE: Final = 9  # the caller's arrays are full: call again


@kernel
def scan_roll(state: Any, limits: Any, size: int, last_offset: int, max_timestamp: int) -> int:
    """Say why the segment has to be rolled before a batch (STOP_...), or STOP_NONE."""
    if size > limits[LIMIT_SEGMENT_BYTES]:
        return STOP_BATCH_TOO_LARGE
    if state[STATE_SIZE] > limits[LIMIT_SEGMENT_BYTES] - size:
        return STOP_SEGMENT_BYTES
    if state[STATE_SIZE] > 0:
        first = state[STATE_FIRST_TIMESTAMP]
        if first < 0:
            if limits[LIMIT_AGE_MS] > limits[LIMIT_SEGMENT_MS]:
                return STOP_SEGMENT_MS
        elif max_timestamp > first and max_timestamp - first > limits[LIMIT_SEGMENT_MS]:
            return STOP_SEGMENT_MS
    if state[STATE_OFFSET_ENTRIES] >= limits[LIMIT_OFFSET_ENTRIES]:
        return STOP_OFFSET_INDEX_FULL
    if state[STATE_TIME_ENTRIES] >= limits[LIMIT_TIME_ENTRIES] - 1:  # the last slot is for the entry at the roll
        return STOP_TIME_INDEX_FULL
    base = state[STATE_BASE_OFFSET]
    if last_offset < base or last_offset - base > MAX_INT32:
        return STOP_OFFSET_RANGE
    return STOP_NONE


@kernel
def fill_index_entries(
    table: Any, first_row: int, end_row: int, state: Any, limits: Any, offset_entries: Any, time_entries: Any
) -> tuple[int, int, int, int]:
    """Take rows `[first_row, end_row)` into a segment; return (rows taken, offset entries, time entries, STOP_...).

    `offset_entries[2, n]` gets (offset, position), `time_entries[2, n]` (timestamp, offset). `state` is updated for the
    rows that were taken and for no other.
    """
    offsets = 0
    times = 0
    for row in range(first_row, end_row):
        size = table[SIZE, row]
        last_offset = table[LAST_OFFSET, row]
        max_timestamp = table[MAX_TIMESTAMP, row]
        stop = scan_roll(state, limits, size, last_offset, max_timestamp)
        if stop != STOP_NONE:
            return row - first_row, offsets, times, stop
        top = state[STATE_MAX_TIMESTAMP]
        top_offset = state[STATE_MAX_TIMESTAMP_OFFSET]
        if max_timestamp > top:
            top = max_timestamp
            top_offset = last_offset
        position = state[STATE_SIZE]
        if state[STATE_UNINDEXED] > state[STATE_INTERVAL]:
            if position > MAX_INT32:
                return row - first_row, offsets, times, STOP_LOG_TOO_LARGE
            if state[STATE_OFFSET_ENTRIES] > 0 and last_offset <= state[STATE_LAST_INDEXED]:
                return row - first_row, offsets, times, STOP_OUT_OF_ORDER
            if state[STATE_TIME_ENTRIES] > 0 and top_offset < state[STATE_LAST_TIME_OFFSET]:
                return row - first_row, offsets, times, STOP_OUT_OF_ORDER
            if offsets >= offset_entries.shape[1] or times >= time_entries.shape[1]:
                return row - first_row, offsets, times, STOP_NO_SPACE
            offset_entries[0, offsets] = last_offset
            offset_entries[1, offsets] = position
            offsets += 1
            state[STATE_OFFSET_ENTRIES] += 1
            state[STATE_LAST_INDEXED] = last_offset
            if top > state[STATE_LAST_TIME]:
                time_entries[0, times] = top
                time_entries[1, times] = top_offset
                times += 1
                state[STATE_TIME_ENTRIES] += 1
                state[STATE_LAST_TIME] = top
                state[STATE_LAST_TIME_OFFSET] = top_offset
            state[STATE_UNINDEXED] = 0
        if position == 0:
            state[STATE_FIRST_TIMESTAMP] = max_timestamp
        state[STATE_MAX_TIMESTAMP] = top
        state[STATE_MAX_TIMESTAMP_OFFSET] = top_offset
        state[STATE_UNINDEXED] += size
        state[STATE_SIZE] += size
    return end_row - first_row, offsets, times, STOP_NONE
