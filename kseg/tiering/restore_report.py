"""What a restore has done, or would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kseg.offsets.report import ResetReport
from kseg.reports import Report
from kseg.settings.values import Refusal
from kseg.tables import Column, format_count, format_size, format_table

_WIDTH: Final = 80
_COLUMNS: Final = (
    Column("TOPIC", at_least=12),
    Column("PART", right=True),
    Column("SEGMENTS", right=True),
    Column("FROM", right=True),
    Column("TO", right=True),
    Column("SIZE", right=True),
    Column("TOPIC ID", droppable=1),
)


@dataclass(frozen=True, slots=True)
class RestoredSegment:
    """A segment that is local again; in a dry run it may not be known where it ends.

    Attributes:
        rebuilt: Why parts of it were built from its batches: what the tier has did not fit them.
    """

    base_offset: int
    next_offset: int | None
    bytes: int
    segment_id: str
    rebuilt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionRestore:
    """What was done for a partition; `error` is what ended the work on it: nothing of it was put in place then.

    Attributes:
        rebuilt_epochs: Why its leader epochs are those of its batches, and not those that the tier has.
    """

    topic: str
    partition: int
    topic_id: str
    path: str
    segments: tuple[RestoredSegment, ...]
    error: str | None = None
    rebuilt_epochs: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreReport(Report):
    """What `kseg.tiering.restore` did; `offsets` where consumer groups were taken along."""

    dry_run: bool
    remote: str
    partitions: tuple[PartitionRestore, ...]
    refusals: tuple[Refusal, ...]
    segments: int
    log_bytes: int
    seconds: float
    offsets: ResetReport | None = None

    def lines(self, width: int = _WIDTH) -> list[str]:
        """The report as a table."""
        rows = [
            (
                found.topic,
                found.partition,
                len(found.segments),
                found.segments[0].base_offset,
                found.segments[-1].next_offset,
                format_size(sum(segment.bytes for segment in found.segments)),
                found.topic_id,
            )
            for found in self.partitions
            if found.segments and found.error is None
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        verb = "would be restored" if self.dry_run else "restored"
        summary = f"{format_count(self.segments, 'segment')} of {format_count(len(rows), 'partition')} "
        summary += f"{verb}, {format_size(self.log_bytes)}"
        errors = [f"failed: {found.error}" for found in self.partitions if found.error is not None]
        rebuilt = [f"rebuilt: {text}" for found in self.partitions for text in _rebuilt(found)]
        groups = [] if self.offsets is None else self.offsets.written_lines(width)
        return [*table, summary, *rebuilt, *groups, *errors, *(f"refused: {refusal}" for refusal in self.refusals)]


def _rebuilt(found: PartitionRestore) -> list[str]:
    epochs = [] if found.rebuilt_epochs is None else [found.rebuilt_epochs]
    return [*(text for segment in found.segments for text in segment.rebuilt), *epochs]
