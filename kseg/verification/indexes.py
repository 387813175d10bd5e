"""Every entry of a segment's offset and time index against the batches, as findings."""

from __future__ import annotations

from kseg.index.entries import EntryCheck, WrongEntries
from kseg.index.offset import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kseg.index.offset import OffsetIndex
from kseg.index.time import ENTRY_SIZE as TIME_ENTRY_SIZE
from kseg.index.time import TimeIndex
from kseg.native import table as t
from kseg.types import NO_TIMESTAMP
from kseg.verification.findings import MOST_OF_A_KIND, Findings


class IndexCheck:
    """The entries of a segment's indexes, judged as its batches go by."""

    def __init__(self, offset_index: OffsetIndex, time_index: TimeIndex, findings: Findings) -> None:
        self._offsets = offset_index
        self._times = time_index
        self._findings = findings
        self._entries = EntryCheck(offset_index, time_index)

    @property
    def max_timestamp(self) -> int:
        """Greatest timestamp of the batches so far, -1 where there is none."""
        return self._entries.max_timestamp

    def add(self, table: t.Table) -> None:
        """Judge the entries that point into these rows."""
        self._entries.add(table)

    def finish(self, *, sealed: bool, damaged: bool) -> None:
        """The batches end here. Behind damage nothing is said of entries that were not reached."""
        for problem in self._offsets.parse_problems:
            self._findings.add_error("KS201", problem)
        for problem in self._times.parse_problems:
            self._findings.add_error("KS205", problem)
        for wrong in self._entries.wrong_offsets(damaged=damaged):
            self._tell("KS202" if wrong.misleads else "KS203", wrong, self._offsets, OFFSET_ENTRY_SIZE)
        for wrong in self._entries.wrong_times(damaged=damaged):
            self._tell("KS206" if wrong.misleads else "KS207", wrong, self._times, TIME_ENTRY_SIZE)
        if sealed and not damaged and self.max_timestamp >= 0 and not self._times.parse_problems:
            self._check_last_time()

    def _tell(self, code: str, wrong: WrongEntries, index: OffsetIndex | TimeIndex, entry_size: int) -> None:
        for i, slot in enumerate(wrong.slots[:MOST_OF_A_KIND].tolist()):
            more = max(len(wrong.slots) - MOST_OF_A_KIND, 0) if not i else 0
            place, offset = slot * entry_size, int(index.offsets[slot])
            self._findings.add(
                code, index.path or "", wrong.text_of(slot, index), position=place, offset=offset, more=more
            )

    def _check_last_time(self) -> None:
        last, path = self._times.max_timestamp, self._times.path or ""
        if last == NO_TIMESTAMP:
            self._findings.add("KS209", path, f"the segment's greatest timestamp is {self.max_timestamp}")
        elif last < self.max_timestamp:
            detail = f"it ends with {last}, the segment's greatest timestamp is {self.max_timestamp}"
            self._findings.add("KS208", path, detail, position=(len(self._times) - 1) * TIME_ENTRY_SIZE)
