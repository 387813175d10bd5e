"""Everywhere on a disk where a topic's records may still be: its partitions, what was set aside, what was given up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kseg import durable
from kseg.compaction.eraser import count_matches
from kseg.compaction.matching import Search
from kseg.errors import KsegError
from kseg.log.logdir import LogDir
from kseg.log.names import SIDE_DIR, DirKind, FileKind, FileState, parse_partition_dir, parse_segment_file
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.storage import Entry, LocalStore


def set_aside_logs(directory: LogDir, topics: frozenset[str] | None) -> list[Log]:
    """Folders of the topics that a broker is deleting, moving, or found to belong to nobody.

    Their names may have been cut short: a name that a topic's begins with counts.
    """
    logs = []
    for path in directory.set_aside:
        name = parse_partition_dir(path.rpartition("/")[2])
        if name is None:
            continue
        topic, cut = name.topic_partition.topic, name.kind in (DirKind.DELETE, DirKind.STRAY)
        if topics is None or topic in topics or (cut and any(wanted.startswith(topic) for wanted in topics)):
            logs.append(Log(LocalStore(), path))
    return logs


def given_up_files(directory: Path) -> list[Path]:
    """Files of a partition that nothing reads any more."""
    found = []
    for entry in LocalStore().list(str(directory)):
        name = parse_segment_file(entry.name)
        if name is not None and name.state is FileState.DELETED:
            found.append(directory / entry.name)
    return found


def quarantine_folders(directory: Path) -> Iterator[Path]:
    """Folders with log files in a partition's hidden folder: what repairs have taken away."""
    side = directory / SIDE_DIR
    if side.is_dir():
        holders = {path.parent for path in side.rglob("*") if path.is_file() and FileKind.LOG.value in path.name}
        yield from sorted(holders)


def may_hold(folder: Path, search: Search) -> bool:
    """Whether a folder of loose log files holds records that are meant, or cannot be read to the end."""
    for path in sorted(folder.iterdir()):
        if not path.is_file() or FileKind.LOG.value not in path.name:
            continue
        status = path.stat()
        number = path.name.partition(".")[0]
        base = int(number) if number.isdecimal() else 0
        entry = Entry(path.name, status.st_size, status.st_mtime_ns // 1_000_000, False)
        try:
            if count_matches(Segment(LocalStore(), str(folder), base, {FileKind.LOG: entry}), search):
                return True
        except KsegError:
            return True
    return False


def delete_folder(folder: Path) -> None:
    """Delete a folder and all files in it, durably."""
    for path in sorted(folder.rglob("*"), reverse=True):
        durable.remove_dir(path) if path.is_dir() else durable.unlink(path)
    durable.remove_dir(folder)
    durable.fsync_dir(folder.parent)
