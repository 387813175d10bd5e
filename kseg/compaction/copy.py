"""A compacted copy of a partition in another directory: what the round does not touch is copied as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from kseg import durable
from kseg.compaction.policy import CleanableRange
from kseg.errors import OptionError
from kseg.log.checkpoints import CheckpointKind, update_checkpoint
from kseg.log.lock import DirLock
from kseg.log.names import (
    LEADER_EPOCH_FILE,
    LOCK_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    FileState,
    parse_partition_dir,
    parse_segment_file,
)
from kseg.log.partition import Log
from kseg.os_errors import storage_errors
from kseg.types import TopicPartition

COPY_BYTES: Final = 4 << 20


@contextmanager
def copy_partition(log: Log, output: Path, cleanable: CleanableRange) -> Iterator[Path]:
    """Make the partition's directory below `output`, with what lies behind the round; its checkpoints come at the end.

    Raises:
        OptionError: It is there already, or inside of what is copied or of another log.
        LockedError: A broker or another job holds `output`.
    """
    first_uncleanable = cleanable.first_uncleanable
    target = output / f"{log.topic}-{log.partition}"
    check_output(log, output)
    with ExitStack() as stack:
        if (output / LOCK_FILE).exists():  # somebody's log directory, and maybe in use
            stack.enter_context(DirLock(output))
        _make_dirs(output)
        durable.make_dir(target)
        try:
            _copy_files(log, target, first_uncleanable)
            yield target
            _copy_checkpoints(log, target, first_uncleanable)
        except BaseException:
            for path in target.iterdir():
                durable.unlink(path, missing_ok=True)
            durable.remove_dir(target)
            raise


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
    place, target = output.resolve(), output / f"{log.topic}-{log.partition}"
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


def _copy_checkpoints(log: Log, target: Path, first_uncleanable: int) -> None:
    """Write the partition's checkpoints beside its copy: all that the log's own directory has, and the cleaner's."""
    tp = TopicPartition(log.topic, log.partition)
    for kind in CheckpointKind:
        offset = first_uncleanable if kind is CheckpointKind.CLEANER else log.checkpoints.get(kind, tp)
        if offset is not None:
            update_checkpoint(str(target.parent), kind, {tp: offset})
    durable.fsync_dir(target.parent)
