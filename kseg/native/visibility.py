"""Which batches of a table a reader must not see."""

from __future__ import annotations

from typing import Any

from kseg.native._jit import inlined, kernel
from kseg.native.table import ATTRIBUTES, CONTROL_BIT, LAST_OFFSET, MAGIC, PRODUCER_ID, TRANSACTIONAL_BIT


@inlined
def is_aborted(producer_id: int, last_offset: int, producers: Any, firsts: Any, markers: Any) -> bool:
    """Whether an aborted transaction of this producer covers the offset; the arrays are sorted by (producer, first)."""
    low = 0
    high = producers.shape[0]
    while low < high:
        middle = (low + high) // 2
        before = producers[middle] < producer_id or (producers[middle] == producer_id and firsts[middle] <= last_offset)
        if before:
            low = middle + 1
        else:
            high = middle
    return low > 0 and producers[low - 1] == producer_id and last_offset <= markers[low - 1]


@kernel
def fill_hidden(
    table: Any, first_row: int, end_row: int, producers: Any, firsts: Any, markers: Any, hidden: Any
) -> bool:
    """Mark control batches, and those of aborted transactions: `[firsts[i], markers[i]]` of `producers[i]`.

    Return whether any batch is a control batch or part of a transaction.
    """
    found = 0
    for row in range(first_row, end_row):
        attributes = table[ATTRIBUTES, row]
        hidden[row] = False
        if table[MAGIC, row] < 2:
            continue
        found |= attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)
        if attributes & CONTROL_BIT:
            hidden[row] = True
        elif attributes & TRANSACTIONAL_BIT and producers.shape[0]:
            hidden[row] = is_aborted(table[PRODUCER_ID, row], table[LAST_OFFSET, row], producers, firsts, markers)
    return found != 0
