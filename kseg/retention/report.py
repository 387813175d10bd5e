"""What retention has done, or would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kseg.reports import Report
from kseg.settings.values import Refusal
from kseg.tables import SEGMENT_COLUMNS, Column, format_count, format_size, format_table, format_time

_WIDTH: Final = 80
_COLUMNS: Final = (
    *SEGMENT_COLUMNS,
    Column("RULE"),
    Column("LARGEST TIMESTAMP", droppable=1),
)


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    """A segment that went; `rule` is `start`, `size` or `time`.

    Attributes:
        bytes: Of its log file.
        freed_bytes: Of all its files.
    """

    base_offset: int
    next_offset: int
    bytes: int
    freed_bytes: int
    rule: str
    largest_timestamp: int


@dataclass(frozen=True, slots=True)
class PartitionRetention:
    """What retention did to a partition.

    Attributes:
        rolled_to: Base offset of the empty segment that was made because all others went, else None.
        leftover_bytes: Of files that belonged to no segment any more (`.deleted` ones mostly), and are gone now too.
        settings: What held, by Kafka's names; an unknown limit is None, and was not applied.
        origins: Who said so.
    """

    topic: str
    partition: int
    path: str
    start_offset_before: int
    start_offset: int
    rolled_to: int | None
    deleted: tuple[DeletedSegment, ...]
    leftover_bytes: int
    settings: dict[str, Any]
    origins: dict[str, str]


@dataclass(frozen=True, slots=True)
class RetentionReport(Report):
    """What a run of retention did, or with `dry_run` would do.

    Attributes:
        partitions: Those that were looked at, by topic and number.
        refusals: Topics and partitions that were left alone, and why.
        segments: How many segments went.
        log_bytes: What their log files had; `freed_bytes` is with indexes and snapshots, and with what was left over.
        unread: Directories that could not be read and may hold partitions that were asked for.
    """

    dry_run: bool
    now_ms: int
    partitions: tuple[PartitionRetention, ...]
    refusals: tuple[Refusal, ...]
    segments: int
    log_bytes: int
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
                segment.rule,
                format_time(segment.largest_timestamp),
            )
            for found in self.partitions
            for segment in found.deleted
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        done = "would go" if self.dry_run else "deleted"
        freed = "would be freed" if self.dry_run else "freed"
        summary = (
            f"{format_count(self.segments, 'segment')} {done} in {format_count(len(self.partitions), 'partition')}, "
            f"{format_size(self.freed_bytes)} {freed}"
        )
        leftover = sum(found.leftover_bytes for found in self.partitions)
        if leftover:
            summary += f", {format_size(leftover)} of it left over from before"
        failed = [f"failed: {text}" for text in self.unread]
        return [*table, summary, *failed, *(f"refused: {refusal}" for refusal in self.refusals)]
