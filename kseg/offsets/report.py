"""What groups have committed, and what a reset has written or would write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kseg.offsets.entries import OffsetEntry
from kseg.reports import Report
from kseg.settings.values import Refusal
from kseg.tables import Column, format_table, format_time

_WIDTH: Final = 80
_OFFSETS: Final = (
    Column("GROUP", at_least=12),
    Column("TOPIC", at_least=12),
    Column("PART", right=True),
    Column("OFFSET", right=True),
    Column("END", right=True),
    Column("LAG", right=True),
    Column("STATE", droppable=1),
    Column("COMMITTED", droppable=2),
)
_RESETS: Final = (
    Column("GROUP", at_least=12),
    Column("TOPIC", at_least=12),
    Column("PART", right=True),
    Column("BEFORE", right=True),
    Column("OFFSET", right=True),
    Column("NOTE", at_least=20),
)


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Where a group stands in a partition.

    Attributes:
        end_offset: Where the partition ends for consumers, None where it is not here.
        state: Of the group, as the last record about it tells: `Empty` where it has no members.
    """

    entry: OffsetEntry
    end_offset: int | None
    lag: int | None
    state: str

    def to_row(self) -> dict[str, Any]:
        """As an object of a line, by the names of Spark's view `offsets`."""
        return {**self.entry.to_row(), "endOffset": self.end_offset, "lag": self.lag, "state": self.state}


@dataclass(frozen=True, slots=True)
class OffsetsReport(Report):
    """What `kseg.offsets.read` found, by group, topic and partition."""

    offsets: tuple[GroupOffset, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {"offsets": [found.to_row() for found in self.offsets]}

    def lines(self, width: int = _WIDTH) -> list[str]:
        """The report as a table."""
        rows = [
            (
                *found.entry.place,
                found.entry.offset,
                found.end_offset,
                found.lag,
                found.state,
                None if found.entry.commit_timestamp_ms is None else format_time(found.entry.commit_timestamp_ms),
            )
            for found in self.offsets
        ]
        groups = len({found.entry.group for found in self.offsets})
        return [*(format_table(_OFFSETS, rows, width) if rows else []), _counted(len(rows), groups)]


@dataclass(frozen=True, slots=True)
class ResetOffset:
    """An offset that was written, or would be.

    Attributes:
        before: What was committed until then.
        asked: What was asked for, where `entry` has another offset; `note` says why.
        coordinator: The partition of `__consumer_offsets`.
    """

    entry: OffsetEntry
    before: int | None
    asked: int
    coordinator: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ResetReport(Report):
    """What `kseg.offsets.reset` did."""

    dry_run: bool
    offsets: tuple[ResetOffset, ...]
    refusals: tuple[Refusal, ...]
    seconds: float

    def lines(self, width: int = _WIDTH) -> list[str]:
        """The report as a table."""
        return [*self.written_lines(width), *(f"refused: {found}" for found in self.refusals)]

    def written_lines(self, width: int = _WIDTH) -> list[str]:
        """What was written, without the refusals."""
        rows = [(*found.entry.place, found.before, found.entry.offset, found.note) for found in self.offsets]
        groups = len({found.entry.group for found in self.offsets})
        verb = "would be written" if self.dry_run else "written"
        table = format_table(_RESETS, rows, width) if rows else []
        return [*table, f"{_counted(len(rows), groups)} {verb}"]


def _counted(offsets: int, groups: int) -> str:
    return f"{offsets} offset{'' if offsets == 1 else 's'} of {groups} group{'' if groups == 1 else 's'}"
