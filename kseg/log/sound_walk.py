"""Walk a segment and go on behind damage, keeping account of what was passed over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from kseg.errors import CorruptRecordError, FormatError
from kseg.format.batch import torn_error
from kseg.index.offset import MAX_RELATIVE_OFFSET
from kseg.log.damage import Damage
from kseg.log.holes import HoledFile
from kseg.log.order import Offsets, find_in_order, is_rising
from kseg.log.sound import Resync, check_cut, claimed_offsets, frame
from kseg.log.walk import CHUNK_BYTES, BatchWalker, Chunk, ReadOptions, batch_offsets
from kseg.native import table as t
from kseg.storage import RandomFile, RateLimiter
from kseg.types import MAX_OFFSET

LOOK_BACK_BYTES = 1 << 20
NEIGHBOURS = 2  # batches before and behind a walk that are asked which of its offsets are right


class SoundWalker:
    """Iterate over the sound batches of `[start, end)` of a segment's file: checksums fit, and offsets rise.

    Args:
        base_offset: The segment's.
        ceiling: The base offset of the segment behind, None where there is none.
        missing_from: Where offsets are missing from, if the walk begins in damage.
        look_back: Where a batch begins that is not far before `start`: the batches before the walk are found from
            there, which tell whether its first one is right about its offset.

    Attributes:
        damages: What was passed over since `take_damages` was last called, as far as it is known what comes behind.
        tail_problem: What is wrong with the bytes behind the last sound batch; known when the walk has ended.
        torn_position: Always None: torn bytes are damage like any other here.
    """

    def __init__(
        self,
        file: RandomFile,
        options: ReadOptions,
        *,
        base_offset: int,
        start: int = 0,
        end: int | None = None,
        ceiling: int | None = None,
        missing_from: int | None = None,
        look_back: int | None = None,
        hint: int = 0,
        chunk_bytes: int = CHUNK_BYTES,
        limiter: RateLimiter | None = None,
    ) -> None:
        self._file = file
        self._options = options
        self._base_offset = base_offset
        self._start = start
        self._end = file.size if end is None else min(end, file.size)
        self._ceiling = ceiling
        self._hint = hint
        self._chunk_bytes = chunk_bytes
        self._limiter = limiter or RateLimiter(options.max_bytes_per_second)
        self._resync = Resync(file, options, base_offset)
        self._floor = base_offset - 1
        self._missing_from = base_offset if missing_from is None or not start else missing_from
        self._look_back = look_back
        self._before: list[tuple[int, int]] = []  # offsets of the batches before the walk
        self._sound_end = start
        self._open: Damage | None = None  # its end is not known yet
        self.damages: list[Damage] = []
        self.tail_problem: FormatError | None = None
        self.torn_position: int | None = None

    @property
    def path(self) -> str:
        """The file that is walked."""
        return self._file.path

    def stop(self) -> None:
        """What lies behind is not of interest."""

    def raise_if_torn(self) -> None:
        """Never: torn bytes were passed over like other damage."""

    def take_damages(self) -> list[Damage]:
        """What was passed over since the last call, in the order of the file."""
        taken, self.damages = self.damages, []
        return taken

    def __iter__(self) -> Iterator[Chunk]:
        position = self._start
        self._find_before()
        while position < self._end:
            self._sound_end = position
            walker = BatchWalker(
                self._file,
                self._options,
                start=position,
                end=self._end,
                hint=self._hint,
                chunk_bytes=self._chunk_bytes,
                limiter=self._limiter,
            )
            problem: FormatError | None = None
            try:
                for chunk in walker:
                    yield from self._in_order(chunk)
            except FormatError as error:
                problem = error.with_traceback(None)
            if problem is None and walker.torn_position is None:
                break
            if problem is None:
                check_cut(self._file, self._options, self._sound_end, self._end)
                problem = torn_error(self._sound_end, self._end - self._sound_end)
            position = self._resync.find(self._sound_end, self._end)
            self._pass_over(self._sound_end, position, problem)
        self._finish()

    def _find_before(self) -> None:
        """Find the batches before the walk, if those from `look_back` on lead to its start."""
        if self._look_back is None or not 0 < self._start - self._look_back <= LOOK_BACK_BYTES:
            return
        walker = BatchWalker(self._file, self._options, start=self._look_back, end=self._start, limiter=self._limiter)
        found: list[tuple[int, int]] = []
        try:
            for chunk in walker:
                firsts, lasts = batch_offsets(chunk)
                found += zip(firsts[-NEIGHBOURS:].tolist(), lasts[-NEIGHBOURS:].tolist(), strict=True)
        except FormatError:
            return
        if walker.torn_position is None:
            self._before = found[-NEIGHBOURS:]
            if len(found) > 1 and found[-1][0] == found[-2][1] + 1:
                self._missing_from = found[-1][1] + 1

    def _find_behind(self, position: int) -> list[tuple[int, int]]:
        """Offsets of the sound batches that follow at a position."""
        found: list[tuple[int, int]] = []
        while len(found) < NEIGHBOURS and self._resync.is_batch(position):
            claimed = claimed_offsets(self._file, position)
            found += [claimed] if claimed is not None else []
            position += frame(self._file, position, self._file.size) or self._file.size
        return found

    def _in_order(self, chunk: Chunk) -> Iterator[Chunk]:
        """Give the rows that are right about their offsets, in runs; the others are damage."""
        firsts, lasts = batch_offsets(chunk)
        table = chunk.table
        self._sound_end = int(table[t.POSITION, chunk.rows - 1] + table[t.SIZE, chunk.rows - 1])
        possible = (lasts - self._base_offset <= MAX_RELATIVE_OFFSET) & (lasts >= 0) & (lasts < MAX_OFFSET)
        if self._is_beyond(firsts, lasts):
            possible[-1] = False
        before, self._before = self._before, []
        behind = claimed_offsets(self._file, self._sound_end)
        is_before = behind is None or lasts[-1] < behind[0]
        is_behind = not before or before[-1][1] < firsts[0]
        if is_before and is_behind and possible.all() and is_rising(firsts, lasts, self._floor):
            yield self._sound(chunk, int(firsts[0]), int(lasts[-1]))
            return
        own = np.stack([np.where(possible, firsts, -1), lasts], axis=1)
        around = [before, own, self._find_behind(self._sound_end)]
        every = np.concatenate([np.array(part, np.int64).reshape(-1, 2) for part in around])
        right = find_in_order(every[:, 0], every[:, 1], self._floor)[len(before) : len(before) + len(firsts)]
        edges = [0, *(np.flatnonzero(right[1:] != right[:-1]) + 1).tolist(), len(right)]
        for first, last in itertools.pairwise(edges):
            if right[first]:
                run = Chunk(chunk.data, chunk.file_position, table[:, first:last].copy(), last - first)
                yield self._sound(run, int(firsts[first]), int(lasts[last - 1]))
            else:
                what = f"offsets {firsts[first]} to {lasts[first]} do not fit between those of the batches around them"
                position = int(table[t.POSITION, first])
                after = int(table[t.POSITION, last - 1] + table[t.SIZE, last - 1])
                self._pass_over(position, after, CorruptRecordError(what))

    def _is_beyond(self, firsts: Offsets, lasts: Offsets) -> bool:
        """Whether the file's last batch leaps over the segment behind: nothing follows that contradicts it."""
        if self._ceiling is None or self._sound_end < self._file.size or firsts[-1] < self._ceiling:
            return False
        before = int(lasts[-2]) if len(lasts) > 1 else self._floor
        return before + 1 < self._ceiling

    def _sound(self, chunk: Chunk, first: int, last: int) -> Chunk:
        self._close(first)
        self._floor = last
        self._missing_from = last + 1
        self.tail_problem = None
        return chunk

    def _pass_over(self, position: int, behind: int, problem: FormatError) -> None:
        """Note damage of `[position, behind)`; what touches the damage before it is the same place."""
        if self._open is not None:
            position, reason = self._open.position, self._open.reason
        else:
            hole = self._file.reason_in(position, behind) if isinstance(self._file, HoledFile) else None
            reason = hole or problem.message
        self._open = Damage(self.path, position, behind - position, self._missing_from, self._missing_from, reason)
        self.tail_problem = problem.with_context(path=self.path, position=position)

    def _close(self, end: int) -> None:
        """The damage ends where a sound batch begins, with the offset `end`."""
        if self._open is not None:
            self.damages.append(self._open.until(end))
            self._open = None

    def _finish(self) -> None:
        """At the end of the walk: the batch behind, or the segment behind, tells where the damage ends."""
        if self._open is None:
            return
        following = claimed_offsets(self._file, self._end)
        if following is not None and self._resync.is_batch(self._end):
            self._close(following[0])
        else:
            self._close(self._missing_from if self._ceiling is None else self._ceiling)
