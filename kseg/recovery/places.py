"""Which partitions a path stands for when something is to be changed there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from kseg.errors import OptionError
from kseg.log.names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    SIDE_DIR,
    DirKind,
    FileKind,
    parse_partition_dir,
    parse_segment_file,
)
from kseg.log.writer_place import partition_path
from kseg.settings.source import SettingsSource
from kseg.storage import LocalStore, Store, open_store
from kseg.types import TopicPartition

Found = tuple[Path, TopicPartition]


class _Place(NamedTuple):
    """A partition that may be too damaged to be opened as a log."""

    topic: str
    partition: int
    directory: str
    store: Store = LocalStore()


def find_partitions(path: str | os.PathLike[str]) -> list[Found]:
    """The partition directory at `path`, or those of the log directory at `path`, by name.

    Directories that are being moved or deleted are left alone, and so is the cluster's metadata log.

    Raises:
        OptionError: It is no local directory, or there is no partition in it.
    """
    text = os.fspath(path)
    if "://" in text and not text.startswith("file://"):
        raise OptionError(f"logs are repaired in a local directory, not at {text!r}")
    directory = Path(open_store(text)[1])
    if not directory.is_dir():
        raise OptionError(f"{text!r} is no directory")
    if parse_partition_dir(directory.name) is not None and _is_partition(directory):
        return [partition_path(directory)]
    found = []
    for entry in LocalStore().list(str(directory)):
        name = parse_partition_dir(entry.name) if entry.is_dir else None
        if name is not None and name.kind is DirKind.CURRENT and not name.is_cluster_metadata:
            found.append(partition_path(directory / entry.name))
    if not found:
        hint = (
            "segments are here, but its name is no partition's, such as orders-0"
            if _has_segment_files(directory)
            else None
        )
        raise OptionError(f"no partitions in {text}", hint=hint)
    return found


def _is_partition(directory: Path) -> bool:
    """Whether a directory of such a name is no log directory, also where all segments are lost or in quarantine."""
    own = {SIDE_DIR, LEADER_EPOCH_FILE, PARTITION_METADATA_FILE}
    return _has_segment_files(directory) or any(entry.name in own for entry in LocalStore().list(str(directory)))


def _has_segment_files(directory: Path) -> bool:
    names = (parse_segment_file(entry.name) for entry in LocalStore().list(str(directory)) if not entry.is_dir)
    return any(name is not None and name.kind is not FileKind.SNAPSHOT for name in names)


def check_replicas(
    metadata: str | os.PathLike[str] | None, found: list[Found], *, this_replica_only: bool
) -> list[str]:
    """Refuse to change one of several replicas unless that is what is wanted: a leader elsewhere overrules it.

    Args:
        metadata: A directory that holds the cluster's metadata log; None: not known, so not asked.

    Returns:
        A note for each partition that has others.

    Raises:
        OptionError: There are other replicas, or no metadata is there.
    """
    if metadata is None:
        return []
    source = SettingsSource(metadata=metadata)
    places = [_Place(tp.topic, tp.partition, str(directory)) for directory, tp in found]
    others = []
    for _, tp in found:
        if missing := source.replicas_not_among(tp, places):
            brokers = ", ".join(str(node) for node in missing)
            others.append(f"{tp} has replicas on brokers {brokers}: a leader elsewhere overrules what is changed here")
    if others and not this_replica_only:
        raise OptionError(others[0], hint="use --this-replica-only to change this one all the same")
    return others
