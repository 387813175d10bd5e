"""Transactions in a log that is cleaned: which batches were aborted, and which markers nothing needs any more.

A marker may go only when no batch of its transaction is left. To know that, the transactional and control batches of
the whole log are followed in order; they are collected, headers alone, by whoever walks a piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.index.txn import AbortedTxn
from kseg.log.visibility import AbortedRanges
from kseg.log.walk import Chunk
from kseg.native import table as t
from kseg.native.markers import settle_markers

_COLUMNS: Final = [t.BASE_OFFSET, t.LAST_OFFSET, t.PRODUCER_ID, t.ATTRIBUTES, t.MARKER_TYPE, t.COUNT]
TransactionRows = NDArray[np.int64]
NO_ROWS: Final[TransactionRows] = np.empty((len(_COLUMNS), 0), np.int64)


def transaction_rows(chunk: Chunk, rows: range) -> TransactionRows:
    """What `settle` needs of the transactional and control batches among some rows."""
    span = slice(rows.start, rows.stop)
    bits = chunk.table[t.ATTRIBUTES, span] & (t.TRANSACTIONAL_BIT | t.CONTROL_BIT)
    if not bits.any():
        return NO_ROWS
    wanted = (bits != 0) & (chunk.table[t.MAGIC, span] == 2)
    return chunk.table[_COLUMNS, span][:, wanted]


def is_abort(rows: TransactionRows) -> NDArray[np.bool_]:
    """Which rows are ABORT markers; a control batch without a record is none."""
    found: NDArray[np.bool_] = (rows[_COLUMNS.index(t.MARKER_TYPE)] == 0) & (rows[_COLUMNS.index(t.COUNT)] > 0)
    return found


@dataclass(frozen=True, slots=True)
class Transactions:
    """What cleaning has to know of a log's transactions.

    Attributes:
        aborted: All aborted transactions.
        empty_markers: Offsets of the markers whose transaction has no batch left, ascending.
        kept: Aborted transactions that have a batch still, by the offset of their marker: the new index's entries.
    """

    aborted: AbortedRanges
    empty_markers: NDArray[np.int64]
    kept: tuple[AbortedTxn, ...]

    def kept_between(self, start: int, end: int) -> list[AbortedTxn]:
        """Those whose marker is in `[start, end)`."""
        return [txn for txn in self.kept if start <= txn.last_offset < end]


def settle(parts: Sequence[TransactionRows], aborted: Sequence[AbortedTxn]) -> Transactions:
    """Follow the transactions of a log from its first batch on.

    Args:
        parts: The rows of all pieces, in order.
        aborted: What the transaction indexes list.
    """
    rows = np.ascontiguousarray(np.concatenate([NO_ROWS, *parts], axis=1))
    bases, lasts, ids, attributes, markers, counts = rows
    known, slots = np.unique(ids, return_inverse=True)
    ordered = sorted(set(aborted), key=lambda txn: (txn.first_offset, txn.last_offset))
    firsts = np.array([txn.first_offset for txn in ordered], np.int64)
    owners = np.array([txn.producer_id for txn in ordered], np.int64)
    places = np.searchsorted(known, owners)
    found = (places < len(known)) & (np.append(known, -1)[np.minimum(places, len(known))] == owners)
    aborted_slots = np.where(found, places, -1)
    empty, owner = np.empty(len(bases), np.bool_), np.empty(len(bases), np.int64)
    settle_markers(
        lasts, slots.astype(np.int64), attributes, markers, counts, len(bases), firsts, aborted_slots, len(ordered),
        np.full(len(known), -1, np.int64), np.zeros(len(known), np.bool_), np.zeros(len(known), np.bool_), empty, owner,
    )  # fmt: skip
    kept = tuple(ordered[place] for place in owner[owner >= 0].tolist())
    return Transactions(AbortedRanges.of(ordered), bases[empty], kept)
