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
    read_record,
)
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

LEGACY_V1_SIZE: Final = 26  # a message of magic 1 up to and with its timestamp

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
