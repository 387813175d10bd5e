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
WALK_CONTROLS: Final = 11  # control batches in this call
WALK_FIELDS: Final = 12

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
    controls = 0
    with_producer = 0
    records = 0
    uneven = False
    for row in range(rows):  # without branches: the compiler makes vector instructions of it
        found = _own_flags(table, row)
        flags[row] = found
        flagged += found != 0
        legacy += table[MAGIC, row] < 2
        controls += table[ATTRIBUTES, row] & CONTROL_BIT != 0
        with_producer += table[PRODUCER_ID, row] >= 0
        records += max(table[COUNT, row], 0)
        uneven |= _is_uneven(table, row, walk[WALK_LIMIT], walk[WALK_NEXT_BASE])
    walk[WALK_LEGACY] = legacy
    walk[WALK_CONTROLS] = controls
    walk[WALK_PRODUCERS] = with_producer
    walk[WALK_RECORDS] += records
    walk[WALK_EPOCHS] = 0
    if rows == 0:
        return 0
    goes_on = wrap_i64(int(table[BASE_OFFSET, 0]) - 1) == walk[WALK_LAST] and table[LEADER_EPOCH, 0] >= walk[WALK_EPOCH]
    if uneven or legacy > 0 or not goes_on:  # nearly never: what the order of rows says is looked at one by one
        return _add_order_flags(table, rows, walk, flags, holes)
    holes[:rows] = walk[WALK_HOLES]
    walk[WALK_LAST] = table[LAST_OFFSET, rows - 1]
    walk[WALK_EPOCH] = table[LEADER_EPOCH, rows - 1]
    return flagged


@inlined
def _own_flags(table: Any, row: int) -> int:
    """What a row contradicts in itself."""
    attributes, count, top = table[ATTRIBUTES, row], table[COUNT, row], table[MAX_TIMESTAMP, row]
    codec = attributes & CODEC_MASK
    if table[MAGIC, row] < 2:
        return BAD_CODEC if codec > LEGACY_MAX_CODEC else 0
    first, last = table[BASE_OFFSET, row], table[LAST_OFFSET, row]
    delta = last - first if (first >= 0) & (last >= first) else -1
    too_many = (codec == 0) & (count * MIN_RECORD_SIZE > table[SIZE, row] - HEADER_SIZE)
    has_base_time = (count > 0) & (attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT) == 0)
    is_control = attributes & CONTROL_BIT != 0
    has_producer = table[PRODUCER_ID, row] >= 0
    half_producer = (table[PRODUCER_EPOCH, row] < 0) | ((not is_control) & (table[BASE_SEQUENCE, row] < 0))
    no_producer = attributes & TRANSACTIONAL_BIT != 0
    return int(
        (codec > MAX_CODEC) * BAD_CODEC
        + (too_many | (count < 0) | (count - 1 > delta)) * BAD_COUNT
        + ((top < -1) | (has_base_time & (table[BASE_TIMESTAMP, row] > top))) * BAD_TIME
        + (is_control & (count > 0) & (table[MARKER_TYPE, row] < 0)) * BAD_MARKER
        + ((has_producer & half_producer) | ((not has_producer) & no_producer)) * BAD_PRODUCER
        + (table[LEADER_EPOCH, row] < -1) * BAD_EPOCH
    )


@inlined
def _is_uneven(table: Any, row: int, limit: int, next_base: int) -> Any:
    """Whether a row does not follow the one before it in offset and leader epoch, or leaves the segment."""
    before = max(row - 1, 0)
    first, last = int(table[BASE_OFFSET, row]), int(table[LAST_OFFSET, row])
    follows = (row == 0) | (wrap_i64(first - int(table[LAST_OFFSET, before])) == 1)
    same_epoch = table[LEADER_EPOCH, row] == table[LEADER_EPOCH, before]
    return (not (follows & same_epoch)) | (last < first) | (last > limit) | (last >= next_base) | (first < 0)


@inlined
def _add_order_flags(table: Any, rows: int, walk: Any, flags: Any, holes: Any) -> int:
    """Add what the rows say about each other, one after the other, and count those with flags."""
    flagged = 0
    changes = 0
    # Numbers of their own: entries of an array would be stored and loaded again for each row, one waiting for the next.
    base, next_base, limit = walk[WALK_BASE], walk[WALK_NEXT_BASE], walk[WALK_LIMIT]
    before, epoch_before = walk[WALK_LAST], walk[WALK_EPOCH]
    gaps, missing = walk[WALK_HOLES], walk[WALK_MISSING]
    for row in range(rows):
        found = 0
        magic = table[MAGIC, row]
        last = table[LAST_OFFSET, row]
        epoch = table[LEADER_EPOCH, row]
        first = table[BASE_OFFSET, row]
        if magic < 2 and table[ATTRIBUTES, row] & CODEC_MASK:
            first = before + 1 if last > before else last
        if first <= before and before >= base:
            found |= OFFSETS_FALL
        if first < base or last < first or last > limit:
            found |= OUT_OF_SEGMENT
        if last >= next_base:
            found |= INTO_NEXT
        if found == 0:
            if first - 1 > before:
                gaps += 1
                missing += first - before - 1
            before = last
        holes[row] = gaps
        changes += row > 0 and epoch != table[LEADER_EPOCH, row - 1]
        if magic >= 2 and epoch >= 0:
            if epoch < epoch_before:
                found |= EPOCH_FALLS
            epoch_before = epoch
        flags[row] |= found
        flagged += flags[row] != 0
    walk[WALK_LAST], walk[WALK_EPOCH] = before, epoch_before
    walk[WALK_HOLES], walk[WALK_MISSING] = gaps, missing
    walk[WALK_EPOCHS] = changes
    return flagged


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
