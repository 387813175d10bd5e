"""Look for contradictions in rows of the batch table, and in the records of their batches: whole chunks in one call.

Nothing is decided here: kernels set flags, or list rows with a number; `kseg.verification` says what they mean. The
plain twins are in tests/verify/test_kernels.py.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined, kernel
from kseg.native.memory import wrap_i64
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    COUNT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LAST_OFFSET,
    LEADER_EPOCH,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MARKER_TYPE,
    MAX_TIMESTAMP,
    MIN_RECORD_SIZE,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    TRANSACTIONAL_BIT,
)

# flags of a row
OFFSETS_FALL: Final = 1  # the first offset is not above the last one of the batch before
OUT_OF_SEGMENT: Final = 2  # below the segment's base offset, or too far above it
INTO_NEXT: Final = 4  # at or above the base offset of the next segment
BAD_COUNT: Final = 8
BAD_CODEC: Final = 16
BAD_TIME: Final = 32
BAD_EPOCH: Final = 64
EPOCH_FALLS: Final = 128
BAD_MARKER: Final = 256
BAD_PRODUCER: Final = 512

# entries of the int64 array `walk`
WALK_BASE: Final = 0
WALK_NEXT_BASE: Final = 1  # of the next segment; the greatest number where there is none
WALK_LAST: Final = 2  # last offset so far; base - 1 at the start
WALK_EPOCH: Final = 3  # of the batch before
WALK_HOLES: Final = 4  # gaps between batches so far
WALK_MISSING: Final = 5  # offsets in them
WALK_RECORDS: Final = 6
WALK_LIMIT: Final = 7  # the greatest offset that fits the segment
WALK_LEGACY: Final = 8  # rows of magic 0 and 1 in this call
WALK_PRODUCERS: Final = 9  # rows with a producer id in this call
WALK_EPOCHS: Final = 10  # rows in this call whose leader epoch is not that of the row before
WALK_FIELDS: Final = 11

MAX_RELATIVE: Final = 0x7FFFFFFF
MAX_CODEC: Final = 4
LEGACY_MAX_CODEC: Final = 3

# rows of the int64 array `producers` of `scan_sequences`
LAST_EPOCH: Final = 0
LAST_SEQUENCE: Final = 1
LAST_TIMESTAMP: Final = 2
LAST_HOLES: Final = 3  # gaps of the log before the producer's newest batch
FIRST_EPOCH: Final = 4  # of the first batch seen, -1: none yet
FIRST_SEQUENCE: Final = 5
FIRST_OFFSET: Final = 6
FIRST_TIMESTAMP: Final = 7
FIRST_HOLES: Final = 8
FIRST_PLAIN: Final = 9  # offset of the first batch outside of transactions before any marker
FIRST_MARKER: Final = 10  # offset of the first marker
FIRST_MARKER_TYPE: Final = 11
FIRST_BEGUN: Final = 12  # offset of the first transactional batch before that marker
SEEN_FIELDS: Final = 13

SEQUENCE_GAP: Final = 1
SEQUENCE_AGAIN: Final = 2
PRODUCER_EPOCH_FALLS: Final = 3

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
ENTRY_CURSOR: Final = 7

# entries of the int64 array `cursor` of `scan_records`
AT_ROW: Final = 0
AT_RECORD: Final = 1
AT_OFFSET: Final = 2
AT_TIMESTAMP: Final = 3
RECORD_CURSOR: Final = 4

RECORD_OFFSETS: Final = 1
RECORD_TIMES: Final = 2


@kernel
def fill_flags(table: Any, rows: int, walk: Any, flags: Any, holes: Any) -> int:
    """Flag what contradicts itself or the row before; return how many rows have flags.

    `holes[row]` becomes the number of gaps in the log up to the row. Of a legacy wrapper the first offset is not known:
    it is taken for the one that follows the row before.
    """
    flagged = 0
    legacy = 0
    with_producer = 0
    changes = 0
    for row in range(rows):
        found = 0
        magic = table[MAGIC, row]
        attributes = table[ATTRIBUTES, row]
        last = table[LAST_OFFSET, row]
        before = walk[WALK_LAST]
        count = table[COUNT, row]
        codec = attributes & CODEC_MASK
        first = table[BASE_OFFSET, row]
        if magic < 2 and codec != 0:
            first = before + 1 if last > before else last
        if first <= before and before >= walk[WALK_BASE]:
            found |= OFFSETS_FALL
        if first < walk[WALK_BASE] or last < first or last > walk[WALK_LIMIT]:
            found |= OUT_OF_SEGMENT
        if last >= walk[WALK_NEXT_BASE]:
            found |= INTO_NEXT
        if found == 0:
            if first - 1 > before:
                walk[WALK_HOLES] += 1
                walk[WALK_MISSING] += first - before - 1
            walk[WALK_LAST] = last
        holes[row] = walk[WALK_HOLES]
        with_producer += table[PRODUCER_ID, row] >= 0
        changes += row > 0 and table[LEADER_EPOCH, row] != table[LEADER_EPOCH, row - 1]
        if magic < 2:
            legacy += 1
            if codec > LEGACY_MAX_CODEC:
                found |= BAD_CODEC
        else:
            found |= _flags_of_v2(table, row, codec, count, last - first if 0 <= first <= last else -1)
            epoch = table[LEADER_EPOCH, row]
            if epoch < -1:
                found |= BAD_EPOCH
            elif epoch >= 0:
                if epoch < walk[WALK_EPOCH]:
                    found |= EPOCH_FALLS
                walk[WALK_EPOCH] = epoch
        walk[WALK_RECORDS] += max(count, 0)
        flags[row] = found
        flagged += found != 0
    walk[WALK_LEGACY] = legacy
    walk[WALK_PRODUCERS] = with_producer
    walk[WALK_EPOCHS] = changes
    return flagged


@inlined
def _flags_of_v2(table: Any, row: int, codec: int, count: int, delta: int) -> int:
    found = 0
    attributes = table[ATTRIBUTES, row]
    if codec > MAX_CODEC:
        found |= BAD_CODEC
    elif codec == 0 and count * MIN_RECORD_SIZE > table[SIZE, row] - HEADER_SIZE:
        found |= BAD_COUNT
    if count < 0 or count > delta + 1:
        found |= BAD_COUNT
    top = table[MAX_TIMESTAMP, row]
    if top < -1:
        found |= BAD_TIME
    if count > 0 and not attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT) and table[BASE_TIMESTAMP, row] > top:
        found |= BAD_TIME
    control = attributes & CONTROL_BIT
    if control and count > 0 and table[MARKER_TYPE, row] < 0:
        found |= BAD_MARKER
    if table[PRODUCER_ID, row] >= 0:
        if table[PRODUCER_EPOCH, row] < 0 or (not control and table[BASE_SEQUENCE, row] < 0):
            found |= BAD_PRODUCER
    elif attributes & TRANSACTIONAL_BIT:
        found |= BAD_PRODUCER
    return found


@kernel
def scan_sequences(
    table: Any, rows: int, slots: Any, holes: Any, holes_before: int, silence_ms: int, producers: Any, out: Any
) -> int:
    """Follow each producer's epochs and sequences; list (row, kind) of what breaks them in `out`, return how many.

    `slots[row]` is the row's producer, -1 where it has none. A sequence that is left out counts only where no batch is
    missing from the log since the producer's last one, and the producer was not silent for `silence_ms`.
    """
    found = 0
    for row in range(rows):
        slot = slots[row]
        if slot < 0:
            continue
        attributes = table[ATTRIBUTES, row]
        marker = table[MARKER_TYPE, row]
        epoch = table[PRODUCER_EPOCH, row]
        offset = table[BASE_OFFSET, row]
        if attributes & CONTROL_BIT:
            if marker != 0 and marker != 1:
                continue
            if producers[FIRST_MARKER, slot] < 0:
                producers[FIRST_MARKER, slot] = offset
                producers[FIRST_MARKER_TYPE, slot] = marker
            if epoch != producers[LAST_EPOCH, slot]:
                producers[LAST_EPOCH, slot] = epoch
                producers[LAST_SEQUENCE, slot] = -1
            continue
        if producers[FIRST_MARKER, slot] < 0:
            if attributes & TRANSACTIONAL_BIT:
                if producers[FIRST_BEGUN, slot] < 0:
                    producers[FIRST_BEGUN, slot] = offset
            elif producers[FIRST_PLAIN, slot] < 0:
                producers[FIRST_PLAIN, slot] = offset
        sequence = table[BASE_SEQUENCE, row]
        timestamp = table[MAX_TIMESTAMP, row]
        gaps = holes_before + holes[row]
        if producers[FIRST_EPOCH, slot] < 0:
            producers[FIRST_EPOCH, slot] = epoch
            producers[FIRST_SEQUENCE, slot] = sequence
            producers[FIRST_OFFSET, slot] = offset
            producers[FIRST_TIMESTAMP, slot] = timestamp
            producers[FIRST_HOLES, slot] = gaps
        kind = 0
        last = producers[LAST_SEQUENCE, slot]
        if epoch < producers[LAST_EPOCH, slot]:
            kind = PRODUCER_EPOCH_FALLS
        elif epoch == producers[LAST_EPOCH, slot] and last >= 0 and sequence >= 0:
            ahead = (sequence - last - 1) & MAX_RELATIVE
            if ahead >= 1 << 30:
                kind = SEQUENCE_AGAIN
            elif ahead > 0:
                quiet = abs(float(timestamp) - float(producers[LAST_TIMESTAMP, slot]))  # floats do not wrap around
                if gaps == producers[LAST_HOLES, slot] and quiet < silence_ms:
                    kind = SEQUENCE_GAP
        if kind != 0:
            out[0, found] = row
            out[1, found] = kind
            found += 1
        delta = wrap_i64(int(table[LAST_OFFSET, row]) - int(offset))
        producers[LAST_EPOCH, slot] = epoch
        producers[LAST_SEQUENCE, slot] = -1 if sequence < 0 else (int(sequence) + delta) & MAX_RELATIVE
        producers[LAST_TIMESTAMP, slot] = timestamp
        producers[LAST_HOLES, slot] = gaps
    return found


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
    entries = offsets.shape[0]
    times = time_offsets.shape[0]
    for row in range(rows):
        position = table[POSITION, row]
        last = table[LAST_OFFSET, row]
        before = cursor[SEEN_LAST]
        whole = cursor[SEEN_END] == position
        first = table[BASE_OFFSET, row]
        if table[MAGIC, row] < 2 and table[ATTRIBUTES, row] & CODEC_MASK:
            first = before + 1 if last > before else last
        while by_position < entries and positions[by_position] < position:
            if positions[by_position] < cursor[SEEN_END]:
                verdicts[by_position] |= NOT_AT_BATCH
            by_position += 1
        if by_position < entries and positions[by_position] == position:
            if before >= offsets[by_position]:
                verdicts[by_position] |= TOO_LATE
            by_position += 1
        while by_offset < entries and offsets[by_offset] < first:
            if whole:
                verdicts[by_offset] |= NOT_HELD
            by_offset += 1
        while by_offset < entries and offsets[by_offset] <= last:
            by_offset += 1
        while by_place < times and places[by_place] <= position:
            if places[by_place] == position and cursor[SEEN_MAX] >= timestamps[by_place]:
                time_verdicts[by_place] |= AS_LATE_BEFORE
            by_place += 1
        top = max(cursor[SEEN_MAX], table[MAX_TIMESTAMP, row])
        while by_time < times and time_offsets[by_time] <= last:
            known = top if time_offsets[by_time] >= first else cursor[SEEN_MAX]
            if timestamps[by_time] > known:
                time_verdicts[by_time] |= NONE_AS_LATE
            elif timestamps[by_time] < known:
                time_verdicts[by_time] |= LATER_BEFORE
            by_time += 1
        cursor[SEEN_MAX] = top
        cursor[SEEN_LAST] = last
        cursor[SEEN_END] = position + table[SIZE, row]
    cursor[NEXT_POSITION] = by_position
    cursor[NEXT_OFFSET] = by_offset
    cursor[NEXT_PLACE] = by_place
    cursor[NEXT_TIME_OFFSET] = by_time


@kernel
def scan_records(table: Any, end_row: int, skip: Any, cursor: Any, offsets: Any, timestamps: Any, wrong: Any) -> None:
    """Compare records with their batches; `wrong[row]` gets flags. The cursor says where the last call stopped.

    `offsets` and `timestamps` are those of all records of the rows that `skip` does not name, in their order.
    """
    row = cursor[AT_ROW]
    for i in range(offsets.shape[0]):
        while row < end_row and (skip[row] or table[COUNT, row] <= 0):
            row += 1
        if row >= end_row:
            break
        first = cursor[AT_RECORD] == 0
        offset = offsets[i]
        timestamp = timestamps[i]
        if offset > table[LAST_OFFSET, row] or (table[MAGIC, row] == 2 and offset < table[BASE_OFFSET, row]):
            wrong[row] |= RECORD_OFFSETS
        if not first and offset <= cursor[AT_OFFSET]:
            wrong[row] |= RECORD_OFFSETS
        cursor[AT_OFFSET] = offset
        cursor[AT_TIMESTAMP] = timestamp if first else max(timestamp, cursor[AT_TIMESTAMP])
        cursor[AT_RECORD] += 1
        if cursor[AT_RECORD] == table[COUNT, row]:
            if table[MAGIC, row] < 2 and offset != table[LAST_OFFSET, row]:
                wrong[row] |= RECORD_OFFSETS
            if cursor[AT_TIMESTAMP] != table[MAX_TIMESTAMP, row]:
                wrong[row] |= RECORD_TIMES
            cursor[AT_RECORD] = 0
            row += 1
    cursor[AT_ROW] = row
