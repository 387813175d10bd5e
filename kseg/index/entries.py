"""Every entry of a segment's offset and time index against the batches, chunk by chunk as they are walked.

What counts is what a reader does with an entry. A lookup takes the last entry at or below the wanted offset and scans
on from its position. So an entry (offset, position) is right if a batch starts at the position and the batch before it
ends below the offset. That holds for both rules by which brokers make entries: since Kafka 4.0 the last offset of the
batch at the position, before that the last offset of all batches that were appended with it. Old cleaners wrote the
offset of the last record that they kept, which lies inside a batch.

A time entry (timestamp, offset) leads to the position that the offset index has for the offset. It is right if all
batches before that position are earlier, and the greatest timestamp of the batches up to the offset is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kseg.index.offset import OffsetIndex
from kseg.index.time import TimeIndex
from kseg.native import entries as native
from kseg.native import table as t
from kseg.types import NO_TIMESTAMP

__all__ = ["EntryCheck", "WrongEntries"]

_OFFSET_TEXTS: Final = (
    (native.NOT_AT_BATCH, "no batch starts there"),
    (native.TOO_LATE, "that is behind the batch which holds the offset"),
    (native.NOT_HELD, "no batch holds the offset"),
)
_TIME_TEXTS: Final = (
    (native.AS_LATE_BEFORE, "a batch before the one it leads to is as late"),
    (native.NONE_AS_LATE, "no batch up to its offset is as late"),
    (native.LATER_BEFORE, "a batch up to its offset is later"),
)


class WrongEntries(NamedTuple):
    """Entries of an index that are wrong in one way.

    Attributes:
        misleads: Whether a reader that believes them misses records.
        slots: Their numbers, from 0.
    """

    misleads: bool
    slots: NDArray[np.int64]
    text: str

    def text_of(self, slot: int, index: OffsetIndex | TimeIndex) -> str:
        """What is wrong with one of them."""
        offset = int(index.offsets[slot])
        if isinstance(index, OffsetIndex):
            return f"entry {slot} (offset {offset}, byte {int(index.positions[slot])}): {self.text}"
        return f"entry {slot} (timestamp {int(index.timestamps[slot])}, offset {offset}): {self.text}"


class EntryCheck:
    """The entries of a segment's indexes, judged as its batches go by."""

    def __init__(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        self._offsets = offset_index
        self._times = time_index
        self._verdicts = np.zeros(len(offset_index), np.int64)
        self._time_verdicts = np.zeros(len(time_index), np.int64)
        slots = np.searchsorted(offset_index.offsets, time_index.offsets, side="right") - 1
        places = np.append(offset_index.positions, 0)[slots]  # slot -1: the segment's start
        self._places = np.maximum.accumulate(places) if len(places) else places
        self._cursor = np.zeros(native.CURSOR_FIELDS, np.int64)
        self._cursor[native.SEEN_LAST] = offset_index.base_offset - 1
        self._cursor[native.SEEN_MAX] = NO_TIMESTAMP

    @property
    def max_timestamp(self) -> int:
        """Greatest timestamp of the batches so far, -1 where there is none."""
        return int(self._cursor[native.SEEN_MAX])

    def add(self, table: t.Table) -> None:
        """Judge the entries that point into these rows."""
        native.scan_entries(
            table, table.shape[1], self._cursor, self._offsets.offsets, self._offsets.positions, self._verdicts,
            self._times.timestamps, self._times.offsets, self._places, self._time_verdicts,
        )  # fmt: skip

    def wrong_offsets(self, *, damaged: bool = False) -> Iterator[WrongEntries]:
        """What is wrong in the offset index; the batches end here, or with `damaged` they are not known further on."""
        for flag, text in _OFFSET_TEXTS:
            yield WrongEntries(flag != native.NOT_HELD, np.flatnonzero(self._verdicts & flag), text)
        if damaged:
            return
        end = int(self._cursor[native.SEEN_END])
        rest = np.arange(int(self._cursor[native.NEXT_POSITION]), len(self._offsets))
        beyond = self._offsets.positions[rest] >= end
        yield WrongEntries(True, rest[~beyond], "no batch starts there")
        yield WrongEntries(True, rest[beyond], f"the log ends at byte {end}")
        late = np.arange(int(self._cursor[native.NEXT_OFFSET]), int(self._cursor[native.NEXT_POSITION]))
        yield WrongEntries(True, late, f"the segment's last offset is {int(self._cursor[native.SEEN_LAST])}")

    def wrong_times(self, *, damaged: bool = False) -> Iterator[WrongEntries]:
        """What is wrong in the time index."""
        for flag, text in _TIME_TEXTS:
            if damaged and flag == native.NONE_AS_LATE:
                continue  # a damaged batch may be as late
            yield WrongEntries(flag != native.LATER_BEFORE, np.flatnonzero(self._time_verdicts & flag), text)
        if not damaged:
            rest = np.arange(int(self._cursor[native.NEXT_TIME_OFFSET]), len(self._times))
            yield WrongEntries(True, rest, "its offset is behind the segment's last")
