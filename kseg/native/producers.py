"""Follow producers through the batch table: sequences, markers, open and completed transactions.

The rules are those of Kafka's ProducerStateManager when it replays a log (origin "replication"): nothing is refused
for its epoch or sequence. A producer has a slot, a column of `producers`; `open_first` and `open_slots` list
transactions in the order in which they began, so by ascending first offset. An element of that list counts as long as
its producer's TXN_FIRST_OFFSET still equals it: completing a transaction only clears that field, and `head` passes
over what is completed.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined, kernel
from kseg.native.memory import wrap_i64
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL_BIT,
    COORDINATOR_EPOCH,
    LAST_OFFSET,
    MARKER_TIMESTAMP,
    MARKER_TYPE,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    TRANSACTIONAL_BIT,
)

# Rows of `producers`: the fields of a snapshot's entry, in the file's order.
PRODUCER_ID: Final = 0
EPOCH: Final = 1
LAST_SEQUENCE: Final = 2
NEWEST_OFFSET: Final = 3
OFFSET_DELTA: Final = 4
TIMESTAMP: Final = 5
MARKER_EPOCH: Final = 6
TXN_FIRST_OFFSET: Final = 7

# Rows of `completed`.
DONE_PRODUCER_ID: Final = 0
DONE_FIRST: Final = 1
DONE_LAST: Final = 2
DONE_STABLE: Final = 3  # the last stable offset right after the marker
DONE_ABORTED: Final = 4
DONE_FIELDS: Final = 5

OPEN_HEAD: Final = 0
OPEN_END: Final = 1

ABORT: Final = 0
COMMIT: Final = 1
GREATEST_SEQUENCE: Final = 0x7FFFFFFF


@kernel
def scan_first_open(producers: Any, open_first: Any, open_slots: Any, start: int, end: int, but_slot: int) -> int:
    """Find the first transaction in `[start, end)` that is open and not `but_slot`'s; return its place or `end`."""
    for i in range(start, end):
        slot = open_slots[i]
        if slot != but_slot and producers[TXN_FIRST_OFFSET, slot] == open_first[i]:
            return i
    return end


@inlined
def last_sequence(first: int, delta: int) -> int:
    """The sequence `delta` records behind `first`: behind the greatest comes 0.

    Numbers that only damage can bring are taken as Java's 32-bit integers take them.
    """
    if first > _wrap_i32(GREATEST_SEQUENCE - delta):
        return _wrap_i32(delta - (GREATEST_SEQUENCE - first) - 1)
    return _wrap_i32(first + delta)


@inlined
def _wrap_i32(value: int) -> int:
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


@kernel
def fill_producers(
    table: Any,
    first_row: int,
    end_row: int,
    slots: Any,
    producers: Any,
    open_first: Any,
    open_slots: Any,
    open_range: Any,
    completed: Any,
) -> tuple[int, int]:
    """Replay rows `[first_row, end_row)`; return (transactions completed, first inconsistent row or -1).

    `slots[row - first_row]` is the row's producer, -1 where it has none. `open_first`, `open_slots` have room for one
    more transaction per row, `completed[DONE_FIELDS, n]` too. A row is inconsistent if it is not transactional though
    its producer has an open transaction: Kafka refuses to load such a log. It is replayed as data all the same.
    """
    done = 0
    odd_row = -1
    for row in range(first_row, end_row):
        slot = slots[row - first_row]
        if slot < 0:
            continue
        attributes = table[ATTRIBUTES, row]
        marker = table[MARKER_TYPE, row]
        epoch = table[PRODUCER_EPOCH, row]
        first = table[BASE_OFFSET, row]
        is_control = attributes & CONTROL_BIT
        if is_control and marker != ABORT and marker != COMMIT:
            continue  # an empty control batch, or what is no transaction marker
        if epoch != producers[EPOCH, slot]:
            producers[EPOCH, slot] = epoch
            producers[LAST_SEQUENCE, slot] = -1
            producers[NEWEST_OFFSET, slot] = -1
            producers[OFFSET_DELTA, slot] = 0
        producers[TIMESTAMP, slot] = table[MARKER_TIMESTAMP if is_control else MAX_TIMESTAMP, row]
        began = producers[TXN_FIRST_OFFSET, slot]
        if is_control:
            producers[MARKER_EPOCH, slot] = table[COORDINATOR_EPOCH, row]
            if began < 0:
                continue  # the marker of a transaction that wrote nothing here
            head = scan_first_open(producers, open_first, open_slots, open_range[OPEN_HEAD], open_range[OPEN_END], -1)
            open_range[OPEN_HEAD] = head
            other = scan_first_open(producers, open_first, open_slots, head, open_range[OPEN_END], slot)
            stable = wrap_i64(int(first) + 1)
            if other < open_range[OPEN_END]:
                stable = open_first[other]
            completed[DONE_PRODUCER_ID, done] = producers[PRODUCER_ID, slot]
            completed[DONE_FIRST, done] = began
            completed[DONE_LAST, done] = first
            completed[DONE_STABLE, done] = stable
            completed[DONE_ABORTED, done] = 1 if marker == ABORT else 0
            done += 1
            producers[TXN_FIRST_OFFSET, slot] = -1
            continue
        delta = wrap_i64(int(table[LAST_OFFSET, row]) - int(first))
        sequence = table[BASE_SEQUENCE, row]
        producers[LAST_SEQUENCE, slot] = -1 if sequence == -1 else last_sequence(int(sequence), delta)
        producers[NEWEST_OFFSET, slot] = table[LAST_OFFSET, row]
        producers[OFFSET_DELTA, slot] = delta
        if attributes & TRANSACTIONAL_BIT:
            if began < 0:
                producers[TXN_FIRST_OFFSET, slot] = first
                open_first[open_range[OPEN_END]] = first
                open_slots[open_range[OPEN_END]] = slot
                open_range[OPEN_END] += 1
        elif began >= 0 and odd_row < 0:
            odd_row = row
    return done, odd_row
