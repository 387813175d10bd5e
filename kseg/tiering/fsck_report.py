"""What was found wrong in a tier."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kseg.reports import Report
from kseg.tables import Column, format_size, format_table

_WIDTH: Final = 80
_COLUMNS: Final = (
    Column("KIND"),
    Column("TOPIC", at_least=10),
    Column("PART", right=True),
    Column("OFFSET", right=True),
    Column("WHAT", at_least=20),
)


class Kind(StrEnum):
    """What can be wrong."""

    ORPHAN = "orphan"
    UNFINISHED = "unfinished"
    MISSING = "missing"
    SIZE = "size"
    DAMAGE = "damage"
    UNREAD = "unread"
    OVERLAP = "overlap"
    GAP = "gap"
    STRANGER = "stranger"
    RETIRED = "retired"
    REWRAP = "rewrap"

    @property
    def is_damage(self) -> bool:
        """Whether something that was promised is not known to be readable; others cost space, or want a look."""
        return self in (Kind.MISSING, Kind.SIZE, Kind.DAMAGE, Kind.UNREAD, Kind.GAP)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        keys: The objects that it is about.
        bytes: What they take.
        deleted: Whether they are gone now.
    """

    kind: Kind
    topic: str | None
    partition: int | None
    offset: int | None
    segment_id: str | None
    text: str
    keys: tuple[str, ...] = ()
    bytes: int = 0
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class FsckReport(Report):
    """What `kseg.tiering.fsck` found; `segments` are the complete ones."""

    remote: str
    segments: int
    objects: int
    bytes: int
    findings: tuple[Finding, ...]
    deleted_bytes: int
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether everything that was promised can be read."""
        return not any(finding.kind.is_damage for finding in self.findings)

    def lines(self, width: int = _WIDTH) -> list[str]:
        """The report as a table."""
        rows = [
            (
                found.kind.value,
                found.topic,
                found.partition,
                found.offset,
                found.text + (" (deleted)" if found.deleted else ""),
            )
            for found in self.findings
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        summary = f"{self.segments} complete segments in {self.objects} objects, {format_size(self.bytes)}; "
        summary += f"{len(self.findings)} findings"
        if self.deleted_bytes:
            summary += f", {format_size(self.deleted_bytes)} deleted"
        return [*table, summary]
