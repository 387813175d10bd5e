"""Which data keys were wrapped anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kseg.reports import Report
from kseg.tables import Column, format_table

_WIDTH: Final = 80
_COLUMNS: Final = (
    Column("TOPIC", at_least=12),
    Column("PART", right=True),
    Column("KEY BEFORE", at_least=10),
    Column("SEGMENTS", right=True),
    Column("STATUS"),
)


class Status(StrEnum):
    """What became of a segment's data key."""

    REWRAPPED = "rewrapped"
    CURRENT = "current"
    PLAIN = "not encrypted"
    GONE = "deleted meanwhile"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RewrappedSegment:
    """A segment; `key_id` is the key that its data key was wrapped with before, None where that is not known."""

    topic: str
    partition: int
    base_offset: int
    segment_id: str
    key_id: str | None
    status: Status
    error: str | None = None
    is_damage: bool = False


@dataclass(frozen=True, slots=True)
class RewrapReport(Report):
    """What `kseg.tiering.rewrap` did; in a dry run what it would do."""

    dry_run: bool
    remote: str
    to: str
    segments: tuple[RewrappedSegment, ...]
    rewrapped: int
    failed: int
    seconds: float

    def lines(self, width: int = _WIDTH) -> list[str]:
        """The report as a table, a line for what became of the same in a partition."""
        counts = Counter((found.topic, found.partition, found.key_id, found.status.value) for found in self.segments)
        rows = [(*place, count, status) for (*place, status), count in counts.items()]
        table = format_table(_COLUMNS, rows, width) if rows else []
        verb = "would be" if self.dry_run else "were" if self.rewrapped != 1 else "was"
        summary = f"{self.rewrapped} data key{'' if self.rewrapped == 1 else 's'} {verb} wrapped with {self.to!r}"
        errors = [f"failed: {found.error}" for found in self.segments if found.error is not None]
        return [*table, summary, *errors]
