"""Looks for damage before the first group of segments is replaced, in what nothing else reads by then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kseg.compaction.pieces import Piece, cut_segment, walk_piece
from kseg.compaction.tasks import bundled
from kseg.errors import FormatError, KsegError
from kseg.log.segment import Segment
from kseg.log.walk import WalkRoom
from kseg.progress import Progress
from kseg.runner import run_tasks

PIECE_BYTES: Final = 16 << 20


def check_segments(segments: Sequence[Segment], *, spark: Any, workers: int | None, progress: Progress) -> None:
    """Compare the checksums of all batches; those in a tier are left to their manifests.

    Raises:
        FormatError: A batch is damaged.
    """
    pieces = [piece for segment in segments if segment.tier == "local" for piece in cut_segment(segment, PIECE_BYTES)]
    tasks = bundled(pieces)
    sizes = [sum(piece.size for piece in task) for task in tasks]
    for result in run_tasks(_check, tasks, spark=spark, workers=workers, progress=progress, weights=sizes):
        if isinstance(result, KsegError):
            raise result


def _check(pieces: Sequence[Piece]) -> None:
    room = WalkRoom()
    for piece in pieces:
        try:
            for _ in walk_piece(piece, room=room):
                pass
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
