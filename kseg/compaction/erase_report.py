"""The proof of an erasure: what was found where, what was taken away, what a last look found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kseg.compaction.eraser import SegmentErasure
from kseg.reports import Report
from kseg.tables import Column, format_count, format_size, format_table

_COLUMNS = (
    Column("DIRECTORY", at_least=16),
    Column("SEGS", right=True),
    Column("FOUND", right=True),
    Column("REWRITTEN", right=True),
    Column("FREED", right=True, droppable=1),
    Column("LEFT", right=True),
)


@dataclass(frozen=True, slots=True)
class PlaceErasure(Report):
    """One directory of segments: a partition, or what a broker has set aside.

    Attributes:
        records: Records that were meant.
        left: Records that a last look found; None where nothing was changed.
    """

    topic: str
    partition: int
    path: str
    segments_searched: int = 0
    records: int = 0
    segments: tuple[SegmentErasure, ...] = ()
    left: int | None = None
    error: str | None = None
    tier: Literal["local", "remote"] = "local"

    @property
    def shown(self) -> str:
        """A name for people."""
        return self.path.rpartition("/")[2] if self.tier == "local" else f"{self.topic}-{self.partition} in the tier"


@dataclass(frozen=True, slots=True)
class Lingering(Report):
    """An upload in a tier that nobody reads any more and whose objects are still there.

    Attributes:
        path: Of its objects, without what tells them apart.
        records: Records in it that were meant; None where it cannot be searched.
    """

    topic: str
    partition: int
    base_offset: int
    path: str
    records: int | None
    why: str


@dataclass(frozen=True, slots=True)
class EraseReport(Report):
    """A whole run.

    Attributes:
        key_hashes: The keys, as HMAC-SHA256 under a secret that is not in the report.
        deleted_files: Files that a broker had given up and that were deleted now; in a dry run, that would be.
        deleted_quarantine: Quarantine folders that held such records, or could not be read, and were deleted too.
        set_aside: Whether folders for deletion, moves and strays were searched: they are among `places`.
        not_covered: Replicas that the metadata tells of and that were not given.
        refusals: What was left alone, and why.
        lingering: What holds such records, or may hold them, in objects of a tier that nobody reads: until it is swept,
            they are there.
        unread: Directories that could not be read, or not be cleared, and may hold such records.
        replicas_unknown: Partitions of which no metadata told who holds replicas: the proof is of what was given alone.
        not_searched: Files and folders in the partitions' directories that are no part of a log.
    """

    places: tuple[PlaceErasure, ...]
    key_hashes: tuple[str, ...]
    deleted_files: tuple[str, ...]
    deleted_quarantine: tuple[str, ...]
    not_covered: tuple[str, ...]
    refusals: tuple[str, ...]
    dry_run: bool
    seconds: float
    lingering: tuple[Lingering, ...] = ()
    unread: tuple[str, ...] = ()
    replicas_unknown: tuple[str, ...] = ()
    not_searched: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """Records that were meant, in all places."""
        return sum(place.records for place in self.places)

    @property
    def left(self) -> int:
        """Records that a last look found."""
        return sum(place.left or 0 for place in self.places)

    @property
    def failed(self) -> tuple[PlaceErasure, ...]:
        """Places that could not be searched or changed."""
        return tuple(place for place in self.places if place.error is not None)

    @property
    def is_proof(self) -> bool:
        """Whether nothing is left in anything that was given, and nothing was left out."""
        left_out = self.refusals or self.not_covered or self.lingering or self.not_searched
        return not (self.dry_run or self.left or self.failed or self.unread or left_out)

    def to_dict(self) -> dict[str, Any]:
        """The fields, and what they come to."""
        return Report.to_dict(self) | {"records": self.records, "left": self.left, "is_proof": self.is_proof}

    def lines(self, width: int = 80) -> list[str]:
        """The report as a table, and what it proves."""
        rows = [
            (
                place.shown,
                place.segments_searched,
                place.records,
                len(place.segments),
                format_size(sum(s.bytes_before - s.bytes_after for s in place.segments)),
                place.left,
            )
            for place in self.places
            if place.records or place.error
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        word = "would be erased" if self.dry_run else "erased"
        done = [place for place in self.places if place.error is None]
        lines = [
            *table,
            f"{format_count(sum(place.records for place in done), 'record')} {word} in {len(done)} directories",
        ]
        if not self.dry_run and (done or not (self.places or self.refusals)):
            where = " in what is read" if self.lingering else ""
            lines.append(f"a last look found {self.left or 'none'}{where}")
        gone = "would be deleted" if self.dry_run else "deleted"
        lines += [f"{gone}: {name}" for name in (*self.deleted_files, *self.deleted_quarantine)]
        for place in self.failed:
            lines.append(f"failed: {place.path}: {place.error}")
            if place.records:
                lines.append(f"{format_count(place.records, 'record')} that were found there may still be there")
        lines += [f"failed: {text}" for text in self.unread]
        lines += [f"refused: {text}" for text in self.refusals]
        lines += [f"NOT COVERED: {name}" for name in self.not_covered]
        lines += [f"NOT SEARCHED: {name} is no file of a log" for name in self.not_searched]
        if self.replicas_unknown:
            number = format_count(len(self.replicas_unknown), "partition")
            lines.append(f"replicas: unknown of {number}, no metadata tells: copies on other brokers are not covered")
        for found in self.lingering:
            number = "not searched" if found.records is None else format_count(found.records, "record")
            lines.append(f"STILL IN THE TIER: {found.path}: {number}; {found.why}")
        if any(found.records for found in self.lingering):
            lines.append("objects hold them until their grace period is over; --grace-ms 0 deletes what is retired now")
        return lines
