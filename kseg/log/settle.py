"""Carry an interrupted replacement or deletion of segments to the end that a broker's start-up would bring it to.

What counts is decided where logs are read (`kseg.log.files`); here the names on disk are made to say it. The order is
that of a start-up, and each group is durable before the next begins, so that a crash in between changes nothing of what
counts: `.swap` files that do not count go before the `.cleaned` files that say so, and replaced files go before their
replacements take their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kseg import durable
from kseg.log.names import FileKind, FileState, SegmentFile, parse_segment_file
from kseg.log.partition import Log

_ORDER: Final = (FileState.DELETED, FileState.SWAP, FileState.CLEANED, FileState.LIVE)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Names to delete, group by group, and then files to rename: (from, to)."""

    removals: tuple[tuple[str, ...], ...]
    renames: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.removals or self.renames)


def plan_settlement(log: Log) -> Settlement:
    """What a start-up would delete and rename; nothing where no replacement or deletion was interrupted."""
    names = [name for entry in log.store.list(log.directory) if (name := parse_segment_file(entry.name))]
    if all(name.state is FileState.LIVE for name in names):
        return Settlement((), ())
    counting = {entry.name for segment in log.segments for entry in segment.files.values()}
    bases = {segment.base_offset for segment in log.segments}
    gone = [name for name in names if name.name not in counting and not _stays(name, names, bases)]
    groups = (tuple(name.name for name in gone if name.state is state) for state in _ORDER)
    swaps = [name for name in names if name.name in counting and name.state is FileState.SWAP]
    renames = tuple((name.name, SegmentFile(name.base_offset, name.kind).name) for name in sorted(swaps))
    return Settlement(tuple(group for group in groups if group), renames)


def _stays(name: SegmentFile, names: list[SegmentFile], bases: set[int]) -> bool:
    """Whether a file that no segment counts stays all the same: a snapshot that is not of a replaced segment."""
    if name.kind is not FileKind.SNAPSHOT or name.state is not FileState.LIVE:
        return False
    return name.base_offset in bases or not any(
        other.base_offset == name.base_offset and other.kind is FileKind.LOG for other in names
    )


def apply_settlement(directory: Path, plan: Settlement) -> None:
    """Do it; the caller holds the directory, and has taken the clean-shutdown marker away."""
    for group in plan.removals:
        for name in group:
            durable.unlink(directory / name, missing_ok=True)
        durable.fsync_dir(directory)
    for source, target in plan.renames:
        durable.rename(directory / source, directory / target)
    if plan.renames:
        durable.fsync_dir(directory)
