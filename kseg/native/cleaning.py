"""What becomes of batches and records when a log is cleaned: Kafka's rules, for a whole chunk in a call.

Three steps. `fill_fates` decides for each batch by its header, `fill_keeps` for each record, `rewrite_batches` writes
what is left: batches that lose nothing byte for byte, others rebuilt, with offsets, sequence numbers and leader epoch
as they were. The names of the rules are those of Kafka's Cleaner and of MemoryRecords.filterTo.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.compress import BLOCK_SLACK, PACK_FAILED, pack_payload, packed_bound
from kseg.native.memory import copy_bytes, wrap_i64
from kseg.native.record_copies import copy_range, lead_of_decoded, write_record, write_retimed
from kseg.native.records import (
    BATCH_ROW,
    KEY_LENGTH,
    OFFSET,
    RECORD_START,
    TIMESTAMP,
    VALUE_LENGTH,
)
from kseg.native.rows import measure_rows
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
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    TRANSACTIONAL_BIT,
)
from kseg.native.visibility import is_aborted

# bits of a batch's fate
DISCARD: Final = 1  # none of its records stays
RETAIN_EMPTY: Final = 2  # without records it stays as an empty batch
EMPTY_TRANSACTION: Final = 4  # a marker whose transaction has no batch left
EXPIRED_DELETES: Final = 8  # tombstones in it go

# entries of `rules`
NOW: Final = 0
UPPER_BOUND: Final = 1  # the batch that ends right before it stays, empty if need be
LEGACY_DELETES_EXPIRED: Final = 2  # tombstones of magic 0 and 1 go: decided by the segment's modification time
NEW_HORIZON: Final = 3  # for tombstones and markers that are seen for the first time; -1: none is set; below: too late
CONVERT: Final = 4  # as Kafka's cleaner does: what stays is told by its records alone, in magic 2
RULES: Final = 5

# rows of `producers`, sorted by id: each producer's last entry in the log
LAST_ID: Final = 0
LAST_EPOCH: Final = 1
LAST_DATA_OFFSET: Final = 2  # -1: its last entry is a marker of LAST_EPOCH

# entries of `counts`
KEPT: Final = 0
SUPERSEDED: Final = 1
NULL_KEYS: Final = 2
EXPIRED_TOMBSTONES: Final = 3
KEPT_TOMBSTONES: Final = 4
ABORTED: Final = 5  # records of aborted transactions
KEPT_MARKERS: Final = 6
DROPPED_MARKERS: Final = 7
COPIED_BATCHES: Final = 8
REBUILT_BATCHES: Final = 9
EMPTIED_BATCHES: Final = 10
DROPPED_BATCHES: Final = 11
COUNTS: Final = 12

RECORD_GROWTH: Final = 24  # a rebuilt record's lengths and deltas take at most so much more than they did


@inlined
def _search(sorted_values: Any, value: Any) -> int:
    """Where `value` is, or -1."""
    low = 0
    high = sorted_values.shape[0]
    while low < high:
        middle = (low + high) // 2
        if sorted_values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < sorted_values.shape[0] and sorted_values[low] == value else -1


@inlined
def _is_last_of_producer(table: Any, row: int, is_control: bool, producers: Any, ids: Any) -> Any:
    at = _search(ids, table[PRODUCER_ID, row])
    if at < 0:
        return False
    if producers[LAST_DATA_OFFSET, at] >= 0:
        return table[LAST_OFFSET, row] == producers[LAST_DATA_OFFSET, at]
    return is_control and table[PRODUCER_EPOCH, row] == producers[LAST_EPOCH, at]


@kernel
def fill_fates(
    table: Any, first_row: int, end_row: int, aborted_ids: Any, aborted_firsts: Any, aborted_markers: Any,
    empty_markers: Any, producers: Any, producer_ids: Any, rules: Any, fates: Any, skip: Any,
) -> None:  # fmt: skip
    """Decide for each batch: `fates[row]` is a set of bits, `skip[row]` tells whether DISCARD is one of them.

    `aborted_*` are sorted by producer and first offset, `empty_markers` are the sorted offsets of markers whose
    transaction has no batch left.
    """
    for row in range(first_row, end_row):
        fate = 0
        if table[MAGIC, row] < 2:
            if rules[LEGACY_DELETES_EXPIRED]:
                fate |= EXPIRED_DELETES
            if table[LAST_OFFSET, row] + 1 == rules[UPPER_BOUND]:
                fate |= RETAIN_EMPTY
            fates[row] = fate
            skip[row] = False
            continue
        attributes = table[ATTRIBUTES, row]
        is_control = attributes & CONTROL_BIT != 0
        past_horizon = attributes & DELETE_HORIZON_BIT != 0 and table[BASE_TIMESTAMP, row] <= rules[NOW]
        if past_horizon:
            fate |= EXPIRED_DELETES
        if is_control:
            if table[COUNT, row] == 0 or _search(empty_markers, table[BASE_OFFSET, row]) >= 0:
                fate |= EMPTY_TRANSACTION
                if past_horizon:
                    fate |= DISCARD
        elif (
            attributes & TRANSACTIONAL_BIT
            and aborted_ids.shape[0]
            and is_aborted(
                table[PRODUCER_ID, row], table[LAST_OFFSET, row], aborted_ids, aborted_firsts, aborted_markers
            )
        ):
            fate |= DISCARD
        last = table[PRODUCER_ID, row] >= 0 and _is_last_of_producer(table, row, is_control, producers, producer_ids)
        if last or table[LAST_OFFSET, row] + 1 == rules[UPPER_BOUND]:
            fate |= RETAIN_EMPTY
        fates[row] = fate
        skip[row] = fate & DISCARD != 0


@kernel
def codecs_of(table: Any, first_row: int, end_row: int) -> Any:
    """The codecs of rows, a bit for each."""
    found: Any = np.int64(0)
    for row in range(first_row, end_row):
        found |= np.int64(1) << (table[ATTRIBUTES, row] & CODEC_MASK)
    return found


@kernel
def room_for(table: Any, first_row: int, end_row: int, skip: Any, starts: Any, ends: Any) -> tuple[int, int]:
    """What is enough for rows, however they turn out: (bytes of their records, bytes of their batches)."""
    records, payload_bytes, _ = measure_rows(table, first_row, end_row, skip, starts, ends)
    content = payload_bytes + RECORD_GROWTH * records
    size = packed_bound(content) + (end_row - first_row) * (HEADER_SIZE + BLOCK_SLACK)
    for row in range(first_row, end_row):
        size += table[SIZE, row]
    return content, size


@kernel
def fill_keeps(table: Any, fates: Any, columns: Any, count: int, latest: Any, keeps: Any, counts: Any) -> None:
    """Decide for each record of a batch that is not discarded; `latest[i]` is the latest offset of its key, or -1."""
    for i in range(count):
        row = columns[BATCH_ROW, i]
        keeps[i] = False
        if table[MAGIC, row] == 2 and table[ATTRIBUTES, row] & CONTROL_BIT:
            keeps[i] = True
        elif columns[KEY_LENGTH, i] < 0:
            counts[NULL_KEYS] += 1
        elif columns[OFFSET, i] < latest[i]:
            counts[SUPERSEDED] += 1
        elif columns[VALUE_LENGTH, i] >= 0:
            keeps[i] = True
            counts[KEPT] += 1
        elif fates[row] & EXPIRED_DELETES:
            counts[EXPIRED_TOMBSTONES] += 1
        else:
            keeps[i] = True
            counts[KEPT] += 1
            counts[KEPT_TOMBSTONES] += 1


@inlined
def _copy_row(table: Any, row: int, target: Any, target_row: int) -> None:
    for column in range(table.shape[0]):
        target[column, target_row] = table[column, row]


@inlined
def copy_batch(data: Any, file_position: int, table: Any, row: int, out: Any, at: int, written: Any, n: int) -> Any:
    """Copy a batch as it is to `out[at:]`, and its row to `written`; return its end."""
    copy_bytes(out, at, data, table[POSITION, row] - file_position, table[SIZE, row])
    _copy_row(table, row, written, n)
    written[POSITION, n] = at
    return at + table[SIZE, row]


@inlined
def begin_header(table: Any, row: int, rebuilt: Any, n: int, at: int, attributes: int) -> None:
    """A row of `rebuilt` with what stays as it was; legacy batches get the values of a batch without a producer."""
    _copy_row(table, row, rebuilt, n)
    rebuilt[POSITION, n] = at
    rebuilt[ATTRIBUTES, n] = attributes
    if table[MAGIC, row] < 2:
        rebuilt[LEADER_EPOCH, n] = -1
        rebuilt[PRODUCER_ID, n] = -1
        rebuilt[PRODUCER_EPOCH, n] = -1
        rebuilt[BASE_SEQUENCE, n] = -1


@inlined
def kept_attributes(table: Any, row: int, mask: int) -> Any:
    """Attribute bits that a rebuilt batch takes over; a magic 0 message has a codec and nothing else."""
    bits = table[ATTRIBUTES, row]
    if table[MAGIC, row] == 0:
        return bits & CODEC_MASK & mask
    if table[MAGIC, row] == 1:
        return bits & (CODEC_MASK | LOG_APPEND_TIME_BIT) & mask
    return bits & (CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT) & mask


@inlined
def _rebuild(
    data: Any, arena: Any, table: Any, row: int, in_arena: bool, payload_end: int, columns: Any, first: int, end: int,
    keeps: Any, horizon: int, stays: bool, functions: Any, packing: Any, scratch: Any, out: Any, at: int,
    rebuilt: Any, n: int,
) -> Any:  # fmt: skip
    """Write the records that stay, as one batch; return its end, or PACK_FAILED."""
    source = arena if in_arena else data
    shift: Any = data.shape[0] if in_arena else 0
    attributes = kept_attributes(table, row, 0xFF)
    append_time = attributes & LOG_APPEND_TIME_BIT != 0
    codec = attributes & CODEC_MASK
    head = first
    while not keeps[head]:
        head += 1
    base_offset = table[BASE_OFFSET, row] if table[MAGIC, row] == 2 else columns[OFFSET, head]
    base_time = horizon if horizon >= 0 else columns[TIMESTAMP, head]
    top: Any = np.int64(-1)
    last = base_offset
    count = 0
    target = out if codec == 0 else scratch
    p: Any = at + HEADER_SIZE if codec == 0 else np.int64(0)
    is_plain = table[MAGIC, row] == 2 and not append_time
    moved = wrap_i64(int(table[BASE_TIMESTAMP, row]) - int(base_time))  # what time deltas grow by
    held: Any = np.int64(-1)  # where bytes begin that are copied as they are, with those of the records behind
    stop: Any = np.int64(0)
    for i in range(head, end):
        if not keeps[i]:
            if held >= 0:
                p = copy_range(target, p, source, held, stop)
                held = np.int64(-1)
            continue
        last = columns[OFFSET, i]
        top = max(top, columns[TIMESTAMP, i])
        count += 1
        time_delta = wrap_i64(int(columns[TIMESTAMP, i]) - int(base_time))
        lead: Any = np.int64(0)
        if is_plain:
            stop = columns[RECORD_START, i + 1] - shift if i + 1 < end else payload_end
            lead = lead_of_decoded(source, shift, columns, i, stop, wrap_i64(time_delta - moved), last - base_offset)
        start = columns[RECORD_START, i] - shift
        if lead > 0 and moved == 0:
            if held < 0:
                held = start
            if i + 1 == end:
                p = copy_range(target, p, source, held, stop)
        else:
            if held >= 0:
                p = copy_range(target, p, source, held, start)
                held = np.int64(-1)
            if lead > 0:
                p = write_retimed(target, p, source, start + lead, stop, time_delta)
            else:
                p = write_record(target, p, source, shift, columns, i, time_delta, last - base_offset)
    if codec != 0:
        p = pack_payload(codec, scratch, 0, p, out, at + HEADER_SIZE, functions[codec], packing)
        if p < 0:
            return PACK_FAILED
    begin_header(table, row, rebuilt, n, at, attributes | (DELETE_HORIZON_BIT if horizon >= 0 else 0))
    rebuilt[SIZE, n] = p - at
    rebuilt[BASE_OFFSET, n] = base_offset
    if table[MAGIC, row] < 2 and not stays:
        rebuilt[LAST_OFFSET, n] = last
    rebuilt[BASE_TIMESTAMP, n] = base_time
    if not append_time and not stays:
        rebuilt[MAX_TIMESTAMP, n] = top
    rebuilt[COUNT, n] = count
    return p


@inlined
def write_empty(table: Any, row: int, rebuilt: Any, n: int, at: int) -> None:
    """Only the header stays: it tells the log's end, and its producer's last sequence number."""
    begin_header(table, row, rebuilt, n, at, kept_attributes(table, row, ~CODEC_MASK))
    rebuilt[SIZE, n] = HEADER_SIZE
    if rebuilt[BASE_OFFSET, n] < 0:
        rebuilt[BASE_OFFSET, n] = table[LAST_OFFSET, row]
    rebuilt[BASE_TIMESTAMP, n] = -1
    rebuilt[COUNT, n] = 0


@kernel
def rewrite_batches(
    data: Any, arena: Any, file_position: int, table: Any, first_row: int, end_row: int, starts: Any, ends: Any,
    columns: Any, first_record: int, count: int, fates: Any, keeps: Any, rules: Any, functions: Any, packing: Any,
    scratch: Any, out: Any, at: Any, written: Any, batches: Any, rebuilt: Any, counts: Any,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Write what is left of rows `[first_row, end_row)` to `out[at:]`.

    Return (row, rows of `written`, rows of `rebuilt`, end of what was written). The row is `end_row`, or the one that a
    codec's library could not compress. `out` and `scratch` have room for everything. `written` gets a row for each
    batch, from row `batches` on, `rebuilt` one for each whose header the caller has to write
    (`encode.write_headers`); both with positions in `out`. Records of these rows are `[first_record, count)` of
    `columns`, in order. `functions[codec]` and `packing` are what `compress.pack_payload` takes.
    """
    shift = data.shape[0]
    n: Any = np.int64(0)
    i = first_record
    for row in range(first_row, end_row):
        first = i
        kept = 0
        tombstones = 0
        while i < count and columns[BATCH_ROW, i] == row:
            if keeps[i]:
                kept += 1
                tombstones += columns[VALUE_LENGTH, i] < 0
            i += 1
        is_v2 = table[MAGIC, row] == 2
        attributes = table[ATTRIBUTES, row]
        is_control = is_v2 and attributes & CONTROL_BIT != 0
        has_horizon = is_v2 and attributes & DELETE_HORIZON_BIT != 0
        if fates[row] & DISCARD and not is_control:
            counts[ABORTED] += table[COUNT, row]
        if kept == 0:
            if fates[row] & RETAIN_EMPTY:
                write_empty(table, row, rebuilt, n, at)
                _copy_row(rebuilt, n, written, batches)
                n += 1
                batches += 1
                at += HEADER_SIZE
                counts[EMPTIED_BATCHES] += 1
            else:
                counts[DROPPED_BATCHES] += 1
            counts[DROPPED_MARKERS] += is_control and table[COUNT, row] > 0
            continue
        counts[KEPT_MARKERS] += is_control
        new_horizon = tombstones > 0 or (is_control and fates[row] & EMPTY_TRANSACTION != 0)
        new_horizon = new_horizon and not has_horizon and rules[NEW_HORIZON] != -1
        if (is_v2 or not rules[CONVERT]) and kept == table[COUNT, row] and not new_horizon:
            at = copy_batch(data, file_position, table, row, out, at, written, batches)
            counts[COPIED_BATCHES] += 1
        else:
            horizon: Any = np.int64(-1)
            if new_horizon:
                horizon = rules[NEW_HORIZON]
            elif has_horizon:
                horizon = table[BASE_TIMESTAMP, row]
            # neither the log's end nor its producer's clock may go back
            stays = fates[row] & RETAIN_EMPTY != 0 and not rules[CONVERT]
            in_arena = starts[row] >= shift
            end = _rebuild(
                data, arena, table, row, in_arena, ends[row] - (shift if in_arena else 0), columns, first, i, keeps,
                horizon, stays,
                functions, packing, scratch, out, at, rebuilt, n,
            )  # fmt: skip
            if end < 0:
                return row, batches, n, at
            _copy_row(rebuilt, n, written, batches)
            n += 1
            at = end
            counts[REBUILT_BATCHES] += 1
        batches += 1
    return end_row, batches, n, at
