"""Cut segments into pieces that threads and Spark tasks work on apart.

A piece is a range of offsets, not of bytes: a batch belongs to the piece that its last offset falls into. Where its
bytes begin, an index entry tells; it is checked before it is used, so a lying index costs time and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from kseg.format.file_span import FileSpan
from kseg.log.segment import Segment
from kseg.log.walk import BatchWalker, Chunk, WalkRoom, check_order
from kseg.native import table as t

END: Final = 2**63 - 1
CHUNK_BYTES: Final = 1 << 20  # what a step works on stays in the processor's cache
Straight: TypeAlias = Callable[[FileSpan], bool]
"""Goes through a file by kernels alone, as far as that goes; tells whether nothing of the piece is left."""
_BATCH_BYTES: Final = 64 << 10  # room for the batch behind a piece, which shows that the piece is over


@dataclass(frozen=True, slots=True)
class Piece:
    """The batches of one segment whose last offset is in `[start, end)`; `size` is about how many bytes they have."""

    segment: Segment
    start: int
    end: int
    size: int


def portable(segment: Segment) -> Segment:
    """The segment without what cannot leave this process, or is made anew where it is needed."""
    return dataclasses.replace(segment, limiter=None)


def cut_segment(segment: Segment, piece_bytes: int) -> list[Piece]:
    """Cut one segment into pieces of about `piece_bytes`."""
    if not segment.size:
        return []
    index = segment.offset_index
    wanted = np.arange(piece_bytes, segment.size - piece_bytes // 2, piece_bytes)
    at = np.searchsorted(index.positions, wanted)  # ascending
    at = at[np.diff(at, prepend=-1) > 0]
    at = at[at < len(index)]
    at = at[index.positions[at] < segment.size]  # an index that lies costs time, and nothing else
    starts = [segment.base_offset, *index.offsets[at].tolist()]
    positions = [0, *index.positions[at].tolist(), segment.size]
    ends = [*starts[1:], END]
    sizes = np.diff(positions).tolist()
    return [Piece(segment, *piece) for piece in zip(starts, ends, sizes, strict=True)]


def walk_piece(
    piece: Piece,
    *,
    check: bool = True,
    room: WalkRoom | None = None,
    straight: Straight | None = None,
    most: int = CHUNK_BYTES,
) -> Generator[tuple[Chunk, range]]:
    """Go through a piece's batches; each chunk comes with those of its rows that belong to the piece.

    Args:
        straight: Goes through the file first, where it may; only what it leaves is walked.
        most: About how many bytes a chunk has at the most.

    Raises:
        FormatError: A batch is damaged, out of order, or cut off at the segment's end.
    """
    segment = piece.segment
    with segment.open() as file:
        position = segment.find_position(file, piece.start, room) if piece.start > segment.base_offset else 0
        size = piece.size + _BATCH_BYTES
        chunk_bytes = -(-size // -(-size // most))  # chunks of one size, the last of which ends with the piece
        walker = segment.walk(file, start=position, check=check, chunk_bytes=chunk_bytes, hint=chunk_bytes, room=room)
        last = segment.base_offset - 1
        if straight is not None and isinstance(walker, BatchWalker):
            span = walker.straight_span(last, least=0)
            if span is not None:
                if straight(span):
                    return
                walker.go_to(span.position)
                last = span.last_offset
        for chunk in walker:
            last = check_order(chunk, segment.base_offset, last, file.path)
            lasts = chunk.table[t.LAST_OFFSET, : chunk.rows]
            first = 0 if lasts[0] >= piece.start else int(np.searchsorted(lasts, piece.start))
            end = chunk.rows if last < piece.end else int(np.searchsorted(lasts, piece.end))
            if first < end:
                yield chunk, range(first, end)
            if last >= piece.end:
                if end >= chunk.rows - 1 and isinstance(walker, BatchWalker):
                    walker.check_behind(chunk, segment.base_offset, last)
                walker.stop()
                return
        walker.raise_if_torn()
