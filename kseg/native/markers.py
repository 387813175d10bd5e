"""Which transaction markers nothing needs any more: those of transactions that have no batch left."""

from __future__ import annotations

from typing import Any

from kseg.native._jit import kernel
from kseg.native.table import CONTROL_BIT


@kernel
def settle_markers(
    last_offsets: Any, slots: Any, attributes: Any, markers: Any, counts: Any, rows: int, aborted_firsts: Any,
    aborted_slots: Any, aborted_count: int, open_aborted: Any, seen: Any, open_committed: Any, empty: Any, owner: Any,
) -> None:  # fmt: skip
    """Follow transactions through the transactional and control batches of a log, from its first one on.

    Args:
        slots: Each batch's producer, as an index of `open_aborted` (-1: none), `seen` and `open_committed`.
        aborted_firsts: First offsets of the aborted transactions, ascending; `aborted_slots` are their producers.
        empty: Set for each marker whose transaction has no batch left, and for control batches without a record.
        owner: For each ABORT marker whose transaction has a batch, that transaction; else -1.
    """
    waiting = 0
    for row in range(rows):
        while waiting < aborted_count and aborted_firsts[waiting] <= last_offsets[row]:
            slot = aborted_slots[waiting]
            if slot >= 0 and open_aborted[slot] < 0:
                open_aborted[slot] = waiting
                seen[slot] = False
            waiting += 1
        slot = slots[row]
        empty[row] = False
        owner[row] = -1
        if attributes[row] & CONTROL_BIT == 0:
            if open_aborted[slot] >= 0:
                seen[slot] = True
            else:
                open_committed[slot] = True
        elif counts[row] == 0:
            empty[row] = True
        elif markers[row] == 0:
            transaction = open_aborted[slot]
            open_aborted[slot] = -1
            if transaction >= 0 and seen[slot]:
                owner[row] = transaction
            else:
                empty[row] = True
        elif markers[row] == 1:
            empty[row] = not open_committed[slot]
            open_committed[slot] = False
