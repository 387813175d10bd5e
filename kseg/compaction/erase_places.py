"""Everywhere on a disk where a topic's records may still be: its partitions, what was set aside, what was given up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from kseg import durable
from kseg.compaction.eraser import count_matches
from kseg.compaction.matching import Search
from kseg.errors import KsegError, OptionError, StorageError
from kseg.log.logdir import LogDir
from kseg.log.names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    SIDE_DIR,
    DirKind,
    FileKind,
    FileState,
    SegmentFile,
    parse_partition_dir,
    parse_segment_file,
)
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.settings.select import Selection
from kseg.settings.source import Place, named_topic
from kseg.settings.values import Refusal
from kseg.storage import Entry, LocalStore, Store
from kseg.types import TopicPartition

_SMALL_FILES: Final = (PARTITION_METADATA_FILE, LEADER_EPOCH_FILE)


class BareFolder(NamedTuple):
    """The folder of a partition, or one that was set aside, in which there is no segment."""

    topic: str
    partition: int
    directory: str
    is_current: bool
    store: Store = LocalStore()


@dataclass(frozen=True, slots=True)
class Places:
    """Where an erasure may change something.

    Attributes:
        aside: Folders that a broker is deleting, moving, or found to belong to nobody.
        not_covered: Replicas of all these that metadata tells of and that were not given.
        refusals: What is left alone, and why.
    """

    logs: tuple[Log, ...] = ()
    aside: tuple[Log, ...] = ()
    bare: tuple[BareFolder, ...] = ()
    not_covered: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def everything(self) -> tuple[Log | BareFolder, ...]:
        """All folders."""
        return (*self.logs, *self.aside, *self.bare)


def find_places(directory: LogDir, chosen: Selection, *, this_replica_only: bool) -> Places:
    """Look for them; a partition of which other brokers hold replicas is left alone, and so is what is set aside of it.

    Args:
        this_replica_only: It is not.
    """
    aside = set_aside_logs(directory, chosen)
    is_one = named_topic(directory) is not None
    bare = bare_folders((*chosen.logs, *aside), chosen, directory.partitions[0].partition if is_one else None)
    current = [folder for folder in bare if folder.is_current]
    given: list[Place] = [*chosen.logs, *current]
    refusals: list[str] = []

    def passes(refusal: Refusal | None) -> bool:
        if refusal is not None and not refusal.is_usual:
            refusals.append(str(refusal))
        return refusal is None

    source = chosen.source

    def may_change(place: Place) -> bool:
        tp = TopicPartition(place.topic, place.partition)
        replicas = source.check_replicas(tp, given, this_replica_only=this_replica_only)
        return passes(source.refuse_cluster(place) or replicas)  # what is set aside may be of an earlier topic

    logs = [log for log in chosen.logs if passes(source.refuse_topic(log.topic) or source.refuse_other(log))]
    found = Places(tuple(filter(may_change, logs)), tuple(filter(may_change, aside)), tuple(filter(may_change, bare)))
    not_covered = chosen.not_covered(found.everything, current)
    return replace(found, not_covered=not_covered, refusals=tuple(dict.fromkeys(refusals)))


def set_aside_logs(directory: LogDir, chosen: Selection) -> list[Log]:
    """Folders of the topics that a broker is deleting, moving, or found to belong to nobody.

    Those of one partition lie beside it.
    """
    paths = directory.set_aside
    if named_topic(directory) is not None:
        paths = list(_set_aside_beside(directory.partitions[0]))
    return [Log(LocalStore(), path) for path in paths if _is_wanted(path, chosen)]


def _is_wanted(path: str, chosen: Selection) -> bool:
    name = parse_partition_dir(path.rpartition("/")[2])
    return name is not None and chosen.wants(name)


def _set_aside_beside(log: Log) -> Iterator[str]:
    parent = str(Path(log.directory).absolute().parent)
    for entry in LocalStore().list(parent):
        name = parse_partition_dir(entry.name) if entry.is_dir else None
        if name is not None and name.topic_partition.partition == log.partition:
            yield from LogDir(LocalStore(), f"{parent}/{entry.name}").set_aside


def bare_folders(logs: Sequence[Log], chosen: Selection, partition: int | None) -> list[BareFolder]:
    """Directories beside some logs, of what was asked for, that have no segments but what was given up or set aside.

    Args:
        partition: Those of this one only, where one partition was asked for.
    """
    known = {Path(log.directory).absolute() for log in logs}
    found = []
    for parent in sorted({path.parent for path in known}):
        for entry in LocalStore().list(str(parent)):
            name = parse_partition_dir(entry.name) if entry.is_dir else None
            path = parent / entry.name
            if name is None or path in known or not chosen.wants(name):
                continue
            if partition not in (None, name.topic_partition.partition):
                continue
            with contextlib.suppress(StorageError):  # what cannot be read was told when partitions were looked for
                if (path / SIDE_DIR).is_dir() or given_up_files(path):
                    tp, is_current = name.topic_partition, name.kind is DirKind.CURRENT
                    found.append(BareFolder(tp.topic, tp.partition, str(path), is_current))
    return found


def given_up_files(directory: Path) -> list[Path]:
    """Files of a partition that nothing reads any more, and no broker would: what was deleted, what no run finished."""
    entries = [entry for entry in LocalStore().list(str(directory)) if not entry.is_dir]
    named = [(directory / entry.name, name) for entry in entries if (name := parse_segment_file(entry.name))]
    cleaned = [name.base_offset for _, name in named if name.state is FileState.CLEANED]

    def is_given_up(name: SegmentFile) -> bool:
        is_void = bool(cleaned) and name.state is FileState.SWAP and name.base_offset >= min(cleaned)
        return is_void or name.state in (FileState.DELETED, FileState.CLEANED)

    return [path for path, name in named if is_given_up(name)]


def foreign_files(directory: Path) -> list[str]:
    """What lies in a partition's directory and is no part of a log: nobody knows what is in it."""
    names = [entry.name for entry in LocalStore().list(str(directory)) if entry.is_dir or entry.size]
    own = {SIDE_DIR, *_SMALL_FILES, *(name + durable.TEMPORARY_SUFFIX for name in _SMALL_FILES)}
    return [str(directory / name) for name in names if name not in own and parse_segment_file(name) is None]


def quarantine_folders(directory: Path) -> Iterator[Path]:
    """Folders with log files in a partition's hidden folder: what repairs have taken away."""
    side = directory / SIDE_DIR
    if side.is_dir():
        holders = {path.parent for path in side.rglob("*") if path.is_file() and FileKind.LOG.value in path.name}
        yield from sorted(holders)


def may_hold(folder: Path, search: Search) -> bool:
    """Whether a folder of loose log files holds records that are meant, or cannot be read to the end.

    Raises:
        OptionError: The caller's predicate failed: nothing is known of the records then.
    """
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
        except OptionError:
            raise
        except KsegError:
            return True
    return False


def delete_folder(folder: Path, top: Path) -> None:
    """Delete a folder and all files in it, durably, and the folders around it, below `top`, that are empty then."""
    for path in sorted(folder.rglob("*"), reverse=True):
        durable.remove_dir(path) if path.is_dir() else durable.unlink(path)
    while folder != top and not any(folder.iterdir()):
        durable.remove_dir(folder)
        folder = folder.parent
    durable.fsync_dir(folder)
