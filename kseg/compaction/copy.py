"""A compacted copy of a partition in another directory: what the round does not touch is copied as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np

from kseg import durable
from kseg.errors import OptionError, StorageError
from kseg.log.checkpoints import CheckpointKind, update_checkpoint
from kseg.log.names import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, FileState, parse_segment_file
from kseg.log.partition import Log
from kseg.os_errors import storage_errors
from kseg.types import TopicPartition

COPY_BYTES: Final = 4 << 20


def copy_partition(log: Log, output: Path, first_uncleanable: int) -> Path:
    """Make the partition's directory below `output` and copy what lies behind the round into it.

    Raises:
        OptionError: It is there already.
    """
    target = output / f"{log.topic}-{log.partition}"
    if target.exists():
        raise OptionError(f"{target} is there already", hint="choose another directory")
    _make_dirs(output)
    durable.make_dir(target)
    for entry in log.store.list(log.directory):
        name = parse_segment_file(entry.name)
        is_live = name is not None and name.state is FileState.LIVE and name.base_offset >= first_uncleanable
        if is_live or entry.name in (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE):
            copy_file(Path(log.directory, entry.name), target / entry.name)
    durable.fsync_dir(target)
    return target


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


def put_in_copy(log: Log, target: Path, first_uncleanable: int) -> None:
    """Write the partition's checkpoints beside its copy: all that the log's own directory has, and the cleaner's."""
    tp = TopicPartition(log.topic, log.partition)
    for kind in CheckpointKind:
        offset = first_uncleanable if kind is CheckpointKind.CLEANER else log.checkpoints.get(kind, tp)
        if offset is not None:
            update_checkpoint(str(target.parent), kind, {tp: offset})
    try:
        durable.fsync_dir(target.parent)
    except StorageError as error:
        raise error.with_context(path=str(target.parent)) from None
