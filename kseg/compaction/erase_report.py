"""The proof of an erasure: what was found where, what was taken away, what a last look found."""

from __future__ import annotations

from dataclasses import dataclass

from kseg.compaction.eraser import SegmentErasure
from kseg.reports import Report
from kseg.tables import Column, format_size, format_table

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


@dataclass(frozen=True, slots=True)
class EraseReport(Report):
    """A whole run.

    Attributes:
        key_hashes: The keys, as HMAC-SHA256 under a secret that is not in the report.
        deleted_files: Files that a broker had given up and that were deleted now.
        deleted_quarantine: Quarantine folders that held such records, or could not be read, and were deleted.
        set_aside: Whether folders for deletion, moves and strays were searched: they are among `places`.
        not_covered: Replicas that the metadata tells of and that were not given.
        refusals: What was left alone, and why.
    """

    places: tuple[PlaceErasure, ...]
    key_hashes: tuple[str, ...]
    deleted_files: tuple[str, ...]
    deleted_quarantine: tuple[str, ...]
    not_covered: tuple[str, ...]
    refusals: tuple[str, ...]
    dry_run: bool
    seconds: float

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
        return not (self.dry_run or self.failed or self.left or self.not_covered)

    def lines(self, width: int = 80) -> list[str]:
        """The report as a table, and what it proves."""
        rows = [
            (
                place.path.rpartition("/")[2],
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
        summary = f"{self.records} record{'' if self.records == 1 else 's'} {word} in {len(self.places)} directories"
        lines = [*table, summary]
        if not self.dry_run:
            lines.append(f"a last look found {self.left}" if self.left else "a last look found none")
        lines += [f"deleted: {name}" for name in (*self.deleted_files, *self.deleted_quarantine)]
        lines += [f"failed: {place.path}: {place.error}" for place in self.failed]
        lines += [f"refused: {text}" for text in self.refusals]
        return lines + [f"NOT COVERED: {name}" for name in self.not_covered]
