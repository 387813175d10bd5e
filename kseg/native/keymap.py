"""Latest offset per key, in one open-addressing table of 128-bit key hashes.

`slots[slot] = (low, high, offset + 1)`; 0 marks an empty slot, so that a new table is nothing but zeros. The table is
cut into regions by the top bits of the low hash, so that several threads can fill it at once, each holding one region;
probing stays in its region.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined, kernel
from kseg.native.keys import ENTRY_OFFSET, HIGH, LOW
from kseg.native.memory import prefetch_row
from kseg.native.records import OFFSET

REGION_BITS: Final = 4
REGIONS: Final = 1 << REGION_BITS
EMPTY: Final = 0
SLOT_BYTES: Final = 24
AHEAD: Final = 16  # slots are asked for so many keys before they are looked at: memory is slow


@inlined
def region_of(low: Any) -> Any:
    """The region of a key; the hash is read as a signed number."""
    return (low >> (64 - REGION_BITS)) & (REGIONS - 1)


@kernel
def sort_by_region(entries: Any, count: int, ends: Any, target: Any) -> None:
    """Copy entries region by region: `target[ends[r - 1]:ends[r]]` are those of region `r`, in their order."""
    for region in range(REGIONS):
        ends[region] = 0
    for i in range(count):
        ends[region_of(entries[i, LOW])] += 1
    total = 0
    for region in range(REGIONS):
        size = ends[region]
        ends[region] = total
        total += size
    for i in range(count):
        region = region_of(entries[i, LOW])
        for column in range(3):
            target[ends[region], column] = entries[i, column]
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


@inlined
def _ask_for(slots: Any, slot: Any) -> None:
    """Have a slot brought near: it may begin in one line of the processor's cache and end in the next."""
    prefetch_row(slots, slot)
    prefetch_row(slots, slot + 1)


@kernel
def put_keys(
    slots: Any, first_region: int, end_region: int, entries: Any, ends: Any, held: Any, limit: int, first_offset: int,
    bits: Any,
) -> int:  # fmt: skip
    """Put the entries of some regions, each from the last to the first; the greatest offset of a key stays.

    `ends` is that of `sort_by_region`, `held[region]` how many keys a region holds. Where there are bits, counted from
    `first_offset`, those of offsets that stay are set: if entries are put in the order of their offsets, and those
    behind them were put before, these are the latest of their keys.

    Return the first region that would hold more than `limit` keys, in which some entries are put already; else
    `end_region`.
    """
    size = slots.shape[0] >> REGION_BITS
    known = 8 * bits.shape[0]
    for region in range(first_region, end_region):
        start = ends[region - 1] if region > 0 else 0
        first = region * size
        for i in range(ends[region] - 1, start - 1, -1):
            if i - AHEAD >= start:
                _ask_for(slots, first + (entries[i - AHEAD, LOW] & (size - 1)))
            low = entries[i, LOW]
            high = entries[i, HIGH]
            offset = entries[i, ENTRY_OFFSET]
            slot = _find(slots, first, size - 1, low, high)
            if slots[slot, 2] == EMPTY:
                if held[region] >= limit:
                    return region
                held[region] += 1
                slots[slot, 0] = low
                slots[slot, 1] = high
            elif offset + 1 < slots[slot, 2]:
                continue
            slots[slot, 2] = offset + 1
            place = offset - first_offset
            if 0 <= place < known:
                bits[place >> 3] |= 1 << (place & 7)
    return end_region


@kernel
def move_keys(slots: Any, larger: Any, held: Any) -> None:
    """Put all keys of a table into a larger one, which is empty; `held[region]` becomes how many each region holds."""
    size = larger.shape[0] >> REGION_BITS
    for slot in range(slots.shape[0]):
        if slots[slot, 2] != EMPTY:
            region = region_of(slots[slot, 0])
            target = _find(larger, region * size, size - 1, slots[slot, 0], slots[slot, 1])
            for column in range(3):
                larger[target, column] = slots[slot, column]
            held[region] += 1


@kernel
def fill_latest(slots: Any, hashes: Any, wanted: Any, count: int, latest: Any) -> None:
    """The latest offset of each wanted key, -1 where the map does not know it."""
    size = slots.shape[0] >> REGION_BITS
    for i in range(count):
        if i + AHEAD < count and wanted[i + AHEAD]:
            low = hashes[i + AHEAD, 0]
            _ask_for(slots, region_of(low) * size + (low & (size - 1)))
        latest[i] = -1
        if wanted[i]:
            region = region_of(hashes[i, 0])
            latest[i] = slots[_find(slots, region * size, size - 1, hashes[i, 0], hashes[i, 1]), 2] - 1


@kernel
def mark_latest(slots: Any, first_offset: int, bits: Any) -> None:
    """Set the bit of each offset that the map holds, counted from `first_offset`; there are bits for all of them."""
    if bits.shape[0] == 0:
        return
    for slot in range(slots.shape[0]):
        held = slots[slot, 2]
        at = max(held - 1 - first_offset, 0)
        bits[at >> 3] |= min(held, 1) << (at & 7)  # nothing for an empty slot: nobody foresees a branch here


@kernel
def fill_latest_marked(bits: Any, first_offset: int, columns: Any, count: int, latest: Any) -> None:
    """For records whose bit is not set: an offset behind their own, so that they are superseded; -1 for others."""
    for i in range(count):
        at = columns[OFFSET, i] - first_offset
        is_known = 0 <= at < 8 * bits.shape[0]  # else of a control batch, whose records nothing supersedes
        latest[i] = -1
        if is_known and not bits[at >> 3] >> (at & 7) & 1:
            latest[i] = columns[OFFSET, i] + 1


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
