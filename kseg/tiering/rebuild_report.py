"""Which segments the metadata topic was told of again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kseg.reports import Report
from kseg.settings.values import Refusal
from kseg.tables import Column, format_table

_WIDTH: Final = 80
_COLUMNS: Final = (
    Column("TOPIC", at_least=12),
    Column("PART", right=True),
    Column("KNOWN", right=True),
    Column("TOLD", right=True),
    Column("FROM", right=True),
    Column("TO", right=True),
    Column("PASSED OVER", right=True),
)


@dataclass(frozen=True, slots=True)
class ToldSegment:
    """A segment whose records were written, or would be."""

    base_offset: int
    next_offset: int
    bytes: int
    segment_id: str


@dataclass(frozen=True, slots=True)
class PartitionRebuild:
    """What was written for a partition.

    Attributes:
        metadata_partition: Of `__remote_log_metadata`.
        known: Segments that the topic called finished before.
        passed_over: Why complete segments in the tier were left alone, by their ids.
        error: What ended the work on the partition.
    """

    topic: str
    partition: int
    topic_id: str
    metadata_partition: int
    known: int
    segments: tuple[ToldSegment, ...]
    passed_over: dict[str, str]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RebuildReport(Report):
    """What `kseg.tiering.rebuild_metadata` did; `made` are partitions of the topic that had been lost."""

    dry_run: bool
    remote: str
    partitions: tuple[PartitionRebuild, ...]
    refusals: tuple[Refusal, ...]
    made: tuple[str, ...]
    segments: int
    seconds: float

    def lines(self, width: int = _WIDTH) -> list[str]:
        """The report as a table."""
        rows = [
            (
                found.topic,
                found.partition,
                found.known,
                len(found.segments),
                found.segments[0].base_offset if found.segments else None,
                found.segments[-1].next_offset if found.segments else None,
                len(found.passed_over),
            )
            for found in self.partitions
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        verb = "would be told of" if self.dry_run else "told of"
        summary = f"__remote_log_metadata {verb} {self.segments} segment{'' if self.segments == 1 else 's'}"
        made = [f"{'would be made' if self.dry_run else 'made'}: {path}" for path in self.made]
        passed = [
            f"passed over: {found.topic}-{found.partition}, segment {segment_id}: {reason}"
            for found in self.partitions
            for segment_id, reason in found.passed_over.items()
        ]
        errors = [f"failed: {found.error}" for found in self.partitions if found.error is not None]
        return [*table, summary, *made, *passed, *errors, *(f"refused: {refusal}" for refusal in self.refusals)]
