"""How new segments come in the place of a round's groups: each as soon as it is there, or all at the end.

Each at once takes no more of the disk than the largest group needs, because a replacement frees what it took. Where
the disk has not even that, the new segments of all groups are written before the first is replaced, so that a disk
that fills up meanwhile finds the partition as it was.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kseg import durable
from kseg.compaction.lanes import Means
from kseg.compaction.output import CleanedSegment, remove_cleaned
from kseg.compaction.round import Round, Totals
from kseg.errors import StorageError
from kseg.log.segment import Segment
from kseg.log.swap import replace_segments
from kseg.native import table as t
from kseg.tables import format_size

GROWTH: Final = 1.5  # what is written anew may be larger: by another level of its codec, or times that take more bytes
INDEX_BYTES: Final = 8 + 12  # of an entry in both indexes
ABORTED_BYTES: Final = 34  # of an entry in the index of transactions
TABLE_BYTES: Final = 8 * t.COLUMNS  # of a batch, where tasks tell of it in a file
MIN_BATCH_BYTES: Final = t.LEGACY_MIN_LENGTH + 12
BLOCK_BYTES: Final = 64 << 10  # of files that end within a block, of checkpoints and directories


def bytes_needed(round_: Round, group: Sequence[Segment], *, is_staged: bool) -> int:
    """How much of the disk the new segment of a group takes, at the most, before the old ones are deleted.

    Args:
        is_staged: Tasks write it to files of their own first.
    """
    size = int(GROWTH * sum(segment.size for segment in group))
    batches = min(round_.end_of(group) - group[0].base_offset, size // MIN_BATCH_BYTES)
    entries = min(batches, size // max(round_.config.index_interval_bytes, 1)) + 2
    needed = size + entries * INDEX_BYTES + len(round_.aborted) * ABORTED_BYTES + BLOCK_BYTES
    return needed + size + batches * TABLE_BYTES if is_staged else needed


@dataclass(frozen=True, slots=True)
class _New:
    """A segment that is complete; that of a large log would take much memory with its indexes."""

    base_offset: int
    size: int
    group: Sequence[Segment]
    counts: NDArray[np.int64]


class Placing:
    """Takes new segments in order; a context at whose end all are in their place, or after an error those that were.

    A start-up that finds some of them complete drops them: in ascending order none of those that wait is in the way of
    one that is being put in its place.

    Args:
        totals: What is told of those that are in their place.
        at_once: Whether none waits for the end.
        replaces: Whether the old segments are in the same directory.
    """

    def __init__(self, directory: Path, totals: Totals, *, at_once: bool, replaces: bool) -> None:
        self._directory = directory
        self._totals = totals
        self._at_once = at_once
        self._replaces = replaces
        self._waiting: deque[_New] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            if kind is None:
                self._put_in_place()
        finally:
            for new in self._waiting:
                remove_cleaned(self._directory, new.base_offset)

    def put(self, new: CleanedSegment, group: Sequence[Segment], counts: NDArray[np.int64]) -> None:
        """Take a new segment that is complete."""
        self._waiting.append(_New(new.base_offset, new.size, group, counts))
        if self._at_once:
            self._put_in_place()

    def _put_in_place(self) -> None:
        while self._waiting:
            new = self._waiting.popleft()
            old = [segment.base_offset for segment in new.group] if self._replaces else []
            replace_segments(self._directory, [new.base_offset], old)
            self._totals.add(new.group, new.counts, new.size)


@contextmanager
def placing_by_room(
    round_: Round, directory: Path, totals: Totals, means: Means, *, is_staged: bool
) -> Iterator[Placing]:
    """Replace each group at once where the disk has room for the largest, else all at the end.

    Args:
        is_staged: Tasks write new segments to files of their own first.
    """
    local = [group for group in round_.groups if group[0].tier != "remote"]
    needed = max((bytes_needed(round_, group, is_staged=is_staged) for group in local), default=0)
    with means.take_disk(needed, partial(durable.free_bytes, directory)) as fits:
        try:
            with Placing(directory, totals, at_once=fits, replaces=True) as placing:
                yield placing
        except StorageError as error:
            if error.errno == errno.ENOSPC and len(local) > 1 and not totals.groups:
                error.hint = f"with {format_size(needed)} free, one group of segments is replaced after the other"
            raise
