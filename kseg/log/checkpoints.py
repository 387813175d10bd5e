"""The checkpoint files of a log directory: one file per kind of offset, one line per partition."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

from kseg import durable
from kseg.errors import IndexFileError, KsegError, StorageError
from kseg.index.checkpoint import format_offsets, parse_offsets
from kseg.index.epoch import LeaderEpochs
from kseg.log.files import read_sidecar
from kseg.log.names import LEADER_EPOCH_FILE
from kseg.storage import LocalStore, Store
from kseg.types import TopicPartition

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]
MAX_CHECKPOINT_BYTES = 64 << 20
_guard = threading.Lock()  # partitions of one directory share its files


def _forget_in_child() -> None:
    """Nobody in a forked child is going to give the lock back that another thread held."""
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)


class CheckpointKind(StrEnum):
    """The offsets that a log directory keeps; the value is the file's name."""

    RECOVERY_POINT = "recovery-point-offset-checkpoint"
    LOG_START = "log-start-offset-checkpoint"
    HIGH_WATERMARK = "replication-offset-checkpoint"
    CLEANER = "cleaner-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """All checkpoints of a log directory.

    A partition that is not listed: its recovery point is 0, its log start is that of its first segment, its high
    watermark is not known, and nothing of it was cleaned. A file that cannot be read counts as empty, as it does for
    a broker, and `problems` says why.
    """

    offsets: dict[CheckpointKind, Offsets] = field(default_factory=dict)
    problems: tuple[KsegError, ...] = ()

    def get(self, kind: CheckpointKind, tp: TopicPartition) -> int | None:
        """The offset of a partition, None where the file does not list it."""
        return self.offsets.get(kind, {}).get(tp)

    def told(self) -> Self:
        """Themselves, after a warning for each file that counts as empty: what a reader may see hangs on them."""
        for problem in self.problems:
            logger.warning("%s; it counts as empty, as it does for a broker", problem)
        return self


def read_checkpoint(store: Store, log_dir: str, kind: CheckpointKind) -> Offsets | None:
    """Offsets of one checkpoint file, None where the file is missing.

    Raises:
        IndexFileError: The file is malformed.
    """
    path = store.join(log_dir, kind.value)
    entry = store.stat(path)
    if entry is None:
        return None
    if entry.size > MAX_CHECKPOINT_BYTES:
        raise IndexFileError(f"{entry.size} bytes are too many for a checkpoint", path=path)
    return parse_offsets(store.read(path, MAX_CHECKPOINT_BYTES), path)


def read_checkpoints(store: Store, log_dir: str) -> Checkpoints:
    """Read all checkpoint files that are there."""
    offsets = {}
    problems = []
    for kind in CheckpointKind:
        try:
            found = read_checkpoint(store, log_dir, kind)
        except (IndexFileError, StorageError) as error:
            problems.append(error)
            continue
        if found is not None:
            offsets[kind] = found
    return Checkpoints(offsets, tuple(problems))


def write_checkpoint(log_dir: str, kind: CheckpointKind, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint file, atomically and durably; its lines are sorted: the same offsets are the same bytes."""
    ordered = sorted(offsets, key=lambda tp: (tp.topic, tp.partition))
    durable.publish(Path(log_dir, kind.value), format_offsets({tp: offsets[tp] for tp in ordered}))


def update_checkpoint(
    log_dir: str, kind: CheckpointKind, changes: Mapping[TopicPartition, int | None], *, replace_malformed: bool = False
) -> None:
    """Set the offsets of some partitions, or with None take them out; the others stay as they are.

    Args:
        replace_malformed: Take a malformed file for an empty one, as everybody who reads it does.

    Raises:
        IndexFileError: The file is malformed: writing it anew would lose the other partitions' offsets.
    """
    with _guard:
        try:
            offsets = read_checkpoint(LocalStore(), log_dir, kind)
        except IndexFileError:
            if not replace_malformed:
                raise
            offsets = None
        merged = dict(offsets or {})
        for tp, offset in changes.items():
            if offset is None:
                merged.pop(tp, None)
            else:
                merged[tp] = offset
        if offsets is None or merged != offsets:
            write_checkpoint(log_dir, kind, merged)


def drop_from_checkpoints(log_dir: str, tp: TopicPartition) -> None:
    """Take a partition out of all checkpoint files; one that lists no other is deleted."""
    with _guard:
        for kind, offsets in read_checkpoints(LocalStore(), log_dir).offsets.items():
            left = {other: offset for other, offset in offsets.items() if other != tp}
            if not left and offsets:
                durable.unlink(Path(log_dir, kind.value))
            elif left != offsets:
                write_checkpoint(log_dir, kind, left)


def read_leader_epochs(store: Store, directory: str) -> LeaderEpochs | None:
    """The leader-epoch-checkpoint of a partition directory, None where there is none.

    Raises:
        IndexFileError: The file is malformed.
    """
    path = store.join(directory, LEADER_EPOCH_FILE)
    return None if store.stat(path) is None else LeaderEpochs.parse(read_sidecar(store, path), path)


def write_leader_epochs(directory: str, epochs: LeaderEpochs) -> None:
    """Replace the leader-epoch-checkpoint of a partition directory, atomically and durably."""
    durable.publish(Path(directory, LEADER_EPOCH_FILE), epochs.to_bytes())
