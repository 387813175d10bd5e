"""What a crash in the middle of a replacement or deletion has left, settled as a broker's loader settles it.

| on disk                                                | what becomes of it                                          |
|--------------------------------------------------------|-------------------------------------------------------------|
| `.deleted`                                             | goes, but for a KRaft snapshot's                            |
| `.swap` at or above the lowest `.cleaned`              | goes: the replacement was not complete                      |
| `.cleaned`                                             | goes                                                        |
| live files and snapshots from the lowest `.log.swap` up to the next offset of the highest | go: they are replaced    |
| other `.swap`                                          | take their final name                                       |

The order is the loader's, and each step leaves a state that the same table settles to the same end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kseg import durable
from kseg.errors import LogError
from kseg.log.names import MAX_OFFSET, FileKind, FileState, segment_file_name
from kseg.recovery.folder import DiskFile, Folder

_DELETED = FileState.DELETED.value
_CLEANED = FileState.CLEANED.value
_SWAP = FileState.SWAP.value
_LOG_SWAP = FileKind.LOG.value + _SWAP
_METADATA_SNAPSHOT = ".checkpoint" + _DELETED
_NUMBER = re.compile(r"[0-9]{1,30}")


@dataclass(frozen=True, slots=True)
class TransientPlan:
    """Names to delete, group by group, and then files to rename: (from, to)."""

    removals: tuple[tuple[str, ...], ...] = ()
    renames: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removals or self.renames)

    @property
    def removed(self) -> tuple[str, ...]:
        """All names that go."""
        return tuple(name for group in self.removals for name in group)


def plan_transients(folder: Folder, next_offset_of_swap: Callable[[int], int]) -> tuple[TransientPlan, Folder]:
    """Decide what goes and what is renamed; return the plan and the folder behind it.

    Args:
        next_offset_of_swap: Gives the next offset of the `.log.swap` file of a base offset.

    Raises:
        LogError: A name ends like a transient file but does not begin with an offset, so that a broker does not start;
            or a log that is to take another's place has too few digits, so that a broker makes a second one.
    """
    names = sorted(folder.files)
    deleted = [name for name in names if name.endswith(_DELETED) and not name.endswith(_METADATA_SNAPSHOT)]
    cleaned = [name for name in names if name.endswith(_CLEANED)]
    swaps = [name for name in names if name.endswith(_SWAP)]
    min_cleaned = min((_offset(folder, name) for name in cleaned), default=None)
    offsets = {name: _offset(folder, name) for name in swaps}
    invalid = [name for name in swaps if min_cleaned is not None and offsets[name] >= min_cleaned]
    valid = [name for name in swaps if name not in invalid]
    logs = [offsets[name] for name in valid if name.endswith(_LOG_SWAP)]
    replaced: list[str] = []
    if logs:
        start, end = min(logs), max(next_offset_of_swap(base) for base in logs)
        gone = {*deleted, *cleaned, *swaps}
        replaced = [name for name in names if name not in gone and _is_between(name, start, end)]
    plan = TransientPlan(
        tuple(tuple(group) for group in (deleted, invalid, cleaned, replaced) if group),
        tuple((name, name.removesuffix(_SWAP)) for name in valid),
    )
    return plan, _settled(folder, plan)


def apply_transients(directory: Path, plan: TransientPlan) -> None:
    """Do it, each group durable before the next; the caller holds the directory, and has taken its marker away.

    Logs get their final names first, from the lowest base offset up, each durable before the next: a start-up deletes
    whatever has a final name in the range of a `.log.swap`.
    """
    for group in plan.removals:
        for name in group:
            durable.unlink(directory / name, missing_ok=True)
        durable.fsync_dir(directory)
    logs = [names for names in plan.renames if names[0].endswith(_LOG_SWAP)]
    for source, target in logs:
        durable.rename(directory / source, directory / target)
        durable.fsync_dir(directory)
    others = [names for names in plan.renames if names not in logs]
    for source, target in others:
        durable.rename(directory / source, directory / target)
    if others:
        durable.fsync_dir(directory)


def _offset(folder: Folder, name: str) -> int:
    number = name.partition(".")[0]
    offset = int(number) if _NUMBER.fullmatch(number) else -1
    if not 0 <= offset <= MAX_OFFSET:
        problem, hint = "does not begin with an offset", "a broker does not start with it; move the file away"
    elif name.endswith(_LOG_SWAP) and name != segment_file_name(offset, FileKind.LOG, FileState.SWAP):
        problem, hint = "is that of no segment", "a broker makes an empty segment beside it; move the file away"
    else:
        return offset
    raise LogError(f"the name of a transient file {problem}", path=f"{folder.directory}/{name}", hint=hint)


def _is_between(name: str, start: int, end: int) -> bool:
    number, dot, _ = name.partition(".")
    return bool(dot) and _NUMBER.fullmatch(number) is not None and start <= int(number) < end


def _settled(folder: Folder, plan: TransientPlan) -> Folder:
    disk = dict(folder.disk)
    for name in plan.removed:
        del disk[name]
    for source, target in plan.renames:
        file = disk.pop(source)
        disk[target] = DiskFile(file.name, file.size, file.mtime_ms)
    return Folder(folder.directory, disk)
