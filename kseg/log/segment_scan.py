"""A segment read from its start, as a broker reads it that recovers it: its indexes, and where and why it ends.

Whoever opens a log to append to it, and whoever repairs it, begins so; they differ in what they do about the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kseg.errors import FormatError
from kseg.index.build import IndexBuilder, Stop
from kseg.log.walk import Chunk
from kseg.native import table as t


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """How far a scan came.

    Attributes:
        next_offset: The offset behind the last batch that was taken.
        problem: The damage that ended it, if that did.
        stop: Why a batch could not be indexed, if that ended it.
        stopped_at: That batch's last offset.
    """

    next_offset: int
    problem: FormatError | None = None
    stop: Stop = Stop.NONE
    stopped_at: int = -1


def scan_segment(
    chunks: Iterable[Chunk],
    builder: IndexBuilder,
    take: Callable[[t.Table, int], None],
    *,
    check: Callable[[Chunk], None] | None = None,
) -> SegmentScan:
    """Give batches to `builder`, and those that it takes to `take`, up to damage or to a batch that cannot be indexed.

    Args:
        chunks: The batches from the segment's start on; a FormatError ends them where there is damage.
        take: Called with a table and how many of its rows count.
        check: Called with each chunk first; what it raises is the caller's.
    """
    next_offset = builder.base_offset
    walk = iter(chunks)
    while True:
        try:
            chunk = next(walk, None)
        except FormatError as error:
            return SegmentScan(next_offset, error.with_traceback(None))
        if chunk is None:
            return SegmentScan(next_offset)
        if check is not None:
            check(chunk)
        taken, stop = builder.add_until_roll(chunk.table, chunk.rows, None)
        take(chunk.table, taken)
        if taken:
            next_offset = int(chunk.table[t.LAST_OFFSET, taken - 1]) + 1
        if stop is not Stop.NONE:
            return SegmentScan(next_offset, None, stop, int(chunk.table[t.LAST_OFFSET, taken]))
