"""The indexes, snapshot and leader epochs of a segment in a tier against its batches.

No checksum covers these, but that of the snapshot and those of encryption. So each is read as a broker would, and its
entries are held against the batches as they go by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from kseg.errors import IndexFileError
from kseg.index.entries import EntryCheck, WrongEntries
from kseg.index.epoch import LeaderEpochs
from kseg.index.offset import OffsetIndex
from kseg.index.producer import parse_columns
from kseg.index.time import TimeIndex
from kseg.index.txn import TxnIndex
from kseg.native import table as t
from kseg.tiering.layout import PlainPart
from kseg.tiering.listing import RemoteObjects

__all__ = ["SMALL_PARTS", "SmallParts"]

SMALL_PARTS: Final = (
    PlainPart.OFFSET_INDEX,
    PlainPart.TIME_INDEX,
    PlainPart.TXN_INDEX,
    PlainPart.SNAPSHOT,
    PlainPart.LEADER_EPOCHS,
)


class SmallParts:
    """The small parts of one segment, judged as its batches go by.

    Args:
        parts: Their bytes, as the broker had them.
        group: Whose they are; errors call each part by the name that it has in the plain layout.

    Raises:
        IndexFileError: One of them is malformed.
    """

    def __init__(self, parts: Mapping[PlainPart, bytes], group: RemoteObjects) -> None:
        base, stem = group.name.start_offset, f"{group.name.directory(group.layout)}/{group.name.stem}"
        paths = {part: stem + part.value for part in SMALL_PARTS}
        self._offsets = OffsetIndex.parse(parts[PlainPart.OFFSET_INDEX], base, paths[PlainPart.OFFSET_INDEX])
        self._times = TimeIndex.parse(parts[PlainPart.TIME_INDEX], base, paths[PlainPart.TIME_INDEX])
        self._txns = TxnIndex.parse(parts.get(PlainPart.TXN_INDEX, b""), paths[PlainPart.TXN_INDEX])
        parse_columns(parts[PlainPart.SNAPSHOT], paths[PlainPart.SNAPSHOT])
        if PlainPart.LEADER_EPOCHS in parts:
            LeaderEpochs.parse(parts[PlainPart.LEADER_EPOCHS], paths[PlainPart.LEADER_EPOCHS])
        for problem in (*self._offsets.check(), *self._times.check(), *self._txns.check(base)):
            raise problem
        self._entries = EntryCheck(self._offsets, self._times)
        self._markers: list[np.ndarray[tuple[int, int], np.dtype[np.int64]]] = []

    def add(self, table: t.Table) -> None:
        """Judge the entries that point into these batches."""
        self._entries.add(table)
        if len(self._txns):
            is_control = (table[t.MAGIC] == 2) & (table[t.ATTRIBUTES] & t.CONTROL_BIT != 0)
            self._markers.append(table[[t.LAST_OFFSET, t.PRODUCER_ID]][:, is_control])

    def finish(self) -> None:
        """The batches end here.

        Raises:
            IndexFileError: An entry misleads readers, or is of a transaction that does not end in the segment.
        """
        for wrong in self._entries.wrong_offsets():
            self._raise_if(wrong, self._offsets)
        for wrong in self._entries.wrong_times():
            self._raise_if(wrong, self._times)
        greatest, told = self._entries.max_timestamp, self._times.max_timestamp
        if told < greatest:
            raise IndexFileError(
                f"ends with timestamp {told}, the greatest in the segment is {greatest}", path=self._times.path
            )
        ends = {(offset, producer) for found in self._markers for offset, producer in found.T.tolist()}
        for txn in self._txns:
            if (txn.last_offset, txn.producer_id) not in ends:
                raise IndexFileError(
                    f"no transaction of producer {txn.producer_id} ends there",
                    path=self._txns.path,
                    offset=txn.last_offset,
                )

    @staticmethod
    def _raise_if(wrong: WrongEntries, index: OffsetIndex | TimeIndex) -> None:
        if wrong.misleads and len(wrong.slots):
            slot = int(wrong.slots[0])
            raise IndexFileError(wrong.text_of(slot, index), path=index.path, offset=int(index.offsets[slot]))
