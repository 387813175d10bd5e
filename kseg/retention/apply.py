"""Delete segments as a broker does, and durably where it is not.

The order is what makes every crash harmless: the log start moves first, durably, so that no reader and no broker
misses what goes, whichever names a crash leaves; then all files become `.deleted`, which a start-up removes; then they
are unlinked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kseg import durable
from kseg.index.epoch import LeaderEpochs
from kseg.index.producer import ProducerEntry, format_snapshot
from kseg.index.txn import TxnIndex
from kseg.log.checkpoints import (
    CheckpointKind,
    read_checkpoint,
    read_leader_epochs,
    update_checkpoint,
    write_leader_epochs,
)
from kseg.log.config import LogConfig
from kseg.log.names import FileKind, FileState, parse_segment_file, segment_file_name
from kseg.log.partition import Log
from kseg.log.writer_segment import ActiveSegment
from kseg.log.writer_session import WriteSession
from kseg.retention.plan import RetentionPlan
from kseg.storage import LocalStore

_KINDS: Final = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.SNAPSHOT)


@dataclass(frozen=True, slots=True)
class DoomedFile:
    """A file that goes."""

    base_offset: int
    kind: FileKind
    size: int


def doomed_files(log: Log, plan: RetentionPlan) -> list[DoomedFile]:
    """The files that a plan deletes, in the order in which a broker renames them."""
    sizes = {entry.name: entry.size for entry in log.store.list(log.directory) if not entry.is_dir}
    return [
        DoomedFile(base, kind, sizes[name])
        for base, _ in plan.doomed
        for kind in _KINDS
        if (name := segment_file_name(base, kind)) in sizes
    ]


def leftover_files(log: Log, plan: RetentionPlan) -> list[tuple[str, int]]:
    """Names and sizes of what belongs to no segment any more, as a broker or a job leaves it that ends too soon.

    These are `.deleted` files, and indexes and snapshots before the first segment that stays. A broker that starts
    deletes them.
    """
    doomed = {base for base, _ in plan.doomed}
    kept = [segment.base_offset for segment in log.segments if segment.base_offset not in doomed]
    first = min(kept, default=plan.start_offset)
    named = [(entry, parse_segment_file(entry.name)) for entry in log.store.list(log.directory)]
    orphans = {name for _, name in named if name and name.state is FileState.LIVE and name.base_offset < first}
    orphans = {name for name in orphans if name.base_offset not in doomed}
    return [
        (entry.name, entry.size)
        for entry, name in named
        if name is not None and (name.state is FileState.DELETED or name in orphans)
    ]


def apply_retention(log: Log, plan: RetentionPlan, session: WriteSession, *, now_ms: int) -> None:
    """Do what a plan says; the session is that of the log, which was listed while it was held.

    Raises:
        IndexFileError: A checkpoint file is malformed; nothing was changed then.
        StorageError: A change failed. Every record that the plan keeps is still there, and the plan can be made anew.
    """
    directory = Path(log.directory)
    starts = read_checkpoint(LocalStore(), str(directory.parent), CheckpointKind.LOG_START) or {}
    epochs = read_leader_epochs(LocalStore(), str(directory))
    files = doomed_files(log, plan)
    leftovers = [name for name, _ in leftover_files(log, plan)]
    producers = log.producers() if plan.new_base_offset is not None else []
    session.begin_changes()
    if plan.new_base_offset is not None:
        _make_empty_segment(directory, plan.new_base_offset, producers, now_ms)
    if plan.doomed:
        move_start(directory, session, epochs, plan.start_offset)
    for file in files:
        durable.rename(_path(directory, file, FileState.LIVE), _path(directory, file, FileState.DELETED))
    durable.fsync_dir(directory)
    for name in dict.fromkeys([_path(directory, file, FileState.DELETED).name for file in files] + leftovers):
        durable.unlink(directory / name)
    durable.fsync_dir(directory)
    log.refresh()
    is_listed = bool(plan.doomed) or session.tp in starts
    # for a broker that starts, a snapshot at a start that was listed is none: it shall not count from now on
    was_start = bool(plan.doomed) and starts.get(session.tp) == plan.start_offset
    named = log.segments[0].base_offset if log.segments else None
    if is_listed and not was_start and named == plan.start_offset:  # a broker lists only what names do not tell
        update_checkpoint(str(directory.parent), CheckpointKind.LOG_START, {session.tp: None})


def _make_empty_segment(directory: Path, base_offset: int, producers: list[ProducerEntry], now_ms: int) -> None:
    """Roll: the producers' state first, then a segment to append to."""
    durable.publish(directory / segment_file_name(base_offset, FileKind.SNAPSHOT), format_snapshot(producers))
    segment = ActiveSegment.create(directory, base_offset, LogConfig(), now_ms=now_ms)
    try:
        segment.seal(TxnIndex.parse(b""))
    finally:
        segment.close()


def move_start(directory: Path, session: WriteSession, epochs: LeaderEpochs | None, start_offset: int) -> None:
    """Move the log start up, durably: in its checkpoint, and in the leader epochs."""
    update_checkpoint(str(directory.parent), CheckpointKind.LOG_START, {session.tp: start_offset})
    if epochs is not None and (moved := epochs.truncate_from_start(start_offset)) != epochs:
        write_leader_epochs(str(directory), moved)


def _path(directory: Path, file: DoomedFile, state: FileState) -> Path:
    return directory / segment_file_name(file.base_offset, file.kind, state)
