"""Which directories stand for which partition, among the paths and by the topics that a reader asks for.

A path is a log directory, a tree of them, a folder of one topic's partitions, or a partition. Several paths are the
log directories of several brokers; a partition that is in more than one is read once, from the replica that knows most:

| compared, in this order | what wins                                                                               |
|-------------------------|-----------------------------------------------------------------------------------------|
| topic id                | the id that `__cluster_metadata` names; two ids and no metadata log that tells: an error |
| leader epoch            | the newest                                                                              |
| end offset              | the highest                                                                             |
| place in the paths      | the first                                                                               |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kseg.errors import LogError, OptionError, StorageError
from kseg.internal.decode import INTERNAL_TOPICS
from kseg.log.logdir import LogDir
from kseg.log.metadata_log import read_image
from kseg.log.names import METADATA_TOPIC, FileKind, FileState, parse_partition_dir, parse_segment_file
from kseg.log.partition import Log
from kseg.log.walk import ReadOptions
from kseg.option_values import format_partitions
from kseg.options import SourceOptions, compile_topic_pattern
from kseg.storage import Entry, Store, open_store
from kseg.types import TopicPartition

Path = str | os.PathLike[str]
StoreOpener = Callable[[Path], tuple[Store, str]]
Wanted = Callable[[TopicPartition], bool]

LIST_HINT: Final = "'kseg ls' lists what there is"

# What Kafka itself calls internal and leaves out of lists: no pattern reaches these.
_UNLISTED: Final = INTERNAL_TOPICS - {"__remote_log_metadata"}


def partition_of(log: Log) -> TopicPartition:
    """The partition that a log is of."""
    return TopicPartition(log.topic, log.partition)


def select_logs(paths: Sequence[Path], options: SourceOptions, open_path: StoreOpener | None = None) -> list[Log]:
    """Find the logs to read, one for each partition, by topic and partition.

    With `subscribe` and `assign` any topic may be named, internal ones too. A pattern passes over what Kafka calls
    internal, and may find nothing. With none of the three every topic that is there is read, except the internal ones,
    unless a path is itself the directory of such a partition.

    Args:
        open_path: Chooses the store for a path; that of tiers is `kseg.tiering.reading.store_opener`.

    Raises:
        LogError: A topic or partition that is named is not there, nothing is there at all, or two incarnations of a
            topic are and nothing says which one is current.
        StorageError: A directory that may hold wanted partitions cannot be read.
    """
    wanted = _wanted(options)
    found = _find(paths, _read_options(options), wanted, open_path)
    if options.subscribe is None and options.subscribe_pattern is None and options.assign is None:
        given = {open_store(path)[1].rstrip("/") for path in paths}
        chosen = [log for log in found if log.topic not in INTERNAL_TOPICS or log.directory in given]
        if not chosen:
            raise LogError("no partitions to read here", path=_shown(paths), hint=LIST_HINT)
    else:
        chosen = [log for log in found if wanted(partition_of(log))]
        _check_all_there(chosen, paths, options)
    return choose_replicas(chosen, [log for log in found if log.topic == METADATA_TOPIC])


def find_logs(paths: Sequence[Path], options: SourceOptions, open_path: StoreOpener | None = None) -> list[Log]:
    """Find every log below the paths: internal topics too, and of a partition all replicas.

    Raises:
        StorageError: A directory cannot be read.
    """
    return _find(paths, _read_options(options), lambda tp: True, open_path)


def find_internal_logs(topic: str, paths: Sequence[Path], logs: Iterable[Log]) -> list[Log]:
    """Find the partitions of an internal topic in paths, and in the log directories that logs are in."""

    def wanted(tp: TopicPartition) -> bool:
        return tp.topic == topic

    logs = list(logs)
    read_options = logs[0].options if logs else ReadOptions()
    found = _find(paths, read_options, wanted) if paths else []
    around = {(type(log.store), log.directory.rpartition("/")[0]): log for log in logs}
    for (_, parent), log in around.items():
        if parent:
            found += _find_beside(log, parent, wanted)
    matching = [log for log in _each_once(found) if log.topic == topic]
    return choose_replicas(matching, [log for log in found if log.topic == METADATA_TOPIC])


def choose_replicas(logs: Sequence[Log], metadata: Sequence[Log] = ()) -> list[Log]:
    """Take one log for each partition, by the table at the head of this module.

    Args:
        metadata: Logs of `__cluster_metadata`, asked where a topic has two ids.
    """
    by_topic: dict[str, list[Log]] = {}
    for log in logs:
        by_topic.setdefault(log.topic, []).append(log)
    current: dict[str, str] | None = None
    chosen = []
    for topic in sorted(by_topic):
        same_name = by_topic[topic]
        # of one log nothing is compared: its id is not even read
        ids = {log.topic_id for log in same_name if log.topic_id} if len(same_name) > 1 else set()
        if len(ids) > 1:
            current = _current_ids(metadata) if current is None else current
            same_name = _of_incarnation(topic, same_name, current.get(topic))
        by_partition: dict[int, list[Log]] = {}
        for log in same_name:
            by_partition.setdefault(log.partition, []).append(log)
        chosen += [_best(by_partition[partition]) for partition in sorted(by_partition)]
    return chosen


def _read_options(options: SourceOptions) -> ReadOptions:
    """Who limits what is read spares a broker on the same disk: its pages in the cache are spared too."""
    limit = options.max_read_bytes_per_second
    return ReadOptions(
        max_bytes_per_second=limit, drop_page_cache=limit is not None, skip_damage=options.corrupt != "fail"
    )


def _wanted(options: SourceOptions) -> Wanted:
    if options.assign is not None:
        return options.assign.__contains__
    if options.subscribe is not None:
        topics = frozenset(options.subscribe)
        return lambda tp: tp.topic in topics
    if options.subscribe_pattern is not None:
        pattern = compile_topic_pattern(options.subscribe_pattern)
        return lambda tp: tp.topic not in _UNLISTED and pattern.search(tp.topic) is not None
    return lambda tp: True


def _find(
    paths: Sequence[Path], read_options: ReadOptions, wanted: Wanted, open_path: StoreOpener | None = None
) -> list[Log]:
    """Every partition below the paths, each directory once, in the order of the paths."""
    if isinstance(paths, str | os.PathLike):
        raise OptionError(f"paths is a list of paths, got {os.fspath(paths)!r}")
    if not paths:
        raise OptionError("no path is given; load(path) takes a log directory, a topic's folder or a partition")
    found: list[Log] = []
    for path in paths:
        store, directory = (open_path or open_store)(path)
        directory = directory.rstrip("/") or "/"
        tree = LogDir(store, directory, options=read_options)
        logs = tree.partitions
        for problem in problems_that_matter(tree.problems, wanted):
            raise problem  # nothing is left out silently
        if not logs and any(_is_log_file(entry) for entry in store.list(directory)):
            logs = [Log(store, directory, options=read_options)]  # a partition under a name of its own
        found += logs
    return _each_once(found)


def _is_log_file(entry: Entry) -> bool:
    name = None if entry.is_dir else parse_segment_file(entry.name)
    return name is not None and name.kind is FileKind.LOG and name.state is FileState.LIVE


def _find_beside(log: Log, parent: str, wanted: Wanted) -> list[Log]:
    """The partitions of a log's own log directory that are wanted, and the metadata log; no deeper."""
    names = [entry.name for entry in log.store.list(parent) if entry.is_dir]
    parsed = ((name, parse_partition_dir(name)) for name in names)
    beside = []
    for name, place in parsed:
        if place is None or str(place.topic_partition) != name:
            continue
        if wanted(place.topic_partition) or place.is_cluster_metadata:
            beside += LogDir(log.store, log.store.join(parent, name), options=log.options).partitions
    return beside


def _each_once(logs: Iterable[Log]) -> list[Log]:
    return list({(type(log.store), log.directory): log for log in logs}.values())


def problems_that_matter(problems: Iterable[StorageError], wanted: Wanted) -> Iterator[StorageError]:
    """Directories that cannot be read, and may hold something wanted."""
    for problem in problems:
        place = parse_partition_dir((problem.path or "").rstrip("/").rpartition("/")[2])
        if place is None or wanted(place.topic_partition):
            yield problem


def _check_all_there(chosen: Sequence[Log], paths: Sequence[Path], options: SourceOptions) -> None:
    there = {partition_of(log) for log in chosen}
    if missing := set(options.subscribe or ()) - {tp.topic for tp in there}:
        raise LogError(
            f"subscribed topics that are not here: {', '.join(sorted(missing))}", path=_shown(paths), hint=LIST_HINT
        )
    if lacking := set(options.assign or ()) - there:
        raise LogError(
            f"assigned partitions that are not here: {format_partitions(lacking)}", path=_shown(paths), hint=LIST_HINT
        )


def _shown(paths: Sequence[Path]) -> str:
    return ", ".join(os.fspath(path) for path in paths)


def _current_ids(metadata: Sequence[Log]) -> dict[str, str]:
    topics = read_image(_best(metadata)).topics if metadata else {}
    return {name: topic.topic_id for name, topic in topics.items()}


def _of_incarnation(topic: str, logs: Sequence[Log], current: str | None) -> list[Log]:
    """The logs that are of the current topic id; one without an id counts where its partition has no other."""
    ids = sorted({log.topic_id for log in logs if log.topic_id})
    if current not in ids:
        places = ", ".join(f"{log.directory} ({log.topic_id or 'no id'})" for log in logs)
        raise LogError(
            f"topic {topic} is here in {len(ids)} incarnations, and no __cluster_metadata here tells which is current:"
            f" {places}",
            hint="leave out the paths of the old one, or give the path that holds __cluster_metadata too",
        )
    known = [log for log in logs if log.topic_id == current]
    have = {log.partition for log in known}
    return known + [log for log in logs if log.topic_id is None and log.partition not in have]


def _best(replicas: Sequence[Log]) -> Log:
    if len(replicas) == 1:
        return replicas[0]

    return max(replicas, key=lambda log: (log.latest_epoch, log.end_offset))  # of equals the first
