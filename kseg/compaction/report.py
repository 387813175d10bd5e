"""What a round of compaction did, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field

from kseg.reports import Report
from kseg.tables import Column, format_size, format_table

_COLUMNS = (
    Column("PARTITION", at_least=12),
    Column("BEFORE", right=True),
    Column("AFTER", right=True),
    Column("RECORDS", right=True, droppable=1),
    Column("KEPT", right=True),
    Column("CHECKPOINT", right=True, droppable=2),
    Column("RESULT", at_least=12),
)


@dataclass(frozen=True, slots=True)
class PartitionCompaction(Report):
    """One partition's share; where `skipped` is set, nothing was changed and it says why.

    Attributes:
        records_before: Records of the segments that were cleaned.
        superseded: Records that a later one with the same key replaces.
        first_dirty: Where the round began.
        checkpoint: Where the next round begins.
        strategy: How keys were compared; `strategy_reason` says why so.
        seconds: How long each phase took.
    """

    topic: str
    partition: int
    path: str
    skipped: str | None = None
    error: str | None = None
    dry_run: bool = False
    first_dirty: int = -1
    first_uncleanable: int = -1
    checkpoint: int = -1
    dirty_ratio: float = 0.0
    strategy: str = ""
    strategy_reason: str = ""
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    keys: int = 0
    superseded: int = 0
    null_keys: int = 0
    tombstones_kept: int = 0
    tombstones_expired: int = 0
    aborted: int = 0
    markers_kept: int = 0
    markers_dropped: int = 0
    batches_copied: int = 0
    batches_rebuilt: int = 0
    batches_emptied: int = 0
    batches_dropped: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def bytes_per_second(self) -> float:
        """Bytes of log that were cleaned in a second."""
        total = sum(self.seconds.values())
        return self.bytes_before / total if total else 0.0

    @property
    def result(self) -> str:
        """The outcome in a word or a sentence."""
        if self.error is not None:
            return f"failed: {self.error}"
        if self.skipped is not None:
            return f"skipped: {self.skipped}"
        return "would be compacted" if self.dry_run else "compacted"


@dataclass(frozen=True, slots=True)
class CompactionReport(Report):
    """All partitions of a run."""

    partitions: tuple[PartitionCompaction, ...]
    seconds: float
    dry_run: bool = False
    not_covered: tuple[str, ...] = ()

    @property
    def compacted(self) -> tuple[PartitionCompaction, ...]:
        """Those that were, or would be, compacted."""
        return tuple(p for p in self.partitions if p.skipped is None and p.error is None)

    @property
    def failed(self) -> tuple[PartitionCompaction, ...]:
        """Those that could not be."""
        return tuple(p for p in self.partitions if p.error is not None)

    def to_table(self, width: int = 80) -> list[str]:
        """Lines for people."""
        rows = [
            (
                f"{p.topic}-{p.partition}",
                format_size(p.bytes_before),
                format_size(p.bytes_after) if p in self.compacted else None,
                p.records_before,
                p.records_after,
                p.checkpoint if p.checkpoint >= 0 else None,
                p.result,
            )
            for p in self.partitions
        ]
        return format_table(_COLUMNS, rows, width)

    def __str__(self) -> str:
        return "\n".join(self.to_table())
