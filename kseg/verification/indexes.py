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

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.index.offset import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kseg.index.offset import OffsetIndex
from kseg.index.time import ENTRY_SIZE as TIME_ENTRY_SIZE
from kseg.index.time import TimeIndex
from kseg.native import table as t
from kseg.native import verify as native
from kseg.types import NO_TIMESTAMP
from kseg.verification.findings import MOST_OF_A_KIND, Findings

Verdicts = NDArray[np.int64]
OFFSET_VERDICTS: Final = (
    (native.NOT_AT_BATCH, "KS202", "no batch starts there"),
    (native.TOO_LATE, "KS202", "that is behind the batch which holds the offset"),
    (native.NOT_HELD, "KS203", "no batch holds the offset"),
)
TIME_VERDICTS: Final = (
    (native.AS_LATE_BEFORE, "KS206", "a batch before the one it leads to is as late"),
    (native.NONE_AS_LATE, "KS206", "no batch up to its offset is as late"),
    (native.LATER_BEFORE, "KS207", "a batch up to its offset is later"),
)


class IndexCheck:
    """The entries of a segment's indexes, judged as its batches go by."""

    def __init__(self, offset_index: OffsetIndex, time_index: TimeIndex, findings: Findings) -> None:
        self._offsets = offset_index
        self._times = time_index
        self._findings = findings
        self._verdicts = np.zeros(len(offset_index), np.int64)
        self._time_verdicts = np.zeros(len(time_index), np.int64)
        slots = np.searchsorted(offset_index.offsets, time_index.offsets, side="right") - 1
        places = np.append(offset_index.positions, 0)[slots]  # slot -1: the segment's start
        self._places = np.maximum.accumulate(places) if len(places) else places
        self._cursor = np.zeros(native.ENTRY_CURSOR, np.int64)
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

    def finish(self, *, sealed: bool, damaged: bool) -> None:
        """The batches end here. Behind damage nothing is said of entries that were not reached."""
        for problem in self._offsets.parse_problems:
            self._findings.add_error("KS201", problem)
        for problem in self._times.parse_problems:
            self._findings.add_error("KS205", problem)
        self._tell_offsets(damaged)
        self._tell_times(damaged)
        if sealed and not damaged and self.max_timestamp >= 0 and not self._times.parse_problems:
            self._check_last_time()

    def _tell_offsets(self, damaged: bool) -> None:
        for flag, code, text in OFFSET_VERDICTS:
            self._tell_offset_entries(code, np.flatnonzero(self._verdicts & flag), text)
        if damaged:
            return
        end = int(self._cursor[native.SEEN_END])
        rest = np.arange(int(self._cursor[native.NEXT_POSITION]), len(self._offsets))
        beyond = self._offsets.positions[rest] >= end
        self._tell_offset_entries("KS202", rest[~beyond], "no batch starts there")
        self._tell_offset_entries("KS202", rest[beyond], f"the log ends at byte {end}")
        late = np.arange(int(self._cursor[native.NEXT_OFFSET]), int(self._cursor[native.NEXT_POSITION]))
        last = int(self._cursor[native.SEEN_LAST])
        self._tell_offset_entries("KS202", late, f"the segment's last offset is {last}")

    def _tell_offset_entries(self, code: str, slots: NDArray[np.int64], text: str) -> None:
        for i, slot in enumerate(slots[:MOST_OF_A_KIND].tolist()):
            offset, position = int(self._offsets.offsets[slot]), int(self._offsets.positions[slot])
            detail = f"entry {slot} (offset {offset}, byte {position}): {text}"
            more = max(len(slots) - MOST_OF_A_KIND, 0) if not i else 0
            place = slot * OFFSET_ENTRY_SIZE
            self._findings.add(code, self._offsets.path or "", detail, position=place, offset=offset, more=more)

    def _tell_times(self, damaged: bool) -> None:
        for flag, code, text in TIME_VERDICTS:
            if damaged and flag == native.NONE_AS_LATE:
                continue  # a damaged batch may be as late
            self._tell_time_entries(code, np.flatnonzero(self._time_verdicts & flag), text)
        if not damaged:
            rest = np.arange(int(self._cursor[native.NEXT_TIME_OFFSET]), len(self._times))
            self._tell_time_entries("KS206", rest, "its offset is behind the segment's last")

    def _tell_time_entries(self, code: str, slots: NDArray[np.int64], text: str) -> None:
        for i, slot in enumerate(slots[:MOST_OF_A_KIND].tolist()):
            timestamp, offset = int(self._times.timestamps[slot]), int(self._times.offsets[slot])
            detail = f"entry {slot} (timestamp {timestamp}, offset {offset}): {text}"
            more = max(len(slots) - MOST_OF_A_KIND, 0) if not i else 0
            place = slot * TIME_ENTRY_SIZE
            self._findings.add(code, self._times.path or "", detail, position=place, offset=offset, more=more)

    def _check_last_time(self) -> None:
        last, path = self._times.max_timestamp, self._times.path or ""
        if last == NO_TIMESTAMP:
            self._findings.add("KS209", path, f"the segment's greatest timestamp is {self.max_timestamp}")
        elif last < self.max_timestamp:
            detail = f"it ends with {last}, the segment's greatest timestamp is {self.max_timestamp}"
            self._findings.add("KS208", path, detail, position=(len(self._times) - 1) * TIME_ENTRY_SIZE)
