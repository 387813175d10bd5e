"""What an export has done, or would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kseg.log.damage import Damage
from kseg.reports import Report
from kseg.tables import Column, format_size, format_table

_WIDTH: Final = 80
_MOST_DAMAGES: Final = 10  # that people are shown; programs get all
_COLUMNS: Final = (
    Column("TOPIC", at_least=16),
    Column("PART", right=True),
    Column("FROM", right=True),
    Column("TO", right=True),
    Column("LOG", right=True),
    Column("RECORDS", right=True),
)


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """Offsets `[start, end)` of a partition: the bytes of log that hold them, and the records that were written.

    `rows` is None in a dry run.
    """

    topic: str
    partition: int
    start: int
    end: int
    bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class ExportReport(Report):
    """What a run of `kseg.export` has added to its target.

    Attributes:
        run: Number of the run; None where there was nothing new, and in a dry run.
        manifest: The file, relative to the target, that lists what the run added.
        partitions: Those that had something new.
        rows: Records that were written.
        bytes: Bytes of log that were read, or would be.
        files: How many files were written, `file_bytes` large together.
        completed: Files of an earlier run that a crash had kept from their places and this run has moved there.
        losses: Offsets that were gone, with partition and reason; `lost_offsets` of them.
        damages: Damaged places that were passed over, `damaged_bytes` large together; up to `damaged_offsets` offsets
            are missing for them. Empty with `corrupt=fail`, which ends the run at the first.
    """

    target: str
    dry_run: bool
    run: int | None
    manifest: str | None
    partitions: tuple[ExportedPartition, ...]
    rows: int
    bytes: int
    files: int
    file_bytes: int
    completed: int
    losses: tuple[str, ...]
    lost_offsets: int
    damages: tuple[Damage, ...]
    damaged_bytes: int
    damaged_offsets: int
    seconds: float

    def __str__(self) -> str:
        lines = []
        if self.partitions:
            cells = [
                (one.topic, one.partition, one.start, one.end, format_size(one.bytes), one.rows)
                for one in self.partitions
            ]
            lines += format_table(_COLUMNS, cells, _WIDTH)
        if self.completed:
            lines.append(f"{self.completed} files of an earlier run were moved to their places")
        lines += [f"lost: {loss}" for loss in self.losses]
        if self.damages:
            lines += [f"damaged: {damage}" for damage in self.damages[:_MOST_DAMAGES]]
            lines.append(
                f"passed over {len(self.damages)} damaged places, {format_size(self.damaged_bytes)}, with up to"
                f" {self.damaged_offsets} offsets"
            )
        lines.append(self._summary())
        return "\n".join(lines)

    def _summary(self) -> str:
        count = len(self.partitions)
        if not count:
            return "nothing new to export"
        what = "1 partition" if count == 1 else f"{count} partitions"
        if self.dry_run:
            return f"{what}, {format_size(self.bytes)} of log would be exported"
        return (
            f"run {self.run}: {self.rows} records of {what} in {self.files} files, {format_size(self.file_bytes)},"
            f" {self.seconds:.1f} s"
        )
