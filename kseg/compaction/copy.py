"""A compacted copy of a partition in another directory: what the round does not touch is copied as it is.

Until all of it is on disk, the copy has the name of a partition that a broker is deleting, which nobody takes for a
log: `orders-0.6b736567<24 hex digits>-delete`. What a run that died has left so goes with the next run, or with the
start of a broker.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import numpy as np

from kseg import durable
from kseg.compaction.policy import CleanableRange
from kseg.errors import OptionError, StorageError
from kseg.log.checkpoints import CheckpointKind, drop_from_checkpoints, update_checkpoint
from kseg.log.lock import DirLock
from kseg.log.names import (
    LEADER_EPOCH_FILE,
    LOCK_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    DirKind,
    FileState,
    parse_partition_dir,
    parse_segment_file,
    partition_dir_name,
)
from kseg.log.partition import Log
from kseg.os_errors import storage_errors
from kseg.types import TopicPartition

COPY_BYTES: Final = 4 << 20
OWN_ID: Final = b"kseg".hex()  # what the ids of unfinished copies begin with


@contextmanager
def copy_partition(log: Log, output: Path, cleanable: CleanableRange) -> Iterator[Path]:
    """Give a directory below `output` with what lies behind the round, which gets the partition's name at the end.

    After a failure nothing of it is left.

    Raises:
        OptionError: The copy is there already, or inside of what is copied or of another log.
        LockedError: A broker or another job holds `output`.
    """
    tp = TopicPartition(log.topic, log.partition)
    target = output / partition_dir_name(tp)
    check_output(log, output)
    with ExitStack() as stack:
        if (output / LOCK_FILE).exists():  # somebody's log directory, and maybe in use
            stack.enter_context(DirLock(output))
        _make_dirs(output)
        _remove_unfinished(output, tp)
        unfinished = output / _unfinished_name(tp, uuid.uuid4().hex[len(OWN_ID) :])
        is_named = False
        try:
            durable.make_dir(unfinished)
            stack.enter_context(_in_use(unfinished))
            _copy_files(log, unfinished, cleanable.first_uncleanable)
            yield unfinished
            durable.fsync_dir(unfinished)
            _copy_checkpoints(log, output, cleanable.first_uncleanable)
            durable.rename(unfinished, target)
            is_named = True
            durable.fsync_dir(output)
        except BaseException:
            with suppress(StorageError):  # what failed before is what counts
                if is_named:  # but a crash could take the name away again
                    durable.rename(target, unfinished)
                _take_back(unfinished, target, tp)
            raise


def _unfinished_name(tp: TopicPartition, number: str) -> str:
    return partition_dir_name(tp, DirKind.DELETE, OWN_ID + number)


def _take_back(unfinished: Path, target: Path, tp: TopicPartition) -> None:
    if unfinished.exists():
        durable.remove_tree(unfinished)
    if not target.exists():  # that of another job
        drop_from_checkpoints(str(target.parent), tp)


@contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Tell other runs that this one is alive; where the file system has no such lock, they leave all folders alone."""
    with storage_errors(folder):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def _remove_unfinished(output: Path, tp: TopicPartition) -> None:
    """Remove copies of a partition that nobody makes any more; those that cannot be removed are in nobody's way."""
    begin, _, end = _unfinished_name(tp, "0" * (32 - len(OWN_ID))).rpartition(OWN_ID)
    for folder in output.glob(f"{begin}{OWN_ID}*{end.lstrip('0')}"):
        with suppress(OSError):  # another job is making it
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                durable.remove_tree(folder)
            finally:
                os.close(fd)


def check_outputs(logs: Sequence[Log], output: Path) -> None:
    """Check the places of all copies before the first one is made.

    Raises:
        OptionError: One cannot be there, or two would be in one place: those of one partition from two brokers.
    """
    sources: dict[TopicPartition, str] = {}
    for log in logs:
        check_output(log, output)
        other = sources.setdefault(TopicPartition(log.topic, log.partition), log.directory)
        if other != log.directory:
            raise OptionError(
                f"two partitions would be copied to {output / f'{log.topic}-{log.partition}'}: {other} and "
                f"{log.directory}",
                hint="copy one broker's log directories at a time",
            )


def check_output(log: Log, output: Path) -> None:
    """Refuse a place that is taken, or in the way of a broker, which does not start on a folder that is no partition's.

    Raises:
        OptionError: The copy of the log cannot be there.
    """
    with storage_errors(output):
        _check_place(log, output, output.resolve())


def _check_place(log: Log, output: Path, place: Path) -> None:
    target = output / f"{log.topic}-{log.partition}"
    for folder in (place, *place.parents):
        if folder.exists() and not folder.is_dir():
            raise OptionError(f"{folder} is no directory", hint="choose another one")
    if place.is_relative_to(Path(log.directory).resolve()):
        raise OptionError(f"{output} is inside of the partition that is copied", hint="choose another directory")
    for folder in (place, *place.parents):
        if parse_partition_dir(folder.name) is not None and _has_segments(folder):
            raise OptionError(f"{output} is inside of the partition {folder}", hint="choose another directory")
        if folder != place and (folder / META_PROPERTIES_FILE).exists():
            raise OptionError(f"{output} is inside of a broker's log directory", hint="choose another directory")
    if target.exists():
        raise OptionError(f"{target} is there already", hint="choose another directory")


def _has_segments(folder: Path) -> bool:
    return folder.is_dir() and any(parse_segment_file(path.name) is not None for path in folder.iterdir())


def _copy_files(log: Log, target: Path, first_uncleanable: int) -> None:
    for entry in log.store.list(log.directory):
        name = parse_segment_file(entry.name)
        is_live = name is not None and name.state is FileState.LIVE and name.base_offset >= first_uncleanable
        if is_live or entry.name in (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE):
            copy_file(Path(log.directory, entry.name), target / entry.name)
    durable.fsync_dir(target)


def _make_dirs(path: Path) -> None:
    if not path.exists():
        _make_dirs(path.parent)
        durable.make_dir(path, exist_ok=True)
        durable.fsync_dir(path.parent)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file durably, its time of modification included."""
    buffer = np.empty(COPY_BYTES, np.uint8)
    with storage_errors(source), source.open("rb", buffering=0) as reader:
        status = os.fstat(reader.fileno())
        with durable.closing(durable.create(target), target) as fd:
            while got := reader.readinto(buffer.data):
                durable.write_all(fd, buffer[:got], target)
            durable.fsync_file(fd)
    durable.set_mtime_ms(target, status.st_mtime_ns // 1_000_000)


def _copy_checkpoints(log: Log, output: Path, first_uncleanable: int) -> None:
    """Write the partition's checkpoints beside its copy: all that the log's own directory has, and the cleaner's."""
    tp = TopicPartition(log.topic, log.partition)
    for kind in CheckpointKind:
        offset = first_uncleanable if kind is CheckpointKind.CLEANER else log.checkpoints.get(kind, tp)
        if offset is not None:
            update_checkpoint(str(output), kind, {tp: offset})
