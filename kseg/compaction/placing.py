"""How new segments come in the place of groups: all at the end, or each as soon as it is there.

All at the end is the rule: whatever fails while they are written, be it a quota that the disk does not tell of, finds
the partition as it was. Each at once takes less of the disk, because a replacement frees what it took; it is for a disk
that has room for that and not for all. Where it has not even that, all wait again: most become smaller than they were.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kseg import durable
from kseg.compaction.config import CleanerConfig
from kseg.compaction.lanes import Means
from kseg.compaction.output import CleanedSegment, CleanedSegments, remove_cleaned
from kseg.compaction.round import Round, Totals
from kseg.compaction.snapshots import write_snapshots
from kseg.errors import StorageError
from kseg.log.names import FileKind, segment_file_name
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.swap import replace_segments
from kseg.native import cleaning
from kseg.native import table as t
from kseg.tables import format_size

GROWTH: Final = 1.5  # what is written anew may be larger: by another level of its codec, or times that take more bytes
INDEX_BYTES: Final = 8 + 12  # of an entry in both indexes
ABORTED_BYTES: Final = 34  # of an entry in the index of transactions
TABLE_BYTES: Final = 8 * t.COLUMNS  # of a batch, where tasks tell of it in a file
MIN_BATCH_BYTES: Final = t.LEGACY_MIN_LENGTH + 12
BLOCK_BYTES: Final = 64 << 10  # of files that end within a block, of checkpoints and directories


@dataclass(frozen=True, slots=True)
class Room:
    """How much of the disk new segments take beside the old ones, at the most.

    Attributes:
        whole: Those of all groups.
        each: Where one group is replaced after the other.
    """

    whole: int
    each: int


def room_needed(
    groups: Sequence[Sequence[Segment]],
    end: int,
    config: CleanerConfig,
    *,
    aborted: int,
    is_staged: bool,
    ratio: float = 0.0,
) -> Room:
    """How much of the disk the new segments of groups take.

    Args:
        end: The offset behind the last group.
        aborted: How many aborted transactions are listed, at the most.
        is_staged: Tasks write a group to files of their own first.
        ratio: The size of new segments to that of old ones, where they may grow.
    """
    whole = most_staged = each = grown = 0
    ends = [*(group[0].base_offset for group in groups[1:]), end]
    for group, group_end in zip(groups, ends, strict=False):  # there may be none, all being in a tier
        old = sum(segment.size for segment in group)
        size = int(GROWTH * max(ratio, 1.0) * old)
        batches = min(group_end - group[0].base_offset, size // MIN_BATCH_BYTES)
        entries = min(batches, size // max(config.index_interval_bytes, 1)) + 2
        needed = size + entries * INDEX_BYTES + aborted * ABORTED_BYTES + BLOCK_BYTES
        staged = size + batches * TABLE_BYTES if is_staged else 0
        whole, most_staged = whole + needed, max(most_staged, staged)
        each = max(each, grown + needed + staged)
        grown += int(max(GROWTH * ratio - 1.0, 0.0) * old)
    return Room(whole + most_staged, each)


@dataclass(frozen=True, slots=True)
class _New:
    """The segments of a group that are complete; those of a large log would take much memory with their indexes."""

    bases: Sequence[int]
    size: int
    group: Sequence[Segment]
    counts: NDArray[np.int64]
    snapshots: Sequence[Path]


class Placing:
    """Takes new segments in order; a context at whose end all are in their place, or after an error those that were.

    They are put in their place in ascending order: a start-up drops those that wait, and with them each `.swap` at or
    above the lowest of them (LogLoader.removeTempFilesAndCollectSwapFiles), so none is in the way of those before it.

    Args:
        totals: What is told of those that are in their place.
        at_once: Whether none waits for the end.
        replaces: Whether the old segments are in the same directory.
        log: The one that they belong to, where a group may become several segments: these need producer snapshots.
    """

    def __init__(
        self, directory: Path, totals: Totals, *, at_once: bool, replaces: bool, log: Log | None = None
    ) -> None:
        self._directory = directory
        self._totals = totals
        self._at_once = at_once
        self._replaces = replaces
        self._log = log
        self._waiting: deque[_New] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            if kind is None:
                self._put_in_place()
        finally:
            for new in self._waiting:
                with suppress(StorageError):  # what failed before is what counts
                    self._remove(new)

    def put(
        self,
        new: CleanedSegment | CleanedSegments,
        group: Sequence[Segment],
        counts: NDArray[np.int64] | None = None,
    ) -> None:
        """Take what becomes of a group, which is complete; nothing is left of it after a failure."""
        bases = new.base_offsets if isinstance(new, CleanedSegments) else [new.base_offset]
        names = [self._directory / segment_file_name(base, FileKind.SNAPSHOT) for base in bases[1:]]
        made = [path for path in names if not path.exists()]
        told = np.zeros(cleaning.COUNTS, np.int64) if counts is None else counts
        self._waiting.append(_New(bases, new.size, group, told, made))
        if self._log is not None:
            write_snapshots(self._log, bases[1:])
        if self._at_once:
            self._put_in_place()

    def _put_in_place(self) -> None:
        while self._waiting:
            new = self._waiting.popleft()
            old = [segment.base_offset for segment in new.group] if self._replaces else []
            replace_segments(self._directory, new.bases, old)
            self._totals.add(new.group, new.counts, new.size, len(new.bases))

    def _remove(self, new: _New) -> None:
        for base in new.bases:
            remove_cleaned(self._directory, base)
        for path in new.snapshots:
            durable.unlink(path, missing_ok=True)


@contextmanager
def placing_by_room(
    round_: Round, directory: Path, totals: Totals, means: Means, *, is_staged: bool
) -> Iterator[Placing]:
    """Put the new segments of a round's local groups in their place.

    Args:
        is_staged: Tasks write new segments to files of their own first.
    """
    local = [group for group in round_.groups if group[0].tier != "remote"]
    end = round_.range.first_uncleanable
    room = room_needed(local, end, round_.config, aborted=len(round_.aborted), is_staged=is_staged)
    with placing_within(room, directory, totals, means) as placing:
        yield placing


@contextmanager
def placing_within(
    room: Room, directory: Path, totals: Totals, means: Means, log: Log | None = None
) -> Iterator[Placing]:
    """Replace all groups at the end; one after the other where the disk has room for that, and not for all.

    Args:
        log: Where a group may become several segments, the log that they belong to.
    """
    free = partial(durable.free_bytes, directory)
    with means.take_disk(room.whole, free) as fits:
        at_once = not fits and room.each <= free()
        try:
            with Placing(directory, totals, at_once=at_once, replaces=True, log=log) as placing:
                yield placing
        except StorageError as error:
            if error.errno == errno.ENOSPC and not (fits or at_once) and room.each < room.whole:
                error.hint = f"with {format_size(room.each)} free, one group of segments is replaced after the other"
            raise
