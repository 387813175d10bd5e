"""What a run of repacking did, or would do."""

from __future__ import annotations

from dataclasses import dataclass

from kseg.compaction.report import left_alone
from kseg.reports import Report
from kseg.tables import Column, format_size, format_table

_COLUMNS = (
    Column("PARTITION", at_least=16),
    Column("SEGMENTS", right=True),
    Column("BEFORE", right=True),
    Column("AFTER", right=True),
    Column("RATIO", right=True),
    Column("SECONDS", right=True, droppable=1),
)


@dataclass(frozen=True, slots=True)
class PartitionRepack(Report):
    """One partition; where `skipped` is set, nothing was changed and it says why.

    Where `error` is set, the numbers are of the groups of segments that were replaced before it came to that.
    """

    topic: str
    partition: int
    path: str
    skipped: str | None = None
    error: str | None = None
    is_usual: bool = False
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RepackReport(Report):
    """All partitions of a run.

    Attributes:
        unread: Directories that could not be read and may hold partitions that were asked for.
    """

    partitions: tuple[PartitionRepack, ...]
    codec: str
    dry_run: bool
    seconds: float
    unread: tuple[str, ...] = ()

    @property
    def done(self) -> tuple[PartitionRepack, ...]:
        """Those that were, or would be, written anew."""
        return tuple(p for p in self.partitions if p.skipped is None and p.error is None)

    def lines(self, width: int = 80) -> list[str]:
        """The report as a table, then what was left alone, and why."""
        rows = [
            (
                f"{p.topic}-{p.partition}",
                f"{p.segments_before} -> {p.segments_after}",
                format_size(p.bytes_before),
                format_size(p.bytes_after),
                f"{p.bytes_after / p.bytes_before:.2f}" if p.bytes_before else None,
                f"{p.seconds:.1f}",
            )
            for p in self.done
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        word = "would be repacked" if self.dry_run else "repacked"
        number = f"{len(self.done)} partition{'' if len(self.done) == 1 else 's'} {word}"
        return [*table, f"{number} with {self.codec}", *left_alone(self.partitions, self.unread)]
