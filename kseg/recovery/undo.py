"""The way back from a repair, by what its quarantine holds: every file as it was, byte for byte.

Files are put back first, and then what the run made goes. It may be stopped anywhere and started again, for the
quarantine stays as it is until all of it is durable. A broker that starts in between goes on with what there was, or
with what the repair made of it, for the steps are in an order by which its loader can tell:

| step                                                          | a broker that starts behind it                       |
|---------------------------------------------------------------|------------------------------------------------------|
| `.cleaned`, then `.log.swap`, then other `.swap` come back    | settles these as it would have before the repair     |
| indexes of segments whose logs come back go                   | rebuilds them                                        |
| logs come back, then other files, then indexes                | finds logs without index, and rebuilds it            |
| what the run made goes: `.swap` of indexes, of logs, the rest | settles an interrupted replacement to its end or not |
| checkpoints                                                   | corrects them                                        |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kseg import durable
from kseg.errors import LogError, StorageError
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, update_checkpoint
from kseg.log.names import SIDE_DIR, FileKind, FileState
from kseg.recovery.quarantine import BEGUN, DONE, UNDONE, Kept, Manifest, remove_run
from kseg.storage import LocalStore
from kseg.types import TopicPartition

_COPY_BYTES = 8 << 20
_LOG, _INDEX = FileKind.LOG.value, FileKind.OFFSET_INDEX.value
_SWAP, _CLEANED = FileState.SWAP.value, FileState.CLEANED.value


def check_undo(directory: Path, manifest: Manifest) -> None:
    """Refuse the way back where the directory is not as the run left it.

    Raises:
        LogError: Someone has changed it since.
    """
    found = {entry.name: entry.size for entry in LocalStore().list(str(directory)) if not entry.is_dir}
    same = found == manifest.after if manifest.status == DONE else _is_between(found, manifest)
    if not same:
        names = {name for name in {*found, *manifest.after} if found.get(name) != manifest.after.get(name)}
        raise LogError(
            f"the directory was changed after run {manifest.run} ({', '.join(sorted(names)[:3])}): it cannot be undone",
            path=str(directory),
            hint=f"what it took away is in {SIDE_DIR}/quarantine/{manifest.run}",
        )


def _is_between(found: dict[str, int], manifest: Manifest) -> bool:
    """Whether a directory is one that a run, or its undo, was stopped in: other names and sizes are someone else's."""
    made = set(_made(manifest))
    kept = {one.name: one for one in manifest.kept}
    for name, size in found.items():
        if name not in manifest.before:
            if name not in made:
                return False
            continue
        swapped = manifest.before.get(name + _SWAP)
        final = manifest.after.get(name.removesuffix(_SWAP).removesuffix(_CLEANED))
        if size in (manifest.before[name], swapped, final) or name.endswith((_CLEANED, durable.TEMPORARY_SUFFIX)):
            continue
        tail = kept.get(name)
        if tail is None or tail.cut_at is None or not tail.cut_at <= size <= tail.size:
            return False
    return True


def undo(directory: Path, tp: TopicPartition, folder: Path, manifest: Manifest) -> None:
    """Put everything back as it was before a run, and remove the run's folder."""
    if manifest.status != BEGUN:  # if this is stopped, it is a run in between again
        manifest.status = BEGUN
        manifest.write(folder)
    kept = {one.name: one for one in manifest.kept if LocalStore().stat(str(folder / one.stored_as)) is not None}
    for names in _grouped(kept, _order_of_return):
        if any(_is_log(name) for name in names):
            _remove_indexes(directory, [name for name in names if _is_log(name)], kept, manifest)
        for name in names:
            _put_back(directory / name, folder / kept[name].stored_as, kept[name])
        durable.fsync_dir(directory)
    there = {entry.name for entry in LocalStore().list(str(directory))}
    for names in _grouped(there.intersection(_made(manifest)) - manifest.before.keys(), _order_of_removal):
        for name in names:
            durable.unlink(directory / name)
        durable.fsync_dir(directory)
    for change in manifest.checkpoints:
        _put_line_back(directory.parent, tp, change)
    manifest.status = UNDONE
    manifest.write(folder)
    remove_run(directory, folder)


def _made(manifest: Manifest) -> Iterator[str]:
    """Names that a run may have made, those of its steps and of its undo included."""
    for name in manifest.after:
        yield name
        yield name + durable.TEMPORARY_SUFFIX
        yield name + _CLEANED
        yield name + _SWAP
    for name in manifest.before:
        yield name + FileState.DELETED.value
    for kept in manifest.kept:
        yield kept.name + durable.TEMPORARY_SUFFIX


def _grouped(names: Iterable[str], order: Callable[[str], int]) -> Iterator[list[str]]:
    groups: dict[int, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(order(name), []).append(name)
    return (groups[key] for key in sorted(groups))


def _order_of_return(name: str) -> int:
    if name.endswith(_CLEANED):
        return 0
    if name.endswith(_SWAP):
        return 1 if name.endswith(_LOG + _SWAP) else 2
    if name.endswith(durable.TEMPORARY_SUFFIX):  # the names that the others have on their way
        return 6
    return 3 if _is_log(name) else 5 if name.endswith(_INDEX) else 4


def _order_of_removal(name: str) -> int:
    if not name.endswith(_SWAP):
        return 2
    return 1 if name.endswith(_LOG + _SWAP) else 0


def _is_log(name: str) -> bool:
    return name.endswith(_LOG)


def _remove_indexes(directory: Path, logs: list[str], kept: dict[str, Kept], manifest: Manifest) -> None:
    """Take the indexes of logs away that do not fit the logs that come back."""
    for name in logs:
        index = name.removesuffix(_LOG) + _INDEX
        if index in kept or index not in manifest.before:
            durable.unlink(directory / index, missing_ok=True)
    durable.fsync_dir(directory)


def _put_back(path: Path, stored: Path, kept: Kept) -> None:
    """Give a file its old bytes again, and leave what is stored where it is."""
    if kept.cut_at is not None:
        _put_tail_back(path, kept.cut_at, stored)
        durable.set_mtime_ms(path, kept.mtime_ms)
        return
    if _is_same_file(path, stored):  # a rename would do nothing, and leave both names
        return
    temporary = path.with_name(path.name + durable.TEMPORARY_SUFFIX)
    try:
        durable.unlink(temporary, missing_ok=True)
        durable.link(stored, temporary)
    except StorageError as error:
        if error.missing:
            raise
        durable.rename(stored, path)  # a file system without links
        return
    durable.rename(temporary, path)


def _is_same_file(path: Path, stored: Path) -> bool:
    store = LocalStore()
    if store.stat(str(path)) is None:
        return False
    with store.open(str(path)) as one, store.open(str(stored)) as other:
        return one.identity == other.identity


def _put_tail_back(path: Path, cut_at: int, stored: Path) -> None:
    with LocalStore().open(str(stored)) as file, durable.closing(durable.open_write(path), path) as fd:
        buffer = bytearray(min(_COPY_BYTES, max(file.size, 1)))
        for position in range(0, file.size, len(buffer)):
            got = file.read_into(position, buffer)
            durable.write_at(fd, cut_at + position, memoryview(buffer)[:got], path)
        durable.fsync_file(fd)


def _put_line_back(log_dir: Path, tp: TopicPartition, change: dict[str, Any]) -> None:
    """Give a checkpoint its old offset again, unless someone has moved it on."""
    kind = CheckpointKind(change["kind"])
    offsets = read_checkpoint(LocalStore(), str(log_dir), kind)
    if offsets is not None and offsets.get(tp) == change["after"]:
        update_checkpoint(str(log_dir), kind, {tp: change["before"]})
