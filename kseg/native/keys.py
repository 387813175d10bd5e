"""Hashes of the keys of many records: of those that were decoded, or straight from the batches, with their offsets.

SipHash-2-4-128 under a random key stands for the key itself (`hash.py`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import JIT_ENABLED, inlined, kernel
from kseg.native.hash import siphash128
from kseg.native.legacy import key_and_value
from kseg.native.memory import load_i32, load_i64, load_u8, wrap_i64
from kseg.native.records import (
    BAD_COUNT,
    BAD_MESSAGE,
    DONE,
    KEY_LENGTH,
    KEY_START,
    LEFT_OVER,
    TOTALS,
    legacy_base,
    prefetch_records,
    read_record,
)
from kseg.native.steps import FULL, GOT, ODD, READY, ROW, ROWS, STEP_CURSOR, end_of_group, next_rows, unpack_rows
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    COUNT,
    LAST_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MIN_RECORD_SIZE,
)
from kseg.native.visibility import fill_hidden

LEGACY_V1_SIZE: Final = 26  # a message of magic 1 up to and with its timestamp

# entries of the cursor of `scan_entries`, behind those of `steps.py`
FILLED: Final = STEP_CURSOR
DISORDER: Final = STEP_CURSOR + 1  # whether two records may have the same offset
SCANNED: Final = STEP_CURSOR + 2  # the last offset of the rows that are done
FIRST: Final = STEP_CURSOR + 3  # the first row of the step that was asked for
TRANSACTIONS: Final = STEP_CURSOR + 4  # whether there are any in the step
CURSOR: Final = STEP_CURSOR + 5

SEEN: Final = 4  # what `scan_entries` returns beside what `steps.py` names

# columns of `entries`
LOW: Final = 0
HIGH: Final = 1
ENTRY_OFFSET: Final = 2


@kernel
def _fill_key_hashes(data: Any, arena: Any, columns: Any, count: int, key: Any, hashes: Any) -> None:
    shift = data.shape[0]
    for i in range(count):
        start = columns[KEY_START, i]
        length = columns[KEY_LENGTH, i]
        if length < 0:
            continue
        in_arena = start >= shift
        source = arena if in_arena else data
        low, high = siphash128(source, start - shift if in_arena else start, length, key[0], key[1])
        hashes[i, 0] = np.int64(low)
        hashes[i, 1] = np.int64(high)


def fill_key_hashes(data: Any, arena: Any, columns: Any, count: int, key: Any, hashes: Any) -> None:
    """SipHash-2-4-128 of each record's key into `hashes[i] = (low, high)`, signed; rows without a key are left."""
    if JIT_ENABLED:
        _fill_key_hashes(data, arena, columns, count, key, hashes)
        return
    with np.errstate(over="ignore"):
        for i in range(count):
            start, length = int(columns[KEY_START, i]), int(columns[KEY_LENGTH, i])
            if length >= 0:
                source, at = (arena, start - data.shape[0]) if start >= data.shape[0] else (data, start)
                pair = np.array(siphash128(source, at, length, key[0], key[1]), np.uint64)
                hashes[i] = pair.view(np.int64)


@inlined
def _put_entry(source: Any, start: int, length: int, offset: int, key: Any, entries: Any, words: Any, at: int) -> None:
    low, high = siphash128(source, start, length, key[0], key[1])
    words[at, LOW] = low
    words[at, HIGH] = high
    entries[at, ENTRY_OFFSET] = offset


@inlined
def _fill_v2(
    source: Any, start: int, end: int, table: Any, row: int, first_offset: int, key: Any, entries: Any, words: Any,
    filled: Any, totals: Any,
) -> tuple[Any, int, bool]:  # fmt: skip
    """Take the keys of one batch of magic 2; return (entries so far, status, whether its offsets rise)."""
    count = table[COUNT, row]
    if count < 0 or count * MIN_RECORD_SIZE > end - start:
        return filled, BAD_COUNT, True
    base_offset = int(table[BASE_OFFSET, row])
    before = wrap_i64(base_offset - 1)
    in_order = True
    p = start
    for _ in range(count):
        prefetch_records(source, p)
        p, _, delta, key_start, key_length, _, _, _, _ = read_record(source, p, end, totals)
        if p < 0:
            return filled, p, True
        offset = wrap_i64(base_offset + delta)
        in_order = in_order and offset > before
        before = offset
        if key_length >= 0 and offset >= first_offset:
            _put_entry(source, key_start, key_length, offset, key, entries, words, filled)
            filled += 1
    return filled, DONE if p == end else LEFT_OVER, in_order and before <= table[LAST_OFFSET, row]


@inlined
def _fill_legacy(
    source: Any, start: int, table: Any, row: int, first_offset: int, key: Any, entries: Any, words: Any, filled: Any
) -> tuple[Any, int, bool]:
    """The same for one legacy message, or the inner messages of a wrapper."""
    relative = table[ATTRIBUTES, row] & CODEC_MASK != 0 and table[MAGIC, row] == 1
    base = legacy_base(source, start, table, row) if relative else 0
    before: Any = np.int64(-1)
    in_order = True
    at = start
    for _ in range(table[COUNT, row]):
        stop = at + LOG_OVERHEAD + load_i32(source, at + 8)
        magic = load_u8(source, at + 16)
        if magic != 0 and stop - at < LEGACY_V1_SIZE:
            return filled, BAD_MESSAGE, True
        key_start, key_length, _, _ = key_and_value(source, at, stop, magic)
        if key_start < 0:
            return filled, BAD_MESSAGE, True
        offset = wrap_i64(base + load_i64(source, at))
        in_order = in_order and offset > before
        before = offset
        if key_length >= 0 and offset >= first_offset:
            _put_entry(source, key_start, key_length, offset, key, entries, words, filled)
            filled += 1
        at = stop
    return filled, DONE, in_order and before <= table[LAST_OFFSET, row]


@kernel
def _fill_entries(
    data: Any, arena: Any, table: Any, first_row: int, end_row: int, skip: Any, starts: Any, ends: Any,
    first_offset: int, key: Any, entries: Any, words: Any, at: int, totals: Any,
) -> tuple[int, int, int, bool]:  # fmt: skip
    filled: Any = np.int64(at)
    shift = np.int64(data.shape[0])
    in_order = True
    for row in range(first_row, end_row):
        if skip[row] or table[COUNT, row] == 0:
            continue
        start = starts[row]
        end = ends[row]
        in_arena = start >= shift
        source = arena if in_arena else data
        moved = shift if in_arena else np.int64(0)
        if table[MAGIC, row] == 2:
            filled, status, rises = _fill_v2(
                source, start - moved, end - moved, table, row, first_offset, key, entries, words, filled, totals
            )
        else:
            filled, status, rises = _fill_legacy(
                source, start - moved, table, row, first_offset, key, entries, words, filled
            )
        in_order = in_order and rises
        if status != DONE:
            return filled, row, status, in_order
    return filled, end_row, DONE, in_order


@inlined
def _end_of_room(table: Any, row: int, stop: int, hidden: Any, starts: Any, ends: Any, room: Any) -> int:
    """Up to where rows have no more than `room` records, whatever they say."""
    while row < stop:
        if not hidden[row]:
            count = table[COUNT, row]
            room -= min(count, (ends[row] - starts[row]) // MIN_RECORD_SIZE) if table[MAGIC, row] == 2 else count
            if room < 0:
                break
        row += 1
    return row


@kernel
def _scan_entries(
    pread: int, descriptor: int, end: int, buffer: Any, table: Any, hidden: Any, producers: Any, firsts: Any,
    markers: Any, base_offset: int, arena: Any, limit: int, functions: Any, starts: Any, ends: Any, range_start: int,
    range_end: int, first_offset: int, key: Any, entries: Any, words: Any, cursor: Any, totals: Any,
) -> int:  # fmt: skip
    while True:
        while cursor[ROW] < cursor[ROWS]:
            row = cursor[ROW]
            if row == cursor[READY]:
                stop = end_of_group(table, row, cursor[ROWS])
                if not unpack_rows(buffer, table, stop, hidden, arena, limit, functions, starts, ends, cursor):
                    return ODD
            room = np.int64(entries.shape[0]) - cursor[FILLED]
            stop = _end_of_room(table, row, cursor[READY], hidden, starts, ends, room)
            if stop == row:
                return FULL if cursor[FILLED] > 0 else ODD
            filled, _, status, in_order = _fill_entries(
                buffer, arena, table, row, stop, hidden, starts, ends, first_offset, key, entries, words,
                cursor[FILLED], totals,
            )  # fmt: skip
            if status != DONE:
                return ODD
            cursor[FILLED] = filled
            cursor[DISORDER] |= not in_order
            cursor[ROW] = stop
            cursor[SCANNED] = table[LAST_OFFSET, stop - 1]
        if cursor[TRANSACTIONS]:
            return SEEN
        status = next_rows(pread, descriptor, end, buffer, table, base_offset, range_start, range_end, cursor)
        if status != GOT:
            return status
        cursor[FIRST] = cursor[ROW]
        cursor[TRANSACTIONS] = fill_hidden(table, cursor[ROW], cursor[ROWS], producers, firsts, markers, hidden)


def scan_entries(
    source: tuple[int, int, int], buffer: Any, table: Any, hidden: Any, aborted: tuple[Any, Any, Any],
    base_offset: int, arena: Any, limit: int, functions: Any, starts: Any, ends: Any, offsets: tuple[int, int],
    first_offset: int, key: Any, entries: Any, cursor: Any,
) -> int:  # fmt: skip
    """List the keys of batches whose last offset is in the range `offsets`, straight from a file, as `fill_entries`.

    Returns FULL where `entries` are full, SEEN behind the rows from FIRST to ROWS of the table that have transactional
    or control batches among them, ENDED, or ODD where the next batch is for the walk; entries of none but the rows
    before ROW are counted in FILLED. `source` are the address of pread, a descriptor and the end of the file's bytes;
    aborted transactions are given as to `visibility.fill_hidden`; what else is given stays as it is from call to call,
    but that the caller sets FILLED and TRANSACTIONS of the cursor back to 0.
    """
    call = *source, buffer, table, hidden, *aborted, base_offset, arena, limit, functions, starts, ends, *offsets
    totals = np.zeros(TOTALS, np.int64)
    if JIT_ENABLED:
        return _scan_entries(*call, first_offset, key, entries, entries.view(np.uint64), cursor, totals)
    with np.errstate(over="ignore"):
        return _scan_entries(*call, first_offset, key, entries, entries.view(np.uint64), cursor, totals)


def fill_entries(
    data: Any, arena: Any, table: Any, rows: range, skip: Any, starts: Any, ends: Any, first_offset: int, key: Any,
    entries: Any, at: int,
) -> tuple[int, int, int, bool]:  # fmt: skip
    """List the keys of rows as `entries[i] = (low, high, offset)` from `at` on: SipHash-2-4-128, signed, and offset.

    Records without a key, with an offset below `first_offset`, and of rows with `skip[row]` are left out. Every record
    is checked. There is room for all of them. Returns (entries in all, row where it stopped, a status of `records.py`,
    whether the offsets of each batch rise and are within those of its header).
    """
    call = data, arena, table, rows.start, rows.stop, skip, starts, ends, first_offset, key, entries
    totals = np.zeros(TOTALS, np.int64)
    if JIT_ENABLED:
        return _fill_entries(*call, entries.view(np.uint64), at, totals)
    with np.errstate(over="ignore"):  # 64-bit sums wrap around, which numpy's scalars would warn of
        return _fill_entries(*call, entries.view(np.uint64), at, totals)
