"""The partitions that a job was asked for, and where their settings come from."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kseg.errors import OptionError, StorageError
from kseg.log.logdir import LogDir, open_dir
from kseg.log.names import METADATA_TOPIC, DirKind, FileKind, PartitionDir, parse_partition_dir, partition_dir_name
from kseg.log.partition import Log
from kseg.settings.source import Place, SettingsSource, named_topic
from kseg.storage import LocalStore, open_store
from kseg.types import TopicPartition

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Selection:
    """Partitions, and the source of their settings.

    Attributes:
        problems: Directories below the path that could not be read.
        is_one: The path is that of one partition.
    """

    logs: tuple[Log, ...]
    source: SettingsSource
    problems: tuple[StorageError, ...] = ()
    is_one: bool = False

    def wants(self, name: PartitionDir) -> bool:
        """Whether a directory of such a name is one of those that were asked for."""
        topics = [topic for topic in self.source.topics or () if is_of(name, topic)] or [name.topic_partition.topic]
        return any(self.source.refuse_topic(topic) is None for topic in topics)

    def unread(self, *, set_aside: bool = False) -> tuple[str, ...]:
        """Directories that cannot be read and may hold what was asked for, and why they cannot be.

        Args:
            set_aside: Those that a broker is deleting, moving, or found to belong to nobody were asked for too.
        """
        found = []
        for problem in self.problems:
            name = parse_partition_dir((problem.path or "").rstrip("/").rpartition("/")[2])
            if name is None or ((set_aside or name.kind is DirKind.CURRENT) and self.wants(name)):
                found.append(str(problem))
        return tuple(found)

    def not_covered(self, logs: Iterable[Place], given: Collection[Place] = ()) -> tuple[str, ...]:
        """Replicas of some partitions that metadata tells of and that were not given: they keep what they have.

        Args:
            given: Copies of partitions that are not among the logs, and were given too.
        """
        found = []
        for log in logs:
            tp = TopicPartition(log.topic, log.partition)
            found += [f"{tp} on broker {node}" for node in self.source.replicas_not_among(tp, (*self.logs, *given))]
        return tuple(dict.fromkeys(found))

    def replicas_unknown(self, logs: Iterable[Place]) -> tuple[str, ...]:
        """Those of some partitions of which no metadata tells who holds replicas."""
        names = dict.fromkeys(TopicPartition(log.topic, log.partition) for log in logs)
        return tuple(str(tp) for tp in names if self.source.replicas_of(tp) is None)


def select_logs(
    path: PathLike,
    topics: Iterable[str] | None,
    settings: Mapping[str, object] | None,
    metadata: PathLike | None,
    server_properties: PathLike | None,
    directory: LogDir | None = None,
    *,
    set_aside: bool = False,
) -> Selection:
    """Find the partitions of `topics` at a path: a log directory, a tree of them, or one partition.

    Args:
        directory: The path, opened already: where a tier is behind it, or it is one.
        set_aside: A topic is there too where a broker has only set its partitions aside.

    Raises:
        OptionError: There are none, or the arguments contradict each other.
    """
    shown = os.fspath(path)
    if isinstance(topics, str):
        raise OptionError(f"topics is a collection of names, got {topics!r}")
    if directory is None:
        if not isinstance(open_store(path)[0], LocalStore):
            raise OptionError(f"this works on local directories, not on {shown!r}")
        directory = open_dir(path)
    aside = [parse_partition_dir(place.rpartition("/")[2]) for place in directory.set_aside if set_aside]
    if not directory.partitions and not aside:
        for problem in directory.problems:
            raise problem
        raise OptionError(f"no partitions in {shown}")
    own = named_topic(directory)
    named = [own] if topics is None and own is not None else topics
    source = SettingsSource(metadata=metadata, server_properties=server_properties, overrides=settings, topics=named)
    logs = tuple(log for log in directory.partitions if source.topics is None or log.topic in source.topics)
    chosen = Selection(logs, source, tuple(directory.problems), own is not None)
    missing = sorted((source.topics or set()) - {log.topic for log in logs})
    missing = [topic for topic in missing if not any(name is not None and is_of(name, topic) for name in aside)]
    if missing:
        for text in chosen.unread(set_aside=set_aside):
            raise StorageError(text)
        raise OptionError(f"no topic {', '.join(missing)} in {shown}", hint="'kseg ls' lists what there is")
    return chosen


def own_metadata(directory: LogDir) -> str | None:
    """What tells of replicas where nothing was given: the metadata log in the directories, or beside one partition."""
    if named_topic(directory) is None:
        return directory.path if any(log.topic == METADATA_TOPIC for log in directory.partitions) else None
    beside = Path(directory.path).absolute().parent / partition_dir_name(TopicPartition(METADATA_TOPIC, 0))
    return str(beside) if any(beside.glob(f"*{FileKind.LOG.value}")) else None


def is_of(name: PartitionDir, topic: str) -> bool:
    """Whether a directory is a topic's; names of those that are being deleted or are stray may have been cut short."""
    found = name.topic_partition.topic
    return found == topic or (name.kind in (DirKind.DELETE, DirKind.STRAY) and topic.startswith(found))
