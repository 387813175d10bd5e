"""What retention of a tier has done, or would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kseg.reports import Report
from kseg.settings.values import Refusal
from kseg.tables import SEGMENT_COLUMNS, Column, format_count, format_size, format_table, format_time

_WIDTH: Final = 80
_COLUMNS: Final = (
    *SEGMENT_COLUMNS,
    Column("TIER"),
    Column("RULE"),
    Column("LARGEST TIMESTAMP", droppable=1),
)


@dataclass(frozen=True, slots=True)
class ExpiredSegment:
    """A segment that went; `rule` is `start`, `time`, `size` or `lineage`.

    Attributes:
        tier: `remote`: it is retired, and its objects go later; `local`: it is deleted.
        bytes: Of its log.
        stored_bytes: Of its objects, or of its local files.
    """

    base_offset: int
    next_offset: int
    tier: str
    bytes: int
    stored_bytes: int
    rule: str
    largest_timestamp: int
    segment_id: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionTierRetention:
    """What retention did to a partition.

    Attributes:
        paths: Its local directories, one for each replica that was given.
        expired: What went now, remote segments first.
        swept_segments: Segments that were retired before the grace period, and whose objects are gone now.
        waiting_segments: Those whose objects are still there.
        settings: What held, by Kafka's names; an unknown limit is None, and was not applied.
        error: What ended the work on it; what is listed was done before.
    """

    topic: str
    partition: int
    topic_id: str
    paths: tuple[str, ...]
    start_offset_before: int
    start_offset: int
    expired: tuple[ExpiredSegment, ...]
    swept_segments: int
    swept_bytes: int
    waiting_segments: int
    waiting_bytes: int
    settings: dict[str, Any]
    origins: dict[str, str]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TierRetentionReport(Report):
    """What `kseg.tiering.retain` did, or with `dry_run` would do.

    Attributes:
        unread: Directories that could not be read and may hold partitions that were asked for.
    """

    dry_run: bool
    remote: str
    now_ms: int
    grace_ms: int
    partitions: tuple[PartitionTierRetention, ...]
    refusals: tuple[Refusal, ...]
    remote_segments: int
    remote_bytes: int
    local_segments: int
    local_bytes: int
    swept_segments: int
    swept_bytes: int
    waiting_segments: int
    waiting_bytes: int
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
                segment.tier,
                segment.rule,
                format_time(segment.largest_timestamp),
            )
            for found in self.partitions
            for segment in found.expired
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        would = "would be " if self.dry_run else ""
        summary = (
            f"{format_count(self.remote_segments, 'remote segment')} of "
            f"{format_count(len(self.partitions), 'partition')} {would}retired, {format_size(self.remote_bytes)}"
        )
        if self.local_segments:
            summary += f"; {format_count(self.local_segments, 'local segment')} {would}deleted, "
            summary += format_size(self.local_bytes)
        lines = [*table, summary]
        if self.swept_segments:
            swept = f"{format_count(self.swept_segments, 'segment')} {would}deleted, {format_size(self.swept_bytes)}"
            lines.append(f"objects of {swept}")
        if self.waiting_segments:
            wait = f"{format_count(self.waiting_segments, 'retired segment')}, {format_size(self.waiting_bytes)}"
            lines.append(f"objects of {wait}, stay until the grace period is over: run it again then")
        errors = [f"failed: {found.error}" for found in self.partitions if found.error is not None]
        errors += [f"failed: {text}" for text in self.unread]
        return [*lines, *errors, *(f"refused: {refusal}" for refusal in self.refusals)]
