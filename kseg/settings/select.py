"""The partitions that a job was asked for, and where their settings come from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kseg.errors import OptionError
from kseg.log.logdir import LogDir, open_dir
from kseg.log.partition import Log
from kseg.settings.source import SettingsSource, named_topic
from kseg.storage import LocalStore, open_store
from kseg.types import TopicPartition

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Selection:
    """Partitions, and the source of their settings."""

    logs: tuple[Log, ...]
    source: SettingsSource

    def not_covered(self, logs: Iterable[Log]) -> tuple[str, ...]:
        """Replicas of some partitions that metadata tells of and that were not given: they keep what they have."""
        found = []
        for log in logs:
            tp = TopicPartition(log.topic, log.partition)
            found += [f"{tp} on broker {node}" for node in self.source.replicas_not_among(tp, self.logs)]
        return tuple(found)


def select_logs(
    path: PathLike,
    topics: Iterable[str] | None,
    settings: Mapping[str, object] | None,
    metadata: PathLike | None,
    server_properties: PathLike | None,
    first_dirty: int | None = None,
    directory: LogDir | None = None,
) -> Selection:
    """Find the partitions of `topics` at a path: a log directory, a tree of them, or one partition.

    Args:
        directory: The path, opened already: where a tier is behind it, or it is one.

    Raises:
        OptionError: There are none, or the arguments contradict each other.
    """
    shown = os.fspath(path)
    if directory is None:
        if not isinstance(open_store(path)[0], LocalStore):
            raise OptionError(f"this works on local directories, not on {shown!r}")
        directory = open_dir(path)
    if not directory.partitions:
        raise OptionError(f"no partitions in {shown}")
    own = named_topic(directory)
    if first_dirty is not None and own is None:
        raise OptionError("first_dirty is for one partition", hint="give the partition's directory")
    named = [own] if topics is None and own is not None else topics
    source = SettingsSource(metadata=metadata, server_properties=server_properties, overrides=settings, topics=named)
    logs = tuple(log for log in directory.partitions if source.topics is None or log.topic in source.topics)
    if missing := sorted((source.topics or set()) - {log.topic for log in logs}):
        raise OptionError(f"no topic {', '.join(missing)} in {shown}", hint="'kseg ls' lists what there is")
    return Selection(logs, source)
