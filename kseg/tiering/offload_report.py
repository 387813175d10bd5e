"""What an offload has done, or would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kseg.reports import Report
from kseg.settings.values import Refusal
from kseg.tables import SEGMENT_COLUMNS, Column, format_count, format_size, format_table

_WIDTH: Final = 80
_COLUMNS: Final = (
    *SEGMENT_COLUMNS,
    Column("STORED", right=True),
    Column("LOCAL"),
)


@dataclass(frozen=True, slots=True)
class OffloadedSegment:
    """A segment that was copied; `verified`: the copy was read back."""

    base_offset: int
    next_offset: int
    bytes: int
    stored_bytes: int
    segment_id: str
    verified: bool


@dataclass(frozen=True, slots=True)
class PartitionOffload:
    """What was done for a partition.

    Attributes:
        deleted: Base offsets of the local segments that went, copied in this run or before.
        local_start_offset: The first offset that is still local.
        error: What ended the work on it; what is listed was done before.
    """

    topic: str
    partition: int
    path: str
    segments: tuple[OffloadedSegment, ...]
    deleted: tuple[int, ...]
    freed_bytes: int
    local_start_offset: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class OffloadReport(Report):
    """What `kseg.tiering.offload` did.

    Attributes:
        unread: Directories that could not be read and may hold partitions that were asked for.
    """

    dry_run: bool
    remote: str
    layout: str
    partitions: tuple[PartitionOffload, ...]
    refusals: tuple[Refusal, ...]
    segments: int
    log_bytes: int
    stored_bytes: int
    deleted_segments: int
    freed_bytes: int
    seconds: float
    unread: tuple[str, ...] = ()

    def lines(self, width: int = _WIDTH) -> list[str]:
        """The report as a table."""
        rows = [
            (
                found.topic,
                found.partition,
                segment.base_offset,
                segment.next_offset,
                format_size(segment.bytes),
                None if self.dry_run else format_size(segment.stored_bytes),
                "deleted" if segment.base_offset in found.deleted else "kept",
            )
            for found in self.partitions
            for segment in found.segments
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        verb = "would be copied" if self.dry_run else "copied"
        summary = (
            f"{format_count(self.segments, 'segment')} of {format_count(len(self.partitions), 'partition')} {verb}"
        )
        summary += f", {format_size(self.log_bytes)}"
        if self.deleted_segments:
            gone = "would be deleted" if self.dry_run else "deleted"
            summary += (
                f"; {format_count(self.deleted_segments, 'local segment')} {gone}, {format_size(self.freed_bytes)}"
            )
        errors = [f"failed: {found.error}" for found in self.partitions if found.error is not None]
        errors += [f"failed: {text}" for text in self.unread]
        return [*table, summary, *errors, *(f"refused: {refusal}" for refusal in self.refusals)]
