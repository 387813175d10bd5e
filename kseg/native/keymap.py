"""Latest offset per key, in one open-addressing table of 128-bit key hashes.

`slots[slot] = (low, high, offset + 1)`; 0 marks an empty slot, so that a new table is nothing but zeros, which cost no
memory until they are touched. The table is cut into regions by the top bits of the low hash, so that several threads
can fill it at once, each holding one region; probing stays in its region.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import JIT_ENABLED, inlined, kernel
from kseg.native.hash import siphash128
from kseg.native.memory import prefetch_row
from kseg.native.records import BATCH_ROW, KEY_LENGTH, KEY_START, OFFSET

REGION_BITS: Final = 4
REGIONS: Final = 1 << REGION_BITS
EMPTY: Final = 0
FULL: Final = -1
SLOT_BYTES: Final = 24
AHEAD: Final = 8  # slots are asked for so many keys before they are looked at: memory is slow


@inlined
def region_of(low: Any) -> Any:
    """The region of a key; the hash is read as a signed number."""
    return (low >> (64 - REGION_BITS)) & (REGIONS - 1)


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


@kernel
def fill_wanted(columns: Any, count: int, hidden: Any, first_offset: int, wanted: Any) -> None:
    """Mark the records that have a key, are not in a hidden batch and have an offset from `first_offset` on."""
    for i in range(count):
        has_key = columns[KEY_LENGTH, i] >= 0
        wanted[i] = has_key and columns[OFFSET, i] >= first_offset and not hidden[columns[BATCH_ROW, i]]


@kernel
def order_by_region(hashes: Any, wanted: Any, count: int, ends: Any, order: Any) -> None:
    """List the wanted ones region by region: `order[ends[r - 1]:ends[r]]` are those of region `r`, in their order."""
    for region in range(REGIONS):
        ends[region] = 0
    for i in range(count):
        if wanted[i]:
            ends[region_of(hashes[i, 0])] += 1
    total = 0
    for region in range(REGIONS):
        size = ends[region]
        ends[region] = total
        total += size
    for i in range(count):
        if wanted[i]:
            region = region_of(hashes[i, 0])
            order[ends[region]] = i
            ends[region] += 1


@inlined
def _find(slots: Any, first: int, mask: int, low: Any, high: Any) -> Any:
    """The slot that holds a key, or the empty one where it belongs."""
    at = low & mask
    while True:
        slot = first + at
        if slots[slot, 2] == EMPTY or (slots[slot, 0] == low and slots[slot, 1] == high):
            return slot
        at = (at + 1) & mask


@kernel
def put_keys(
    slots: Any, region: int, hashes: Any, offsets: Any, order: Any, start: int, end: int, held: int, limit: int
) -> int:
    """Put the records `order[start:end]`, all of one region; the greatest offset of a key stays.

    Return how many keys the region holds, which held `held`; or FULL where there are more than `limit`.
    """
    size = slots.shape[0] >> REGION_BITS
    for n in range(start, end):
        if n + AHEAD < end:
            prefetch_row(slots, region * size + (hashes[order[n + AHEAD], 0] & (size - 1)))
        i = order[n]
        slot = _find(slots, region * size, size - 1, hashes[i, 0], hashes[i, 1])
        if slots[slot, 2] == EMPTY:
            if held >= limit:
                return FULL
            held += 1
            slots[slot, 0] = hashes[i, 0]
            slots[slot, 1] = hashes[i, 1]
            slots[slot, 2] = offsets[i] + 1
        elif offsets[i] >= slots[slot, 2]:
            slots[slot, 2] = offsets[i] + 1
    return held


@kernel
def fill_latest(slots: Any, hashes: Any, wanted: Any, count: int, latest: Any) -> None:
    """The latest offset of each wanted key, -1 where the map does not know it."""
    size = slots.shape[0] >> REGION_BITS
    for i in range(count):
        if i + AHEAD < count and wanted[i + AHEAD]:
            low = hashes[i + AHEAD, 0]
            prefetch_row(slots, region_of(low) * size + (low & (size - 1)))
        latest[i] = -1
        if wanted[i]:
            region = region_of(hashes[i, 0])
            latest[i] = slots[_find(slots, region * size, size - 1, hashes[i, 0], hashes[i, 1]), 2] - 1


@kernel
def fill_latest_dropped(dropped: Any, columns: Any, count: int, latest: Any) -> None:
    """For records whose offset is among the sorted `dropped`: an offset behind their own, so that they are superseded.

    Offsets of a log rise from record to record, or the search starts again.
    """
    at = 0
    for i in range(count):
        offset = columns[OFFSET, i]
        if at > 0 and dropped[at - 1] >= offset:
            at = 0
        while at < dropped.shape[0] and dropped[at] < offset:
            at += 1
        latest[i] = offset + 1 if at < dropped.shape[0] and dropped[at] == offset else -1
