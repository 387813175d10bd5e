"""A log directory: one entry of a broker's log.dirs, a backup of it, or a tree that holds such directories."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

from kseg.errors import LogError, OptionError, StorageError
from kseg.log.checkpoints import CheckpointKind, Checkpoints, read_checkpoints
from kseg.log.files import has_segments, is_bare
from kseg.log.metadata import MetaProperties, read_meta_properties
from kseg.log.names import IGNORED_DIRS, META_PROPERTIES_FILE, DirKind, PartitionDir, parse_partition_dir
from kseg.log.partition import Log, read_options
from kseg.log.walk import ReadOptions
from kseg.storage import Entry, LocalStore, RateLimiter, Store, open_store
from kseg.types import TopicPartition

MAX_DEPTH = 4  # of a tree of log directories
_LOG_DIR_FILES = frozenset({META_PROPERTIES_FILE, *(kind.value for kind in CheckpointKind)})


class LogDir:
    """A directory of partitions, opened for reading.

    `partitions` are the logs themselves, by topic and partition; `set_aside` names the directories that a broker
    keeps apart (`-delete`, `-stray`, `-future`); `problems` are directories that could not be read.
    """

    def __init__(self, store: Store, path: str, *, options: ReadOptions | None = None) -> None:
        self.store = store
        self.path = path
        self._options = options or ReadOptions()
        self._limiter = RateLimiter(self._options.max_bytes_per_second)  # one for all partitions: they share a disk
        self.problems: list[StorageError] = []

    def __repr__(self) -> str:
        known = self.__dict__.get("partitions")  # to show a directory reads no files, and never fails
        return f"LogDir({self.path!r}{'' if known is None else f', {len(known)} partitions'})"

    @functools.cached_property
    def _found(self) -> list[tuple[PartitionDir, str]]:
        own = parse_partition_dir(self.path.rstrip("/").rpartition("/")[2])
        if own is not None and _is_partition(self.store, self.path, self.store.list(self.path)):
            return [(own, self.path)]
        found = list(_find_partitions(self.store, self.path, MAX_DEPTH, self.problems, set()))
        once: dict[tuple[PartitionDir, str], str] = {}
        for name, path in sorted(
            found, key=lambda item: _is_link(self.store, item[1])
        ):  # links behind what they are to
            once.setdefault((name, _real_path(self.store, path)), path)
        places = [(name, path) for (name, _), path in once.items()]
        return sorted(places, key=lambda item: (item[0].topic_partition, item[1]))

    @functools.cached_property
    def partitions(self) -> list[Log]:
        """The partitions that a broker would serve, by topic and number."""
        logs = []
        checkpoints: dict[str, Checkpoints] = {}  # of each log directory of a tree, read once
        for name, path in self._found:
            if name.kind is DirKind.CURRENT:
                parent = path.rpartition("/")[0]
                if parent not in checkpoints:
                    checkpoints[parent] = read_checkpoints(self.store, parent).told()
                try:
                    logs.append(self._open(path, checkpoints[parent]))
                except StorageError as error:  # it is gone since it was found, or may not be read
                    if path == self.path:
                        raise
                    self.problems.append(error)
        return logs

    def _open(self, path: str, checkpoints: Checkpoints) -> Log:
        return Log(self.store, path, options=self._options, checkpoints=checkpoints, limiter=self._limiter)

    @property
    def set_aside(self) -> list[str]:
        """Paths of partition directories that are being deleted, moved, or belong to nobody."""
        return [path for name, path in self._found if name.kind is not DirKind.CURRENT]

    def __iter__(self) -> Iterator[Log]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    def __contains__(self, key: object) -> bool:
        wanted = TopicPartition(*key) if isinstance(key, tuple) and len(key) == 2 else key
        return any(TopicPartition(log.topic, log.partition) == wanted for log in self.partitions)

    def __getitem__(self, key: tuple[str, int] | TopicPartition) -> Log:
        if not isinstance(key, TopicPartition) and not (isinstance(key, tuple) and len(key) == 2):
            raise OptionError(f"a partition is (topic, number), got {key!r}")
        wanted = key if isinstance(key, TopicPartition) else TopicPartition(*key)
        if not hasattr(
            wanted.partition, "__index__"
        ):  # '0' is no partition, and would be told as "orders-0 is not here"
            raise OptionError(f"a partition's number is a whole number, got {wanted.partition!r}")
        matches = [log for log in self.partitions if TopicPartition(log.topic, log.partition) == wanted]
        if len(matches) == 1:
            return matches[0]
        if matches:
            places = ", ".join(log.directory for log in matches)
            raise LogError(f"{wanted} is in more than one directory: {places}", path=self.path)
        raise LogError(f"no partition {wanted} here", path=self.path, hint="'kseg ls' lists what there is")

    @functools.cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoint files of this directory."""
        return read_checkpoints(self.store, self.path)

    @functools.cached_property
    def meta(self) -> MetaProperties | None:
        """meta.properties, None where there is none."""
        return read_meta_properties(self.store, self.path)

    @property
    def cluster_id(self) -> str | None:
        """Whose directory this is, None where nothing says so."""
        return None if self.meta is None else self.meta.cluster_id


def _find_partitions(
    store: Store, path: str, depth: int, problems: list[StorageError], walked: set[str]
) -> Iterator[tuple[PartitionDir, str]]:
    """Partitions below a directory; `walked` keeps from going through one twice: symbolic links may make a loop."""
    if (real := _real_path(store, path)) in walked:
        return
    walked.add(real)
    names = [entry.name for entry in store.list(path) if entry.is_dir and entry.name not in IGNORED_DIRS]
    children = [store.join(path, name) for name in names if not name.startswith(".")]
    for child in sorted(children, key=lambda child: _is_link(store, child)):  # links behind what they are to
        name = parse_partition_dir(child.rpartition("/")[2])
        try:
            if name is not None and _is_partition(store, child, store.list(child)):
                yield name, child
            elif depth > 1:
                yield from _find_partitions(store, child, depth - 1, problems, walked)
        except StorageError as error:  # one directory that may not be read does not hide the others
            problems.append(error)


def _is_partition(store: Store, path: str, entries: list[Entry]) -> bool:
    """Whether a directory with a partition's name is one; an empty one is if it is in a log directory.

    Elsewhere it may be anything: `kafka-1`, on which no disk is mounted.
    """
    if has_segments(entries):
        return True
    return is_bare(entries) and (bool(entries) or _is_log_dir(store, path.rstrip("/").rpartition("/")[0]))


def _is_log_dir(store: Store, path: str) -> bool:
    """Whether a directory has a broker's files, or partitions, in it."""
    try:
        entries = store.list(path)
        if not _LOG_DIR_FILES.isdisjoint(entry.name for entry in entries):
            return True
        names = [entry.name for entry in entries if entry.is_dir and parse_partition_dir(entry.name) is not None]
        return any(has_segments(store.list(store.join(path, name))) for name in names)
    except StorageError:  # whoever lists it to read it tells this better
        return False


def _is_local(store: Store) -> bool:
    return isinstance(getattr(store, "local", store), LocalStore)  # a tier may have one behind it


def _is_link(store: Store, path: str) -> bool:
    return _is_local(store) and os.path.islink(path)  # noqa: PTH114


def _real_path(store: Store, path: str) -> str:
    return os.path.realpath(path) if _is_local(store) else path


def open_dir(
    path: str | os.PathLike[str],
    *,
    max_batch_bytes: int | None = None,
    max_bytes_per_second: float | None = None,
    drop_page_cache: bool = False,
) -> LogDir:
    """Open a log directory, a backup of one, or a tree of them, for reading; `kseg.open_dir` knows tiers too."""
    store, directory = open_store(path)
    options = read_options(max_batch_bytes, max_bytes_per_second, drop_page_cache=drop_page_cache)
    return LogDir(store, directory, options=options)
