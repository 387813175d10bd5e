"""Go on behind damage: find the runs of sound batches of a segment, and make a segment of them.

A batch is sound if its checksum fits and its offsets lie in its segment, between its name and that of the next one. A
transaction marker that cannot be read is damage too, and a batch outside of its producer's open transaction
(`outsiders`): no broker starts on them. Of sound batches whose offsets contradict each other, as many stay as have
rising ones (`rising`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kseg.errors import FormatError
from kseg.log.markers import unreadable_markers
from kseg.log.names import MAX_OFFSET
from kseg.log.producers import ProducerState
from kseg.log.sound import claimed_offsets, find_batch, frame, is_sound
from kseg.log.walk import Chunk, batch_offsets
from kseg.native import table as t
from kseg.progress import SILENT, Progress
from kseg.recovery.folder import Content, FolderFile, Piece
from kseg.recovery.loader import Cut
from kseg.recovery.outsiders import find_outsiders, find_plain_producers
from kseg.recovery.producers import ProducerSnapshots
from kseg.recovery.recover_segment import EpochCache, Recovered, recover_segment
from kseg.recovery.rising import find_rising
from kseg.recovery.segments import OPTIONS, LoadedSegment, walk_chunks


@dataclass(frozen=True, slots=True)
class Run:
    """Sound batches that follow each other: bytes `[start, end)`, offsets `[first_offset, next_offset)`."""

    start: int
    end: int
    first_offset: int
    next_offset: int


def find_runs(
    file: FolderFile, *, base_offset: int, start: int = 0, next_offset: int | None = None, limit: int | None = None
) -> list[Run]:
    """The runs of sound batches from byte `start` on, where a batch may begin.

    Args:
        next_offset: Below it no sound batch is; by default the base offset.
        limit: At or above it neither: where the next segment begins.
    """
    floor = base_offset if next_offset is None else next_offset
    runs: list[Run] = []
    lowest = floor  # of a batch that is searched for: records can hold batches of any offset
    position: int | None = start
    while position is not None and position < file.size:
        walk = _Walk(position, floor, MAX_OFFSET if limit is None else limit)
        walk.follow(file)
        runs += walk.runs
        surely, lowest = max(lowest, walk.before_last), max(lowest, walk.next_offset)
        behind = max(walk.end, position + 1)
        position = find_batch(file, OPTIONS, behind, base_offset=base_offset, next_offset=lowest)
        if position is None and surely < lowest:  # the offsets of the batch before the damage may be false
            position, lowest = find_batch(file, OPTIONS, behind, base_offset=base_offset, next_offset=surely), surely
    rising = all(one.next_offset <= two.first_offset for one, two in itertools.pairwise(runs))
    return runs if rising else _rising_runs(file, runs)


class _Walk:
    """Sound batches that follow each other without damage, from a position on.

    Attributes:
        runs: Those with rising offsets; a batch that is left out, or offsets that fall back, end one.
        end: Behind the last batch, whether it was left out or not.
        next_offset: Behind the highest offset of the runs.
        before_last: The same without the last batch.
    """

    def __init__(self, start: int, floor: int, limit: int) -> None:
        self._floor, self._limit = floor, limit
        self.runs: list[Run] = []
        self.end = start
        self.next_offset = self.before_last = floor

    def follow(self, file: FolderFile) -> None:
        """Walk to the end of the file or to damage."""
        try:
            for chunk in walk_chunks(file, start=self.end, check=True):
                self._take(chunk)
        except FormatError:
            pass  # what is behind is searched for

    def _take(self, chunk: Chunk) -> None:
        firsts, lasts = batch_offsets(chunk)
        positions = chunk.table[t.POSITION, : chunk.rows]
        ends = positions + chunk.table[t.SIZE, : chunk.rows]
        fits = (firsts >= self._floor) & (lasts >= firsts) & (lasts < self._limit) & ~unreadable_markers(chunk)
        breaks = np.flatnonzero((firsts[1:] <= lasts[:-1]) | (fits[1:] != fits[:-1])) + 1
        if fits.any():
            self.before_last = max(self.next_offset, int(lasts[fits][:-1].max(initial=-1)) + 1)
        for first, last in itertools.pairwise([0, *breaks.tolist(), chunk.rows]):
            if fits[first]:
                run = Run(int(positions[first]), int(ends[last - 1]), int(firsts[first]), int(lasts[last - 1]) + 1)
                self._append(run)
        self.end = int(ends[-1])

    def _append(self, run: Run) -> None:
        before = self.runs[-1] if self.runs else None
        if before is not None and before.end == run.start and before.next_offset <= run.first_offset:
            self.runs[-1] = Run(before.start, run.end, before.first_offset, run.next_offset)
        else:
            self.runs.append(run)
        self.next_offset = max(self.next_offset, run.next_offset)


def _rising_runs(file: FolderFile, runs: list[Run]) -> list[Run]:
    """What stays of runs that contradict each other."""
    batches = _batches_of(file, runs)
    _, _, firsts, lasts, counts = batches
    return _joined(batches, np.flatnonzero(find_rising(firsts, lasts, counts == lasts - firsts + 1)))


def _inside_transactions(
    file: FolderFile, runs: list[Run], state: ProducerState, plain: NDArray[np.int64]
) -> list[Run]:
    """What stays without the batches that producers wrote outside of their open transactions."""
    outside: list[int] = []
    for run in runs:
        for chunk in walk_chunks(file, start=run.start, end=run.end, check=False):
            found, state = find_outsiders(chunk, state, plain)
            outside += found
    if not outside:
        return runs
    batches = _batches_of(file, runs)
    return _joined(batches, np.flatnonzero(~np.isin(batches[0], outside)))


def _batches_of(file: FolderFile, runs: list[Run]) -> NDArray[np.int64]:
    """Where the batches of runs begin and end, their first and last offsets, and how many records they have."""
    columns: list[NDArray[np.int64]] = []
    for run in runs:
        for chunk in walk_chunks(file, start=run.start, end=run.end, check=False):
            firsts, lasts = batch_offsets(chunk)
            rows = chunk.table[:, : chunk.rows]
            columns.append(np.stack([rows[t.POSITION], rows[t.POSITION] + rows[t.SIZE], firsts, lasts, rows[t.COUNT]]))
    return np.concatenate(columns, axis=1)


def _joined(batches: NDArray[np.int64], kept: NDArray[np.int64]) -> list[Run]:
    """The runs that batches make of which only some stay."""
    if not len(kept):
        return []
    positions, ends, firsts, lasts, _ = batches
    breaks = np.flatnonzero(positions[kept[1:]] != ends[kept[:-1]]) + 1
    return [
        Run(int(positions[rows[0]]), int(ends[rows[-1]]), int(firsts[rows[0]]), int(lasts[rows[-1]]) + 1)
        for rows in np.split(kept, breaks)
    ]


class Salvager:
    """Checks segments and keeps all their sound batches; collects what is lost."""

    def __init__(self, interval_bytes: int, progress: Progress = SILENT) -> None:
        self._interval_bytes = interval_bytes
        self._progress = progress
        self._plain: NDArray[np.int64] | None = None
        self.rewritten: list[int] = []
        self.cuts: list[Cut] = []
        self.lost: list[tuple[int, int]] = []

    def check(
        self, segment: LoadedSegment, producers: ProducerSnapshots, cache: EpochCache, following: int | None
    ) -> Recovered:
        """Take the damaged bytes out of a segment, then check the rest; nothing counts as cut, so no segment goes."""
        if self._plain is None:
            self._plain = find_plain_producers(segment.folder)
        with segment.open() as file:
            runs = find_runs(file, base_offset=segment.base_offset, limit=following)
            runs = _inside_transactions(file, runs, producers.state.copy(), self._plain)
            end = _end_behind(file, runs[-1].end if runs else 0) if following is None else following
        kept = sum(run.end - run.start for run in runs)
        if kept < segment.size:
            self._take_out(segment, runs, end)
        found = recover_segment(segment, producers, cache, interval_bytes=self._interval_bytes, progress=self._progress)
        return Recovered(found.valid_bytes, 0, found.next_offset, None)

    def _take_out(self, segment: LoadedSegment, runs: list[Run], end: int | None) -> None:
        folder, base, size = segment.folder, segment.base_offset, segment.size
        content = folder.files[segment.log_name]
        ends = [*((run.start, run.first_offset) for run in runs), (size, end)]
        position, offset = 0, base
        for run, (start, first) in zip([*runs, None], ends, strict=True):
            if start > position:
                reason = "damaged bytes" if run is not None else "damaged or torn bytes at the end"
                self.cuts.append(Cut(base, position, start - position, offset, reason))
                if first is not None and first > offset:
                    self.lost.append((offset, first))
            if run is not None:
                position, offset = run.end, run.next_offset
        pieces: list[Piece] = []
        for run in runs:
            pieces += content.slice(run.start, run.end).pieces
        folder.files[segment.log_name] = Content(tuple(pieces))
        if len(runs) > 1 or (runs and runs[0].start):
            self.rewritten.append(base)


def _end_behind(file: FolderFile, position: int) -> int | None:
    """The offset behind what is left out from `position` to the file's end, where its batches still tell."""
    end = None
    while (size := frame(file, position, file.size)) is not None and is_sound(file, position, size):
        offsets = claimed_offsets(file, position)
        end = end if offsets is None else offsets[1] + 1
        position += size
    return end
