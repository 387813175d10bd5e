"""Compaction of a log directory, a tree of them, or one partition, on a stopped broker's disk or on a copy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kseg.compaction.config import CleanerConfig
from kseg.compaction.effective import effective_config
from kseg.compaction.partition import Request, compact_partition
from kseg.compaction.report import CompactionReport, PartitionCompaction
from kseg.errors import KsegError, LockedError, OptionError
from kseg.log.lock import DirLock
from kseg.log.logdir import open_dir
from kseg.log.partition import Log
from kseg.progress import SILENT, Progress
from kseg.settings.source import SettingsSource, named_topic
from kseg.settings.values import Refusal
from kseg.storage import LocalStore, open_store

PathLike = str | os.PathLike[str]


def compact(
    path: PathLike,
    *,
    spark: Any = None,
    topics: Iterable[str] | None = None,
    config: CleanerConfig | None = None,
    settings: Mapping[str, object] | None = None,
    metadata: PathLike | None = None,
    server_properties: PathLike | None = None,
    now_ms: int | None = None,
    first_dirty: int | None = None,
    output: PathLike | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> CompactionReport:
    """Run one round of Kafka's cleaner over partitions whose cleanup.policy is compact.

    What cannot be known is refused, and the report says why. Internal topics are touched only where they are named. A
    partition that is damaged is left as it is, and the others go on.

    Args:
        path: A local log directory, a tree of them, or one partition.
        spark: A session to run on; None runs in threads of this process. The result is the same.
        topics: These only; by default all but internal ones, or that of `path` where it is one partition.
        config: All settings in one piece, for the topics that were named.
        settings: Single values by Kafka's names for the topics that were named, instead of `config`.
        metadata: A log directory that holds `__cluster_metadata-0`, or that directory itself.
        server_properties: The configuration file of the broker whose directories these are.
        now_ms: The clock of the round, in milliseconds; by default the system's.
        first_dirty: Where records begin that were not cleaned before, instead of what the checkpoint says; for one
            partition. The dirty ratio does not matter then.
        output: Write compacted copies of the partitions below this directory, and change nothing.
        dry_run: Do all the work but the writing, and report what it would come to.
        workers: Threads; by default one per core.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: An argument is wrong, or there is no partition at `path`.
    """
    began = time.perf_counter()
    if not isinstance(open_store(path)[0], LocalStore):
        raise OptionError(f"compaction works on local directories, not on {os.fspath(path)!r}")
    directory = open_dir(path)
    if not directory.partitions:
        raise OptionError(f"no partitions in {os.fspath(path)}")
    own = named_topic(directory)
    if first_dirty is not None and own is None:
        raise OptionError("first_dirty is for one partition", hint="give the partition's directory")
    named = [own] if topics is None and own is not None else topics
    if config is not None and named is None and config.cleanup_policy is not None:
        raise OptionError("a config was given for no topic", hint="name the topics that it is to hold for")
    source = SettingsSource(metadata=metadata, server_properties=server_properties, overrides=settings, topics=named)
    logs = [log for log in directory.partitions if source.topics is None or log.topic in source.topics]
    if missing := sorted((source.topics or set()) - {log.topic for log in logs}):
        raise OptionError(f"no topic {', '.join(missing)} in {os.fspath(path)}", hint="'kseg ls' lists what there is")
    request = Request(
        int(time.time() * 1000) if now_ms is None else now_ms,
        first_dirty,
        dry_run,
        None if output is None else Path(output),
        spark,
        workers,
        progress,
    )
    with ExitStack() as stack:
        if not dry_run and output is None:
            for parent in sorted({str(Path(log.directory).parent) for log in logs}):
                stack.enter_context(DirLock(parent))
        done = [_compact(log, effective_config(log, source, config, told_where=first_dirty is not None), request)
                for log in logs]  # fmt: skip
    return CompactionReport(tuple(done), time.perf_counter() - began, dry_run)


def _compact(log: Log, config: CleanerConfig | Refusal, request: Request) -> PartitionCompaction:
    if isinstance(config, Refusal):
        return PartitionCompaction(log.topic, log.partition, log.directory, skipped=config.reason)
    try:
        return compact_partition(log, config, request)
    except LockedError:
        raise
    except KsegError as error:
        return PartitionCompaction(log.topic, log.partition, log.directory, error=str(error))
