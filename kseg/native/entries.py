"""Judge the entries of a segment's indexes by the rows of the batch table: whole chunks in one call.

Nothing is decided here: verdicts are set, `kseg.index.entries` says what they mean. The plain twin is in
tests/verify/test_kernels.py.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined, kernel
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
)

# verdicts on entries of an offset index
NOT_AT_BATCH: Final = 1  # no batch starts at the position
TOO_LATE: Final = 2  # the batch before the position holds the offset, or a later one
NOT_HELD: Final = 4  # no batch holds the offset

# verdicts on entries of a time index
AS_LATE_BEFORE: Final = 1  # a batch before the position that the offset leads to is as late
NONE_AS_LATE: Final = 2  # no batch up to the offset is as late
LATER_BEFORE: Final = 4  # a batch up to the offset is later

# entries of the int64 array `cursor` of `scan_entries`
NEXT_POSITION: Final = 0  # the next entry of the offset index, by position
NEXT_OFFSET: Final = 1  # the same by offset
NEXT_PLACE: Final = 2  # the next entry of the time index, by the position that it leads to
NEXT_TIME_OFFSET: Final = 3  # the same by offset
SEEN_LAST: Final = 4  # last offset so far
SEEN_END: Final = 5  # byte behind the last batch so far
SEEN_MAX: Final = 6  # greatest timestamp so far
CURSOR_FIELDS: Final = 7

BEYOND: Final = 2**63 - 1


@kernel
def scan_entries(
    table: Any, rows: int, cursor: Any, offsets: Any, positions: Any, verdicts: Any,
    timestamps: Any, time_offsets: Any, places: Any, time_verdicts: Any,
) -> None:  # fmt: skip
    """Judge the entries of both indexes that point into these rows; the cursor says where the last call stopped.

    Entries ascend. Between rows that do not lie back to back something was left out: entries that point there are
    passed over. `places[i]` is where the offset index leads for `time_offsets[i]`.
    """
    by_position = cursor[NEXT_POSITION]
    by_offset = cursor[NEXT_OFFSET]
    by_place = cursor[NEXT_PLACE]
    by_time = cursor[NEXT_TIME_OFFSET]
    before, end, latest = cursor[SEEN_LAST], cursor[SEEN_END], cursor[SEEN_MAX]
    entries = offsets.shape[0]
    times = time_offsets.shape[0]
    next_position, next_offset = -1, -1  # where the next entry of any kind points
    for row in range(rows):
        position = table[POSITION, row]
        last = table[LAST_OFFSET, row]
        top = max(latest, table[MAX_TIMESTAMP, row])
        if position < next_position and last < next_offset:  # entries are far between
            latest = top
            continue
        if row > 0:
            before, end = table[LAST_OFFSET, row - 1], table[POSITION, row - 1] + table[SIZE, row - 1]
        first = table[BASE_OFFSET, row]
        if table[MAGIC, row] < 2 and table[ATTRIBUTES, row] & CODEC_MASK:
            first = before + 1 if last > before else last
        while by_position < entries and positions[by_position] < position:
            if positions[by_position] < end:
                verdicts[by_position] |= NOT_AT_BATCH
            by_position += 1
        if by_position < entries and positions[by_position] == position:
            if before >= offsets[by_position]:
                verdicts[by_position] |= TOO_LATE
            by_position += 1
        while by_offset < entries and offsets[by_offset] < first:
            if end == position:
                verdicts[by_offset] |= NOT_HELD
            by_offset += 1
        while by_offset < entries and offsets[by_offset] <= last:
            by_offset += 1
        while by_place < times and places[by_place] <= position:
            if places[by_place] == position and latest >= timestamps[by_place]:
                time_verdicts[by_place] |= AS_LATE_BEFORE
            by_place += 1
        while by_time < times and time_offsets[by_time] <= last:
            known = top if time_offsets[by_time] >= first else latest
            if timestamps[by_time] > known:
                time_verdicts[by_time] |= NONE_AS_LATE
            elif timestamps[by_time] < known:
                time_verdicts[by_time] |= LATER_BEFORE
            by_time += 1
        latest = top
        next_position = min(_next_of(positions, by_position), _next_of(places, by_place))
        next_offset = min(_next_of(offsets, by_offset), _next_of(time_offsets, by_time))
    cursor[NEXT_POSITION] = by_position
    cursor[NEXT_OFFSET] = by_offset
    cursor[NEXT_PLACE] = by_place
    cursor[NEXT_TIME_OFFSET] = by_time
    if rows > 0:
        cursor[SEEN_LAST] = table[LAST_OFFSET, rows - 1]
        cursor[SEEN_END] = table[POSITION, rows - 1] + table[SIZE, rows - 1]
    cursor[SEEN_MAX] = latest


@inlined
def _next_of(entries: Any, index: int) -> Any:
    return entries[index] if index < entries.shape[0] else BEYOND
