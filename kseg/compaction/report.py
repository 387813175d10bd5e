"""What a round of compaction did, or would do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kseg.reports import Report
from kseg.tables import Column, format_count, format_size, format_table

_COLUMNS = (
    Column("PARTITION", at_least=16),
    Column("BEFORE", right=True),
    Column("AFTER", right=True),
    Column("RECORDS", right=True),
    Column("KEPT", right=True),
    Column("KEYS", right=True, droppable=3),
    Column("STRATEGY", droppable=1),
    Column("SPEED", right=True, droppable=2),
)
_LEAST_WIDTH = 40  # of what is wrapped


@dataclass(frozen=True, slots=True)
class PartitionCompaction(Report):
    """One partition's share; where `skipped` is set, no segment was changed and it says why.

    Where `error` is set, the numbers are those of the groups that were compacted before, if any.

    Attributes:
        records_before: Records of the segments that were cleaned.
        superseded: Records that a later one with the same key replaces.
        first_dirty: Where the round began.
        checkpoint: Where the next round begins.
        checkpoint_reset: The checkpoint lay outside of the log, so that the round began at the log's start.
        strategy: How keys were compared; `strategy_reason` says why so.
        seconds: How long each phase took.
        retired: Objects of a tier whose segments were replaced; they stay until a sweep takes them.
    """

    topic: str
    partition: int
    path: str
    skipped: str | None = None
    error: str | None = None
    is_usual: bool = False
    dry_run: bool = False
    first_dirty: int = -1
    first_uncleanable: int = -1
    checkpoint: int = -1
    checkpoint_reset: bool = False
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
    retired: tuple[str, ...] = ()

    @property
    def bytes_per_second(self) -> float:
        """Bytes of log that were cleaned in a second."""
        total = sum(self.seconds.values())
        return self.bytes_before / total if total else 0.0

    def details(self, width: int = 80) -> list[str]:
        """What the round found and how it worked, in indented lines; what there was none of is left out."""
        counted = {
            f"{self.superseded} superseded": self.superseded,
            f"{format_count(self.tombstones_kept, 'tombstone')} kept": self.tombstones_kept,
            f"{format_count(self.tombstones_expired, 'tombstone')} expired": self.tombstones_expired,
            f"{format_count(self.markers_kept, 'marker')} kept": self.markers_kept,
            f"{format_count(self.markers_dropped, 'marker')} dropped": self.markers_dropped,
            f"{self.aborted} aborted": self.aborted,
            f"{self.null_keys} without a key": self.null_keys,
        }
        found = ", ".join(text for text, count in counted.items() if count)
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        why = f"{self.strategy}: {self.strategy_reason}" if self.strategy else ""
        reset = f"the checkpoint lay outside of the log: begun at its start, {self.first_dirty}"
        texts = (reset if self.checkpoint_reset else "", found, phases, why)
        room = max(width, _LEAST_WIDTH)
        wrapped = (textwrap.wrap(text, room, initial_indent="  ", subsequent_indent="    ") for text in texts)
        return [line for lines in wrapped for line in lines]

    def to_dict(self) -> dict[str, Any]:
        """The fields, and how fast it was."""
        return Report.to_dict(self) | {"bytes_per_second": round(self.bytes_per_second)}


@dataclass(frozen=True, slots=True)
class CompactionReport(Report):
    """All partitions of a run.

    Attributes:
        not_covered: Replicas that the metadata tells of and that were not given.
        unread: Directories that could not be read and may hold partitions that were asked for.
    """

    partitions: tuple[PartitionCompaction, ...]
    seconds: float
    dry_run: bool = False
    not_covered: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def done(self) -> tuple[PartitionCompaction, ...]:
        """Those that were, or would be, compacted."""
        return tuple(p for p in self.partitions if p.skipped is None and p.error is None)

    @property
    def failed(self) -> tuple[PartitionCompaction, ...]:
        """Those that could not be."""
        return tuple(p for p in self.partitions if p.error is not None)

    def lines(self, width: int = 80) -> list[str]:
        """The report as a table with what was found below each partition, then what was left alone, and why."""
        rows = [
            (
                f"{p.topic}-{p.partition}",
                format_size(p.bytes_before),
                format_size(p.bytes_after),
                p.records_before,
                p.records_after,
                p.keys,
                p.strategy,
                f"{format_size(int(p.bytes_per_second))}/s",
            )
            for p in self.done
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        lines = table[:1]
        for row, p in zip(table[1:], self.done, strict=True):
            lines += [row, *p.details(width)]
        freed = sum(p.bytes_before - p.bytes_after for p in self.partitions)
        word = "would be compacted" if self.dry_run else "compacted"
        number = f"{len(self.done)} partition{'' if len(self.done) == 1 else 's'} {word}"
        summary = f"{number}, {format_size(freed)} {'would be ' if self.dry_run else ''}freed"
        lines += [summary, *left_alone(self.partitions, self.unread)]
        lines += [f"not covered: {name}" for name in self.not_covered]
        if retired := sum(len(p.retired) for p in self.partitions):
            lines.append(f"{retired} segments of the tier retired; their objects stay for the grace period")
        return lines


class Outcome(Protocol):
    """What `left_alone` looks at."""

    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def skipped(self) -> str | None: ...  # noqa: D102
    @property
    def error(self) -> str | None: ...  # noqa: D102


def left_alone(partitions: Iterable[Outcome], unread: Iterable[str] = ()) -> list[str]:
    """A line for each failure, and one for each reason to leave partitions alone."""
    lines = [f"failed: {p.topic}-{p.partition}: {p.error}" for p in partitions if p.error is not None]
    lines += [f"failed: {text}" for text in unread]
    reasons: dict[str, list[str]] = {}
    for p in partitions:
        if p.skipped is not None:
            reasons.setdefault(p.skipped, []).append(f"{p.topic}-{p.partition}")
    return lines + [f"left alone: {', '.join(names)}: {reason}" for reason, names in reasons.items()]
