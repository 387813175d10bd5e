"""What a recovery or truncation did, or would do: for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kseg.reports import Report
from kseg.tables import Column, format_size, format_table

WIDTH: Final = 80
_COLUMNS: Final = (
    Column("PARTITION", at_least=14),
    Column("END", right=True),
    Column("CHECKED", right=True),
    Column("CUT OFF", right=True),
    Column("DROPPED", right=True, droppable=2),
    Column("REBUILT", right=True, droppable=3),
    Column("RESULT", at_least=10),
)


@dataclass(frozen=True, slots=True)
class CutReport:
    """Bytes that went from a segment: `size` of them from `position` on."""

    base_offset: int
    position: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionReport(Report):
    """One partition.

    Attributes:
        status: unchanged, changed, planned (a dry run), undone or failed.
        clean: Whether the directory was shut down cleanly, so that nothing was checked.
        lost: Ranges of offsets, [start, end), whose records are gone from the log.
        damaged: Whether sound records went, and not only the torn end of the log.
        quarantine: Where what went is kept; None where nothing is.
        undoes: The run that was taken back, or in a dry run would be; nothing else is known of the log then.
    """

    topic: str
    partition: int
    path: str
    status: str
    clean: bool = False
    start_offset: int = 0
    end_offset: int = 0
    recovery_point: int = 0
    checked_segments: int = 0
    checked_bytes: int = 0
    cuts: tuple[CutReport, ...] = ()
    cut_bytes: int = 0
    dropped_segments: tuple[int, ...] = ()
    dropped_bytes: int = 0
    rewritten_segments: tuple[int, ...] = ()
    removed_files: tuple[str, ...] = ()
    renamed_files: tuple[str, ...] = ()
    written_files: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    damaged: bool = False
    quarantine: str | None = None
    undoes: str | None = None
    notes: tuple[str, ...] = ()
    error: str | None = None
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The partition as its directory is named."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class RepairReport(Report):
    """What was done to all partitions."""

    partitions: tuple[PartitionReport, ...]
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def damaged(self) -> bool:
        """Whether sound records were lost anywhere, or a partition failed."""
        return any(one.damaged or one.error is not None for one in self.partitions)

    def lines(self, width: int = WIDTH) -> list[str]:
        """The report as a table for people, and below it what happened to each partition that changed."""
        lines = format_table(_COLUMNS, [_cells(one) for one in self.partitions], width)
        for one in self.partitions:
            told = list(_details(one))
            if told:
                lines += [f"{one.name}:", *(f"  {text}" for text in told)]
        return lines


@dataclass(frozen=True, slots=True)
class RecoveryReport(RepairReport):
    """What `recover` did, or in a dry run would do."""


@dataclass(frozen=True, slots=True)
class TruncationReport(RepairReport):
    """What `truncate` did, or in a dry run would do."""


def _cells(one: PartitionReport) -> list[object]:
    if one.error is not None or one.undoes is not None:
        return [one.name, None, None, None, None, None, one.status]
    return [
        one.name,
        one.end_offset,
        format_size(one.checked_bytes),
        format_size(one.cut_bytes),
        format_size(one.dropped_bytes),
        len(one.written_files),
        "clean" if one.clean and one.status == "unchanged" else one.status,
    ]


def _details(one: PartitionReport) -> list[str]:
    told = [] if one.error is None else [one.error]
    told += [f"segment {c.base_offset}: {c.size} bytes from byte {c.position} on go: {c.reason}" for c in one.cuts]
    if one.dropped_segments:
        bases = ", ".join(str(base) for base in one.dropped_segments)
        told.append(f"segments behind it go: {bases} ({format_size(one.dropped_bytes)})")
    told += [f"records of offsets {start} to {end - 1} go" for start, end in one.lost]
    if one.removed_files:
        told.append(_files(one.removed_files, "goes", "go"))
    if one.renamed_files:
        told.append(_files(one.renamed_files, "takes its final name", "take their final names"))
    told += one.checkpoints
    told += one.notes
    if one.quarantine is not None:
        told.append(f"kept in {one.quarantine}")
    return told


def _files(names: tuple[str, ...], one: str, several: str) -> str:
    return f"{names[0]} {one}" if len(names) == 1 else f"{len(names)} files {several}, such as {names[0]}"
