"""Decode the records of many batches straight into Arrow's buffers, in one call and one pass over their bytes.

`records.py` tells where fields lie; this copies them while they are in the CPU's cache. An output that is not wanted
is an empty array. Headers alone stay where they are: their places are kept for `gather.py`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel, stay_apart
from kseg.native.legacy import key_and_value
from kseg.native.memory import load_i32, load_i64, load_u8, move_bytes, wrap_i64
from kseg.native.plain_records import SLACK, read_plain
from kseg.native.records import (
    BAD_COUNT,
    BAD_MESSAGE,
    DONE,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    HEADERS,
    KEY_BYTES,
    LEFT_OVER,
    NULL_HEADER_VALUES,
    NULL_KEYS,
    NULL_VALUES,
    PIECE_FULL,
    TOTALS,
    VALUE_BYTES,
    legacy_base,
    prefetch_records,
    read_record,
)
from kseg.native.short_copies import BEYOND, copy_beyond
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    COUNT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    MIN_RECORD_SIZE,
)

# entries of the int64 array `state`: the totals of `records.py`, and
FILLED: Final = TOTALS  # rows of the outputs
WITH_HEADERS: Final = TOTALS + 1  # records that have any
UNFIT_TIMESTAMP: Final = TOTALS + 2  # a timestamp that does not fit the column's unit, else 0
NEXT_RECORD: Final = TOTALS + 3  # records that are done of the batch that was left in the middle
NEXT_POSITION: Final = TOTALS + 4  # of its next record, from the payload's start
IN_PLACE: Final = TOTALS + 5  # whether `data` is where the values go, so that they are moved over what was read
STATE: Final = TOTALS + 6

OUT_OF_PLACE: Final = 2  # headers are wanted, and those of the next record would be overwritten: go on elsewhere
MIXED_TYPES: Final = -2


@inlined
def stamp_type(table: Any, row: int) -> Any:
    """A batch's timestamp type, -1 for magic 0, which has none; inner messages are not asked, as in a consumer."""
    if table[MAGIC, row] == 0:
        return np.int64(-1)
    return np.int64(1 if table[ATTRIBUTES, row] & LOG_APPEND_TIME_BIT else 0)


@kernel
def measure_rows(table: Any, first_row: int, end_row: int, skip: Any, starts: Any, ends: Any) -> tuple[int, int, int]:
    """What the rows' payloads can hold at most, whatever they say: (records, bytes of keys and values).

    The third number is the timestamp type that all of them have, or MIXED_TYPES.
    """
    most: Any = np.int64(0)
    size: Any = np.int64(0)
    kind: Any = np.int64(MIXED_TYPES)
    for row in range(first_row, end_row):
        if skip[row]:
            continue
        payload = ends[row] - starts[row]
        count = table[COUNT, row]
        if table[MAGIC, row] == 2:
            count = min(count, payload // MIN_RECORD_SIZE)
        if count > 0:
            found = stamp_type(table, row)
            kind = found if most == 0 or kind == found else np.int64(MIXED_TYPES)
            most += count
        size += payload
    return most, size, kind


@inlined
def _has_room(out: Any, place: Any, key_length: int, value_length: int, beyond: int) -> bool:
    """Whether there is room for a record, and so many bytes beyond its key and its value."""
    rows, _, _, key, value, _ = out
    row, key_at, value_at, _, _ = place
    if row >= rows:
        return False
    if key[0].shape[0] > 0 and key_length > key[1].shape[0] - beyond - key_at:
        return False
    return not (value[0].shape[0] > 0 and value_length > value[1].shape[0] - beyond - value_at)


@inlined
def _append_binary(
    source: Any, start: int, length: int, column: Any, row: int, at: int, nulls: int, beyond: int
) -> tuple[int, int]:
    """Append a field, if its column is wanted; return (where the next one goes, nulls so far)."""
    offsets, content, bitmap = column
    if offsets.shape[0] == 0:
        return at, nulls
    offsets[np.uint64(row)] = at
    if length >= 0:
        if beyond:
            copy_beyond(content, at, source, start, length)
        else:
            move_bytes(content, at, source, start, length)  # in place they overlap
        return at + length, nulls
    if nulls == 0:
        bitmap[:] = 255
    bitmap[row >> 3] &= ~(1 << (row & 7))
    return at, nulls + 1


@inlined
def _append(
    source: Any, offset: int, timestamp: int, key_start: int, key_length: int, value_start: int, value_length: int,
    headers_start: int, headers: int, scale: Any, out: Any, place: Any, state: Any, beyond: int,
) -> Any:  # fmt: skip
    """Append a record, whose room was checked; return the place behind it."""
    _, offsets, timestamps, key, value, places = out
    row, key_at, value_at, null_keys, null_values = place
    unit, largest = scale
    if offsets.shape[0]:
        offsets[np.uint64(row)] = offset
    if timestamps.shape[0]:
        if unit == 1 or -largest <= timestamp <= largest:
            timestamps[np.uint64(row)] = timestamp * unit
        else:
            state[UNFIT_TIMESTAMP] = timestamp
    key_at, null_keys = _append_binary(source, key_start, key_length, key, row, key_at, null_keys, beyond)
    value_at, null_values = _append_binary(source, value_start, value_length, value, row, value_at, null_values, beyond)
    if places.shape[1]:
        if headers:
            if state[WITH_HEADERS] == 0:
                places[1, :row] = 0
            places[0, row] = headers_start
            state[HEADERS] += headers
            state[WITH_HEADERS] += 1
        if state[WITH_HEADERS]:
            places[1, row] = headers
    return row + 1, key_at, value_at, null_keys, null_values


@inlined
def fill_plain(
    source: Any, at: int, end: int, i: int, count: int, base: Any, span: Any, scale: Any, out: Any, place: Any,
    state: Any, beyond: int,
) -> tuple[int, int, Any]:  # fmt: skip
    """Decode records from the i-th on as long as they are plain and have room; return (the next, where, the place).

    With BEYOND for `beyond`, which is known when this is compiled, more is copied than a field has, and room for that
    is asked for; with 0, nothing that lies behind a field's own bytes is written to.
    """
    while i < count:
        prefetch_records(source, at)
        plain, following, timestamp_delta, offset_delta, key_start, key_length, value_start, value_length = read_plain(
            source, at, end
        )
        if not plain:
            break
        offset = wrap_i64(base[0] + offset_delta)
        if span[0] <= offset < span[1]:
            if not _has_room(out, place, key_length, value_length, beyond):
                break
            timestamp = wrap_i64(base[1] + (timestamp_delta & base[2]))
            place = _append(
                source, offset, timestamp, key_start, key_length, value_start, value_length, 0, 0, scale, out, place,
                state, beyond,
            )  # fmt: skip
        at = following
        i += 1
    return i, at, place


# The two loops that most records go through are functions of their own: in one with everything around them, what they
# count would lie in memory.
@kernel
def _fill_copied(
    source: Any, at: int, end: int, i: int, count: int, base: Any, span: Any, scale: Any, out: Any, place: Any,
    state: Any,
) -> tuple[int, int, Any]:  # fmt: skip
    stay_apart()
    return fill_plain(source, at, end, i, count, base, span, scale, out, place, state, BEYOND)


@kernel
def _fill_moved(
    source: Any, at: int, end: int, i: int, count: int, base: Any, span: Any, scale: Any, out: Any, place: Any,
    state: Any,
) -> tuple[int, int, Any]:  # fmt: skip
    stay_apart()
    return fill_plain(source, at, end, i, count, base, span, scale, out, place, state, 0)


@inlined
def _fill_v2(
    source: Any, start: int, end: int, shift: int, table: Any, row: int, span: Any, scale: Any, out: Any,
    place: Any, state: Any,
) -> tuple[int, Any]:  # fmt: skip
    """Decode one batch of magic 2 whose payload is `source[start:end]`; return (status, place behind it)."""
    count = table[COUNT, row]
    if count < 0 or count * MIN_RECORD_SIZE > end - start:
        return BAD_COUNT, place
    base = int(table[BASE_OFFSET, row]), int(table[BASE_TIMESTAMP, row]), -1
    if table[ATTRIBUTES, row] & LOG_APPEND_TIME_BIT:
        base = int(table[BASE_OFFSET, row]), int(table[MAX_TIMESTAMP, row]), 0
    at = start + state[NEXT_POSITION]
    i = state[NEXT_RECORD]
    while i < count:
        if end + SLACK <= source.shape[0] and read_plain(source, at, end)[0]:  # else a call would be for nothing
            if state[IN_PLACE]:
                i, at, place = _fill_moved(source, at, end, i, count, base, span, scale, out, place, state)
            else:
                i, at, place = _fill_copied(source, at, end, i, count, base, span, scale, out, place, state)
            if i == count:
                break
        following, timestamp_delta, offset_delta, key_start, key_length, value_start, value_length, first, headers = (
            read_record(source, at, end, state)
        )
        if following < 0:
            return following, place
        offset = wrap_i64(base[0] + offset_delta)
        if span[0] <= offset < span[1]:
            is_out_of_place = headers > 0 and state[IN_PLACE] != 0 and out[5].shape[1] > 0
            if is_out_of_place or not _has_room(out, place, key_length, value_length, 0):
                state[NEXT_RECORD] = i
                state[NEXT_POSITION] = at - start
                return OUT_OF_PLACE if is_out_of_place else PIECE_FULL, place
            timestamp = wrap_i64(base[1] + (timestamp_delta & base[2]))
            place = _append(
                source, offset, timestamp, key_start, key_length, value_start, value_length, shift + first, headers,
                scale, out, place, state, 0,
            )  # fmt: skip
        at = following
        i += 1
    return DONE if at == end else LEFT_OVER, place


@inlined
def _fill_legacy(
    source: Any, start: int, table: Any, row: int, span: Any, scale: Any, out: Any, place: Any, state: Any
) -> tuple[int, Any]:
    """Decode one legacy message, or the inner messages of a wrapper; return (status, place behind it)."""
    attributes = table[ATTRIBUTES, row]
    relative = attributes & CODEC_MASK != 0 and table[MAGIC, row] == 1
    append_time = relative and attributes & LOG_APPEND_TIME_BIT != 0
    base = legacy_base(source, start, table, row) if relative else 0
    at = start + state[NEXT_POSITION]
    for i in range(state[NEXT_RECORD], table[COUNT, row]):
        stop = at + LOG_OVERHEAD + load_i32(source, at + 8)
        magic = load_u8(source, at + 16)
        offset = wrap_i64(base + load_i64(source, at))
        timestamp = -1
        if magic != 0:
            if stop - at < 26:
                return BAD_MESSAGE, place
            timestamp = int(table[MAX_TIMESTAMP, row]) if append_time else load_i64(source, at + 18)
        if span[0] <= offset < span[1]:
            key_start, key_length, value_start, value_length = key_and_value(source, at, stop, magic)
            if key_start < 0:
                return BAD_MESSAGE, place
            if not _has_room(out, place, key_length, value_length, 0):
                state[NEXT_RECORD] = i
                state[NEXT_POSITION] = at - start
                return PIECE_FULL, place
            place = _append(
                source, offset, timestamp, key_start, key_length, value_start, value_length, 0, 0, scale, out, place,
                state, 0,
            )  # fmt: skip
        at = stop
    return DONE, place


@inlined
def _count_beside(state: Any) -> Any:
    """What the state tells beside the place."""
    return (
        state[HEADERS], state[WITH_HEADERS], state[HEADER_KEY_BYTES], state[HEADER_VALUE_BYTES],
        state[NULL_HEADER_VALUES], state[UNFIT_TIMESTAMP],
    )  # fmt: skip


@inlined
def _restore_beside(state: Any, counted: Any) -> None:
    state[HEADERS], state[WITH_HEADERS], state[HEADER_KEY_BYTES], state[HEADER_VALUE_BYTES] = counted[:4]
    state[NULL_HEADER_VALUES], state[UNFIT_TIMESTAMP] = counted[4:]


@kernel
def fill_rows(
    data: Any, arena: Any, table: Any, first_row: int, end_row: int, skip: Any, starts: Any, ends: Any,
    range_start: int, range_end: int, rows: int, offsets: Any, timestamps: Any, unit: int, largest: int,
    key_offsets: Any, keys: Any, key_bitmap: Any, value_offsets: Any, values: Any, value_bitmap: Any,
    places: Any, kept: Any, state: Any,
) -> tuple[int, int]:  # fmt: skip
    """Decode the rows' payloads into Arrow's buffers; return (row where it stopped, status).

    Only records with an offset in `[range_start, range_end)` are kept. A count that its payload cannot hold is refused
    before anything is read. `rows` is the room of every output; `kept[row]` tells how many records came from a row.
    Bitmaps are written only where there are nulls, places only where there are headers. Timestamps are multiplied by
    `unit`, if they are not above `largest`. The state of a first call is zero; a later one appends behind what is
    there. With PIECE_FULL, the call is repeated from the row where it stopped, with fresh outputs, and of the state
    only NEXT_RECORD and NEXT_POSITION. With a negative status, nothing of the broken batch is in the outputs.

    `data` may be a part of `values` that begins where the next value goes, if it holds no compressed and no legacy
    batches (IN_PLACE): a value is then never written behind where it was read. With OUT_OF_PLACE, the call is repeated
    with the rest of `data` in other memory.
    """
    stay_apart()
    key, value = (key_offsets, keys, key_bitmap), (value_offsets, values, value_bitmap)
    out = (rows, offsets, timestamps, key, value, places)
    span, scale = (range_start, range_end), (unit, largest)
    shift: Any = np.int64(data.shape[0])
    zero: Any = np.int64(0)
    place = (state[FILLED], state[KEY_BYTES], state[VALUE_BYTES], state[NULL_KEYS], state[NULL_VALUES])
    stopped: Any = np.int64(end_row)
    status: Any = np.int64(DONE)
    for row in range(first_row, end_row):
        kept[row] = 0
        if skip[row] or table[COUNT, row] == 0:
            continue
        before, counted = place, _count_beside(state)
        start = starts[row]
        if start >= shift:
            source, moved = arena, shift
        else:
            source, moved = data, zero
        if table[MAGIC, row] == 2:
            status, place = _fill_v2(
                source, start - moved, ends[row] - moved, moved, table, row, span, scale, out, place, state
            )
        else:
            status, place = _fill_legacy(source, start - moved, table, row, span, scale, out, place, state)
        if status < 0:
            place = before
        if status < 0 or status == OUT_OF_PLACE:
            _restore_beside(state, counted)
        kept[row] = place[0] - before[0]
        if status != DONE:
            stopped = row
            break
        state[NEXT_RECORD] = 0
        state[NEXT_POSITION] = 0
    state[FILLED], state[KEY_BYTES], state[VALUE_BYTES], state[NULL_KEYS], state[NULL_VALUES] = place
    if key_offsets.shape[0]:
        key_offsets[place[0]] = place[1]
    if value_offsets.shape[0]:
        value_offsets[place[0]] = place[2]
    return stopped, status
