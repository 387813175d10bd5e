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

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kseg.index.offset import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kseg.index.offset import OffsetIndex
from kseg.index.time import ENTRY_SIZE as TIME_ENTRY_SIZE
from kseg.index.time import TimeIndex
from kseg.types import NO_TIMESTAMP
from kseg.verification.findings import MOST_OF_A_KIND, Findings

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """Sound batches that lie back to back, by column; `before`: the last offset before them, `end`: the byte behind."""

    positions: Numbers
    firsts: Numbers
    lasts: Numbers
    max_timestamps: Numbers
    before: int
    end: int


@dataclass(slots=True)
class OffsetIndexCheck:
    """Entries of an offset index, looked at as the batches go by."""

    index: OffsetIndex
    findings: Findings
    _by_position: int = 0
    _by_offset: int = 0
    _last: int = field(default=-1)

    def add(self, run: Run) -> None:
        """Look at the entries that point into these batches."""
        index = self.index
        until = int(np.searchsorted(index.positions, run.end, side="left"))
        start = max(self._by_position, int(np.searchsorted(index.positions, run.positions[0], side="left")))
        positions, offsets = index.positions[start:until], index.offsets[start:until]
        rows = np.searchsorted(run.positions, positions, side="right") - 1
        at_batch = run.positions[rows] == positions
        before = np.where(rows > 0, run.lasts[rows - 1], run.before)
        self._tell(start, ~at_batch, "no batch starts at byte {position}")
        self._tell(
            start, at_batch & (before >= offsets), "it points to byte {position}, behind the batch that holds {offset}"
        )
        self._by_position = max(until, self._by_position)
        held_until = int(np.searchsorted(index.offsets, run.lasts[-1], side="right"))
        held = index.offsets[self._by_offset : held_until]
        missing = run.firsts[np.searchsorted(run.lasts, held, side="left")] > held
        self._tell(self._by_offset, missing, "no batch holds offset {offset}", code="KS203")
        self._by_offset = max(held_until, self._by_offset)
        self._last = int(run.lasts[-1])

    def finish(self, end: int, *, damaged: bool) -> None:
        """The batches end at byte `end`; behind damage no more is said of what was not reached."""
        for problem in self.index.parse_problems:
            self.findings.add_error("KS201", problem)
        if damaged:
            return
        beyond = self.index.positions[self._by_position :] >= end
        self._tell(self._by_position, beyond, f"it points to byte {{position}} of a log that ends at {end}")
        start = min(max(self._by_offset, 0), self._by_position)
        late = self.index.offsets[start : self._by_position] > self._last
        self._tell(start, late, f"its offset {{offset}} is behind the segment's last, {self._last}")

    def _tell(self, start: int, wrong: NDArray[np.bool_], text: str, code: str = "KS202") -> None:
        slots = np.flatnonzero(wrong)
        for i, slot in enumerate(slots[:MOST_OF_A_KIND] + start):
            offset, position = int(self.index.offsets[slot]), int(self.index.positions[slot])
            detail = f"entry {slot}: " + text.format(offset=offset, position=position)
            more = max(len(slots) - MOST_OF_A_KIND, 0) if not i else 0
            place = int(slot) * OFFSET_ENTRY_SIZE
            self.findings.add(code, self.index.path or "", detail, position=place, offset=offset, more=more)


@dataclass(slots=True)
class TimeIndexCheck:
    """Entries of a time index, looked at as the batches go by."""

    index: TimeIndex
    offset_index: OffsetIndex
    findings: Findings
    max_timestamp: int = NO_TIMESTAMP
    _places: Numbers = field(init=False)
    _by_place: int = 0
    _by_offset: int = 0

    def __post_init__(self) -> None:
        slots = np.searchsorted(self.offset_index.offsets, self.index.offsets, side="right") - 1
        places = np.append(self.offset_index.positions, 0)  # slot -1: the segment's start
        self._places = np.maximum.accumulate(places[slots]) if len(slots) else slots

    def add(self, run: Run) -> None:
        """Look at the entries that lead into these batches."""
        index = self.index
        latest = np.maximum.accumulate(np.append(self.max_timestamp, run.max_timestamps))
        start = max(self._by_place, int(np.searchsorted(self._places, run.positions[0], side="left")))
        until = int(np.searchsorted(self._places, run.end, side="left"))
        rows = np.searchsorted(run.positions, self._places[start:until], side="right") - 1
        earlier = latest[rows]
        self._tell(
            "KS206",
            start,
            earlier >= index.timestamps[start:until],
            "a batch before the one at its offset is as late",
            earlier,
        )
        self._by_place = max(until, self._by_place)
        start, until = self._by_offset, int(np.searchsorted(index.offsets, run.lasts[-1], side="right"))
        offsets, timestamps = index.offsets[start:until], index.timestamps[start:until]
        rows = np.searchsorted(run.lasts, offsets, side="left")
        known = latest[rows + (run.firsts[rows] <= offsets)]
        self._tell("KS206", start, timestamps > known, "no batch up to its offset is as late", known)
        self._tell("KS207", start, timestamps < known, "a batch up to its offset is later", known)
        self._by_offset = max(until, start)
        self.max_timestamp = int(latest[-1])

    def finish(self, *, sealed: bool, damaged: bool) -> None:
        """The batches end here; behind damage no more is said of what was not reached."""
        for problem in self.index.parse_problems:
            self.findings.add_error("KS205", problem)
        if damaged:
            return
        beyond = np.ones(len(self.index) - self._by_offset, np.bool_)
        self._tell("KS206", self._by_offset, beyond, "its offset is behind the segment's last", None)
        if not sealed or self.max_timestamp < 0 or self.index.parse_problems:
            return
        last = self.index.max_timestamp
        if last == NO_TIMESTAMP:
            self.findings.add(
                "KS209", self.index.path or "", f"the segment's greatest timestamp is {self.max_timestamp}"
            )
        elif last < self.max_timestamp:
            detail = f"it ends with {last}, the segment's greatest timestamp is {self.max_timestamp}"
            self.findings.add("KS208", self.index.path or "", detail, position=(len(self.index) - 1) * TIME_ENTRY_SIZE)

    def _tell(self, code: str, start: int, wrong: NDArray[np.bool_], text: str, known: Numbers | None) -> None:
        slots = np.flatnonzero(wrong)
        for i, slot in enumerate(slots[:MOST_OF_A_KIND]):
            entry = int(slot) + start
            timestamp, offset = int(self.index.timestamps[entry]), int(self.index.offsets[entry])
            detail = f"entry {entry} ({timestamp}, {offset}): {text}" + ("" if known is None else f": {known[slot]}")
            more = max(len(slots) - MOST_OF_A_KIND, 0) if not i else 0
            place = entry * TIME_ENTRY_SIZE
            self.findings.add(code, self.index.path or "", detail, position=place, offset=offset, more=more)
