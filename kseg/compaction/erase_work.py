"""The tasks of an erasure, in threads or on Spark: the same for local segments and for those in a tier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kseg.compaction.config import CleanerConfig
from kseg.compaction.eraser import ErasedFiles, EraseTask, Keeping, SegmentErasure, count_matches, erase_segment
from kseg.compaction.matching import Search
from kseg.compaction.pieces import portable
from kseg.compaction.tasks import Place
from kseg.errors import KsegError
from kseg.index.txn import AbortedTxn
from kseg.log.segment import Segment
from kseg.log.staging import write_nonce
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The work on one segment; a class, so that Spark can send the caller's predicate along."""

    search: Search

    def count(self, segment: Segment) -> int:
        """How many records are meant."""
        return count_matches(segment, self.search)

    def erase(self, task: EraseTask) -> ErasedFiles:
        """Write what is left."""
        return erase_segment(task, self.search)


@dataclass(frozen=True, slots=True)
class EraseWork:
    """What is looked for, and who looks."""

    search: Search
    spark: Any = None
    workers: int | None = None
    progress: Progress = SILENT

    @contextmanager
    def phase(self, name: str, segments: Sequence[Segment]) -> Iterator[None]:
        """Show how far the work on some segments is, all of which is done within."""
        self.progress.begin(name, sum(segment.size for segment in segments))
        try:
            yield
        finally:
            self.progress.end()

    def count(self, segments: Sequence[Segment]) -> list[int]:
        """Records that are meant, by segment.

        Raises:
            FormatError: A batch is damaged.
        """
        return _sound(self.try_count(segments))

    def try_count(self, segments: Sequence[Segment]) -> list[int | KsegError]:
        """The same, with an error in the place of what cannot be read."""
        return self._run(_Tasks(self.search).count, [portable(segment) for segment in segments], segments)

    def erase(
        self, segments: Sequence[tuple[Segment, Keeping, tuple[AbortedTxn, ...]]], folder: Path, target: Path
    ) -> list[SegmentErasure]:
        """Write what is left of segments, read it again, and only then move it to `target`, as `.cleaned` files.

        Args:
            segments: Each with what has to stay, and the aborted transactions whose marker it has.
            folder: Where tasks write, and prove that they see the driver's disk.

        Raises:
            FormatError: A batch is damaged.
            JobError: A task does not see the driver's disk, or a file is not what a task wrote.
        """
        interval, place = CleanerConfig().index_interval_bytes, Place(folder, write_nonce(folder))
        tasks = [
            EraseTask(place, portable(segment), keeping, aborted, interval) for segment, keeping, aborted in segments
        ]
        written = _sound(self._run(_Tasks(self.search).erase, tasks, [segment for segment, _, _ in segments]))
        for files in written:
            files.check()
        for files in written:
            files.move_to(target)
        return [files.erasure for files in written]

    def _run(
        self, work: Callable[[Task], Result], tasks: Sequence[Task], segments: Sequence[Segment]
    ) -> list[Result | KsegError]:
        sizes = [segment.size for segment in segments]
        return run_tasks(work, tasks, spark=self.spark, workers=self.workers, weights=sizes, progress=self.progress)


def _sound(results: Sequence[Result | KsegError]) -> list[Result]:
    found = []
    for result in results:
        if isinstance(result, KsegError):
            raise result
        found.append(result)
    return found
