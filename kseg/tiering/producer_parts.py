"""The transaction index and the producer snapshot of a segment in a tier against its batches.

Brokers forget producers that were silent for long, and how long is a setting of theirs. So a snapshot may lack a
producer, unless it has a transaction open; what it does say has to agree with the batches.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.errors import IndexFileError
from kseg.index.producer import ProducerEntry, parse_snapshot
from kseg.index.txn import TxnIndex
from kseg.log.producers import ProducerState
from kseg.native import table as t

__all__ = ["ProducerParts", "state_before"]

_NOBODY: Final = -1


def state_before(snapshot: bytes | None, start_offset: int) -> ProducerState:
    """The producers before a segment, by the snapshot of the one before it; nobody where it is of another offset."""
    try:
        state = ProducerState(start_offset) if snapshot is None else ProducerState.from_snapshot(snapshot, start_offset)
    except IndexFileError:
        return ProducerState(start_offset)
    fits = all(max(found.last_offset, found.txn_first_offset) < start_offset for found in state.entries())
    return state if fits else ProducerState(start_offset)


class ProducerParts:
    """What the batches of a segment say of its producers, and whether its parts say the same.

    Args:
        base_offset: Where the segment begins.
        before: The producers before it, as far as they are known; moved on as batches go by.
    """

    def __init__(self, base_offset: int, before: ProducerState) -> None:
        self._base = base_offset
        self._state = before
        self._last = base_offset - 1
        self._is_dense = True
        self._writers: list[NDArray[np.int64]] = []
        self._markers: list[NDArray[np.int64]] = []

    def add(self, table: t.Table) -> None:
        """Take batches."""
        self._state.add(table, table.shape[1], strict=False)
        bases, lasts, ids = table[t.BASE_OFFSET], table[t.LAST_OFFSET], table[t.PRODUCER_ID]
        self._is_dense &= bool((bases == np.append(self._last, lasts[:-1]) + 1).all())
        self._last = int(lasts[-1])
        self._writers.append(np.unique(ids[ids > _NOBODY]))
        is_control = (table[t.MAGIC] == 2) & (table[t.ATTRIBUTES] & t.CONTROL_BIT != 0)
        if is_control.any():
            self._markers.append(table[[t.LAST_OFFSET, t.PRODUCER_ID]][:, is_control])

    def wrong_index(self, index: TxnIndex) -> IndexFileError | None:
        """What is wrong with a transaction index."""
        ends = {(offset, producer) for found in self._markers for offset, producer in found.T.tolist()}
        firsts = {(txn.last_offset, txn.producer_id): txn.first_offset for txn in index}
        for offset, producer in firsts:
            if (offset, producer) not in ends:
                text = f"no transaction of producer {producer} ends there"
                return IndexFileError(text, path=index.path, offset=offset)
        for txn in self._state.aborted:
            first = firsts.get((txn.last_offset, txn.producer_id))
            if first is None or (first > txn.first_offset >= self._base):
                told = "it is not there" if first is None else f"there it begins at {first}"
                text = f"producer {txn.producer_id} aborted a transaction that began at {txn.first_offset}, and {told}"
                return IndexFileError(text, path=index.path, offset=txn.last_offset)
        return None

    def wrong_snapshot(self, snapshot: bytes, end_offset: int, path: str) -> IndexFileError | None:
        """What is wrong with the snapshot at the segment's end."""
        try:
            entries = {entry.producer_id: entry for entry in parse_snapshot(snapshot, path)}
        except IndexFileError as error:
            return error
        writers = set(np.concatenate([np.empty(0, np.int64), *self._writers]).tolist())
        reasons = [self._wrong_entry(entry, entry.producer_id in writers, end_offset) for entry in entries.values()] + [
            f"producer {txn.producer_id} has a transaction open since {txn.first_offset}, and is not in it"
            for txn in self._state.open_transactions()
            if txn.producer_id in writers and txn.producer_id not in entries
        ]
        return next((IndexFileError(reason, path=path) for reason in reasons if reason is not None), None)

    def _wrong_entry(self, entry: ProducerEntry, wrote: bool, end_offset: int) -> str | None:
        name = f"producer {entry.producer_id}"
        if max(entry.last_offset, entry.txn_first_offset) >= end_offset:
            offset = max(entry.last_offset, entry.txn_first_offset)
            return f"{name} is there with offset {offset}, and the segment ends at {end_offset}"
        if not wrote:
            if self._is_dense and self._base <= entry.last_offset <= self._last:
                return f"no batch of {name} ends at {entry.last_offset}"
            return None
        ours = self._state.find(entry.producer_id)
        assert ours is not None  # whoever wrote is known
        is_older = entry.epoch < ours.epoch
        if ours.last_offset >= self._base:
            theirs, newest = (entry.epoch, entry.last_offset), (ours.epoch, ours.last_offset)
            is_other = theirs != newest or entry.last_sequence != ours.last_sequence
            is_older |= theirs < newest or (is_other and self._is_dense)
        if is_older:
            return f"the newest batch of {name} ends at {entry.last_offset}, in the segment at {ours.last_offset}"
        told, began = entry.txn_first_offset, ours.txn_first_offset
        if (told < 0) != (began < 0) or told > began:
            return f"{name} has a transaction open since offset {told}, by its batches {began} (-1: none)"
        return None
