"""The indexes, snapshot and leader epochs of a segment in a tier against its batches.

No checksum covers these, but that of the snapshot and those of encryption. So each is read as a broker would, and held
against the batches as they go by.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from kseg.errors import IndexFileError
from kseg.index.entries import EntryCheck, WrongEntries
from kseg.index.epoch import LeaderEpochs
from kseg.index.offset import OffsetIndex
from kseg.index.time import TimeIndex
from kseg.index.txn import TxnIndex
from kseg.log.producers import ProducerState
from kseg.native import table as t
from kseg.tiering.layout import PlainPart
from kseg.tiering.producer_parts import ProducerParts

__all__ = ["SMALL_PARTS", "EpochRuns", "Problems", "SmallParts"]

SMALL_PARTS: Final = (
    PlainPart.OFFSET_INDEX,
    PlainPart.TIME_INDEX,
    PlainPart.TXN_INDEX,
    PlainPart.SNAPSHOT,
    PlainPart.LEADER_EPOCHS,
)
UNINDEXED_BYTES: Final = 16 << 20
"""Far more than any broker leaves between two entries; old ones make one for all batches that came together."""
UNINDEXED_AT_ALL_BYTES: Final = 2 << 20
UNINDEXED_TIMED_BYTES: Final = 64 << 10
"""The same where the time index has more than the one entry that every segment gets and one of a broker's stop."""
MORE_TIMES: Final = 16
"""Time entries that have no offset entry beside them: one for each time that a broker was stopped, and the last."""

Problems = dict[PlainPart, IndexFileError]


class EpochRuns:
    """The leader epochs that batches have: `(epoch, first offset, last offset)` for each run of batches of one."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int, int]] = []
        self._lacks_epochs = False

    def add(self, table: t.Table) -> None:
        """Take batches."""
        epochs = table[t.LEADER_EPOCH]
        edges = [0, *(np.flatnonzero(epochs[1:] != epochs[:-1]) + 1).tolist(), len(epochs)]
        self._lacks_epochs |= bool((epochs < 0).any())
        for start, end in itertools.pairwise(edges):
            epoch, last = int(epochs[start]), int(table[t.LAST_OFFSET, end - 1])
            if self.runs and self.runs[-1][0] == epoch:
                self.runs[-1] = (epoch, self.runs[-1][1], last)
            elif epoch >= 0:
                self.runs.append((epoch, int(table[t.BASE_OFFSET, start]), last))

    def join(self, behind: EpochRuns) -> None:
        """Take what batches behind these have."""
        self.runs += behind.runs
        self._lacks_epochs |= behind._lacks_epochs

    def wrong(self, epochs: LeaderEpochs, end_offset: int, path: str) -> IndexFileError | None:
        """What is wrong with a checkpoint of all epochs up to `end_offset`."""
        latest = epochs.latest
        if latest is not None and latest.start_offset >= end_offset:
            text = f"epoch {latest.epoch} begins at {latest.start_offset}, and the segment ends at {end_offset}"
            return IndexFileError(text, path=path)
        if latest is None:  # a legacy batch, which may be one of magic 2 by now, clears a broker's checkpoint
            text = f"is empty, and batches have leader epochs up to {max((run[0] for run in self.runs), default=-1)}"
            return IndexFileError(text, path=path) if self.runs and not self._lacks_epochs else None
        for epoch, first, last in self.runs:
            for offset in (first, last):
                told = epochs.epoch_of(offset)  # entries before the log's start are cut off
                if told not in (None, epoch):
                    return IndexFileError(f"has epoch {told} for a batch of epoch {epoch}", path=path, offset=offset)
        return None

    def to_epochs(self) -> LeaderEpochs:
        """The checkpoint that the batches alone would make."""
        epochs = LeaderEpochs()
        for epoch, first, _ in self.runs:
            if epochs.latest is None or epoch > epochs.latest.epoch:
                epochs = epochs.assign(epoch, first)
        return epochs


class SmallParts:
    """The small parts of one segment, judged as its batches go by.

    Args:
        parts: Their bytes, as the broker had them.
        base_offset: Where the segment begins.
        stem: Path of the segment without a part's ending; errors name each part as it is named in the plain layout.
        before: The producers before the segment, as far as they are known.
    """

    def __init__(self, parts: Mapping[PlainPart, bytes], base_offset: int, stem: str, before: ProducerState) -> None:
        self.problems: Problems = {}
        self.epochs = EpochRuns()
        self._parts = parts
        self._paths = {part: stem + part.value for part in SMALL_PARTS}
        self._producers = ProducerParts(base_offset, before)
        self._last_start = 0
        data, paths = {part: parts.get(part, b"") for part in SMALL_PARTS}, self._paths
        self._offsets = OffsetIndex.parse(data[PlainPart.OFFSET_INDEX], base_offset, paths[PlainPart.OFFSET_INDEX])
        self._times = TimeIndex.parse(data[PlainPart.TIME_INDEX], base_offset, paths[PlainPart.TIME_INDEX])
        self._txns = TxnIndex.of((), paths[PlainPart.TXN_INDEX])
        for problem in reversed(self._offsets.check()):
            self.problems[PlainPart.OFFSET_INDEX] = problem
        for problem in reversed(self._times.check()):
            self.problems[PlainPart.TIME_INDEX] = problem
        try:
            self._txns = TxnIndex.parse(data[PlainPart.TXN_INDEX], paths[PlainPart.TXN_INDEX])
            for problem in reversed(self._txns.check(base_offset)):
                self.problems[PlainPart.TXN_INDEX] = problem
        except IndexFileError as error:
            self.problems[PlainPart.TXN_INDEX] = error
        self._entries = EntryCheck(self._offsets, self._times)

    def _note(self, part: PlainPart, problem: IndexFileError | None) -> None:
        if problem is not None:
            self.problems.setdefault(part, problem)

    def add(self, table: t.Table) -> None:
        """Judge what is said of these batches."""
        self._entries.add(table)
        self._producers.add(table)
        self.epochs.add(table)
        self._last_start = int(table[t.POSITION, -1])

    def finish(self, end_offset: int) -> Problems:
        """The batches end here, and the segment at `end_offset`; return what is wrong with each part."""
        if PlainPart.OFFSET_INDEX not in self.problems:
            self._note(PlainPart.OFFSET_INDEX, _misleading(self._entries.wrong_offsets(), self._offsets))
            self._note(PlainPart.OFFSET_INDEX, self._unindexed())
        if PlainPart.TIME_INDEX not in self.problems:
            if PlainPart.OFFSET_INDEX not in self.problems:  # by whose entries it is judged
                self._note(PlainPart.TIME_INDEX, _misleading(self._entries.wrong_times(), self._times))
            greatest, told = self._entries.max_timestamp, self._times.max_timestamp
            if told < greatest:
                text = f"ends with timestamp {told}, the greatest in the segment is {greatest}"
                self._note(PlainPart.TIME_INDEX, IndexFileError(text, path=self._times.path))
        if PlainPart.TXN_INDEX not in self.problems:
            self._note(PlainPart.TXN_INDEX, self._producers.wrong_index(self._txns))
        if PlainPart.SNAPSHOT in self._parts:
            snapshot, path = self._parts[PlainPart.SNAPSHOT], self._paths[PlainPart.SNAPSHOT]
            self._note(PlainPart.SNAPSHOT, self._producers.wrong_snapshot(snapshot, end_offset, path))
        self._note(PlainPart.LEADER_EPOCHS, self._wrong_epochs(end_offset))
        return self.problems

    def _unindexed(self) -> IndexFileError | None:
        """What shows that entries were lost: such an index does not mislead, but lets a broker read all behind it."""
        entries, times = len(self._offsets), len(self._times)
        bare = self._last_start - (int(self._offsets.positions[-1]) if entries else 0)
        text, most = None, UNINDEXED_BYTES
        if not entries:
            most = UNINDEXED_TIMED_BYTES if times > 2 else UNINDEXED_AT_ALL_BYTES
        if bare > most:
            text = f"has no entry for the last {bare} bytes before the last batch"
        elif times > entries + MORE_TIMES:
            text = f"has too few entries: {entries}, and the time index {times}"
        return None if text is None else IndexFileError(text, path=self._offsets.path)

    def _wrong_epochs(self, end_offset: int) -> IndexFileError | None:
        path = self._paths[PlainPart.LEADER_EPOCHS]
        data = self._parts.get(PlainPart.LEADER_EPOCHS)
        try:
            epochs = LeaderEpochs.parse(data, path) if data else LeaderEpochs()
        except IndexFileError as error:
            return error
        return self.epochs.wrong(epochs, end_offset, path)


def _misleading(found: Iterable[WrongEntries], index: OffsetIndex | TimeIndex) -> IndexFileError | None:
    for wrong in found:
        if wrong.misleads and len(wrong.slots):
            slot = int(wrong.slots[0])
            return IndexFileError(wrong.text_of(slot, index), path=index.path, offset=int(index.offsets[slot]))
    return None
