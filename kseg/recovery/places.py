"""Which partitions a path stands for when something is to be changed there."""

from __future__ import annotations

import os
from pathlib import Path

from kseg.errors import OptionError
from kseg.log.names import DirKind, FileKind, parse_partition_dir, parse_segment_file
from kseg.log.writer_place import partition_path
from kseg.storage import LocalStore, open_store
from kseg.types import TopicPartition


def find_partitions(path: str | os.PathLike[str]) -> list[tuple[Path, TopicPartition]]:
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
    if parse_partition_dir(directory.name) is not None and _has_segment_files(directory):
        return [partition_path(directory)]
    found = []
    for entry in LocalStore().list(str(directory)):
        name = parse_partition_dir(entry.name) if entry.is_dir else None
        if name is not None and name.kind is DirKind.CURRENT and not name.is_cluster_metadata:
            found.append(partition_path(directory / entry.name))
    if not found:
        raise OptionError(f"no partitions in {text}")
    return found


def _has_segment_files(directory: Path) -> bool:
    names = (parse_segment_file(entry.name) for entry in LocalStore().list(str(directory)) if not entry.is_dir)
    return any(name is not None and name.kind is not FileKind.SNAPSHOT for name in names)
