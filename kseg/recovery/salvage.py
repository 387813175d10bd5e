"""Go on behind damage: find the runs of sound batches of a segment, and make a segment of them.

A batch is sound if its checksum fits and its offsets rise. A base offset is not under the checksum: where offsets fall
back, either the batch before has one that is too high, or this one has one that is too low. If this one fits behind the
last but one, the batch before is the odd one. A transaction marker that cannot be read is damage too: no broker starts
on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kseg.errors import FormatError
from kseg.log.names import MAX_OFFSET
from kseg.log.sound import claimed_offsets, find_batch, frame, is_sound
from kseg.log.walk import Chunk
from kseg.native import table as t
from kseg.progress import SILENT, Progress
from kseg.recovery.folder import Content, FolderFile, Piece
from kseg.recovery.loader import Cut
from kseg.recovery.markers import unreadable_markers
from kseg.recovery.producers import ProducerSnapshots
from kseg.recovery.recover_segment import EpochCache, Recovered, recover_segment
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
) -> Iterator[Run]:
    """The runs of sound batches from byte `start` on, where a batch may begin.

    Args:
        next_offset: Below it no sound batch is; by default the base offset.
        limit: At or above it neither: where the next segment begins.
    """
    position: int | None = start
    floor = base_offset if next_offset is None else next_offset
    while position is not None and position < file.size:
        run, resume = _run_from(file, position, floor, MAX_OFFSET if limit is None else limit)
        if run.end > run.start:
            yield run
            floor = run.next_offset
        position = resume
        if position is None:
            position = find_batch(
                file, OPTIONS, max(run.end, run.start + 1), base_offset=base_offset, next_offset=floor
            )


def _run_from(file: FolderFile, start: int, floor: int, limit: int) -> tuple[Run, int | None]:
    """The run that begins at `start`, and where the next one does if that is known."""
    first, last, before_last = floor, floor - 1, floor - 1
    end = last_start = start
    try:
        for chunk in walk_chunks(file, start=start, check=True):
            firsts, lasts = _offsets(chunk)
            before = np.append(last, lasts[:-1])
            unreadable = unreadable_markers(chunk)
            wrong = (firsts <= before) | (lasts < firsts) | (lasts >= limit) | unreadable
            rows = int(wrong.argmax()) if wrong.any() else chunk.rows
            if rows:
                first = int(firsts[0]) if end == start else first
                before_last = int(lasts[rows - 2]) if rows > 1 else last
                last, last_start = int(lasts[rows - 1]), int(chunk.table[t.POSITION, rows - 1])
                end = last_start + int(chunk.table[t.SIZE, rows - 1])
            if rows == chunk.rows:
                continue
            if unreadable[rows]:
                behind = int(chunk.table[t.POSITION, rows] + chunk.table[t.SIZE, rows])
                return Run(start, end, first, last + 1), behind
            fits = before_last < firsts[rows] <= lasts[rows] < limit
            if fits and end > start:  # the batch before is the odd one
                return Run(start, last_start, first, before_last + 1), end
            break
    except FormatError:
        pass  # what is behind is searched for
    return Run(start, end, first, last + 1), None


def _offsets(chunk: Chunk) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    lasts = chunk.table[t.LAST_OFFSET, : chunk.rows]
    bases = chunk.table[t.BASE_OFFSET, : chunk.rows]
    return np.where((bases < 0) & (chunk.table[t.MAGIC, : chunk.rows] < 2), lasts, bases), lasts


class Salvager:
    """Checks segments and keeps all their sound batches; collects what is lost."""

    def __init__(self, interval_bytes: int, progress: Progress = SILENT) -> None:
        self._interval_bytes = interval_bytes
        self._progress = progress
        self.rewritten: list[int] = []
        self.cuts: list[Cut] = []
        self.lost: list[tuple[int, int]] = []

    def check(
        self, segment: LoadedSegment, producers: ProducerSnapshots, cache: EpochCache, following: int | None
    ) -> Recovered:
        """Take the damaged bytes out of a segment, then check the rest; nothing counts as cut, so no segment goes."""
        with segment.open() as file:
            runs = list(find_runs(file, base_offset=segment.base_offset, limit=following))
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
