"""Compaction of a log directory, a tree of them, or one partition, on a stopped broker's disk or on a copy."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kseg.compaction.config import CleanerConfig, Strategy, check_integer, check_means
from kseg.compaction.copy import check_outputs
from kseg.compaction.effective import check_given, effective_config
from kseg.compaction.lanes import Means, lanes_for, run_lanes
from kseg.compaction.partition import Request, compact_partition
from kseg.compaction.policy import check_first_dirty
from kseg.compaction.remote import RemoteOptions, open_access, tier_of, tiered_dir
from kseg.compaction.report import CompactionReport, PartitionCompaction
from kseg.errors import KsegError, LockedError, OptionError
from kseg.log.lock import DirLock
from kseg.log.partition import Log
from kseg.progress import SILENT, Progress
from kseg.runner import spark_failures
from kseg.settings.select import PathLike, select_logs
from kseg.settings.values import Refusal


@spark_failures()
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
    remote: str | None = None,
    archive: bool = False,
    remote_options: RemoteOptions | None = None,
    dry_run: bool = False,
    memory_budget: int | None = None,
    strategy: Strategy | None = None,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> CompactionReport:
    """Run one round of Kafka's cleaner over partitions whose cleanup.policy is compact.

    What cannot be known is refused, and the report says why. Internal topics are touched only where they are named. A
    partition that is damaged is left as it is, and the others go on.

    Args:
        path: A local log directory, a tree of them, or one partition; with `archive`, also a tier alone.
        spark: A session to run on; None runs in threads of this process. The result is the same.
        topics: These only; by default all but internal ones, or that of `path` where it is one partition.
        config: All settings in one piece, for the topics that were named.
        settings: Single values by Kafka's names for the topics that were named, instead of `config`.
        metadata: A log directory that holds `__cluster_metadata-0`, or that directory itself.
        server_properties: The configuration file of the broker whose directories these are.
        now_ms: The clock of the round, in milliseconds; by default the system's.
        first_dirty: Where records begin that were not cleaned before, instead of what the checkpoint says; up to the
            end of the partition, or of each one. The dirty ratio does not matter then.
        output: Write compacted copies of the partitions below this directory, and change nothing. There is none of a
            partition that has nothing to clean.
        remote: A tier that holds older segments of the partitions: the round is over both as one log.
        archive: No cluster knows of the tier, so nobody has to be told of changes there.
        remote_options: Keys of an encrypted tier, the cluster's metadata topic, the grace period and more.
        dry_run: Do all the work but the writing, and report what it would come to.
        memory_budget: Bytes for the map of keys, instead of the config's.
        strategy: Compare keys in `memory` or through files (`spill`), instead of what a sample says.
        workers: Threads; by default one per core.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: An argument is wrong, there is no partition at `path`, or a copy cannot be made at `output`.
        JobError: Spark failed.
    """
    began = time.perf_counter()
    changes = {"memory_budget": memory_budget, "strategy": strategy}
    asked: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    _check_arguments(asked, output)
    check_given(config, settings)
    check_means(spark, workers)
    now_ms = None if now_ms is None else check_integer("now_ms", now_ms, 0)
    first_dirty = None if first_dirty is None else check_integer("first_dirty", first_dirty, 0)
    uri, options = tier_of(path, remote, archive=archive), remote_options or RemoteOptions()
    is_alone = uri is not None and remote is None
    if uri is not None and output is not None:
        raise OptionError("output copies local logs, and a tier was given", hint="restore first, and compact that")
    directory = None if uri is None else tiered_dir(path, uri, options, is_alone=is_alone)
    chosen = select_logs(path, topics, settings, metadata, server_properties, directory)
    if config is not None and chosen.source.topics is None and config.cleanup_policy is not None:
        raise OptionError("a config was given for no topic", hint="name the topics that it is to hold for")
    if first_dirty is not None:
        check_first_dirty(chosen.logs, first_dirty)
    wall_ms = int(time.time() * 1000)
    request = Request(
        wall_ms if now_ms is None else now_ms,
        first_dirty,
        dry_run,
        None if output is None else Path(output),
        spark,
        workers,
        progress,
        None if uri is None else open_access(uri, chosen, options, archive=archive, is_alone=is_alone, now_ms=wall_ms),
    )
    configs = {
        log.directory: effective_config(
            log, chosen.source, config, told_where=chosen.is_one and first_dirty is not None
        )
        for log in chosen.logs
    }
    if request.output is not None:
        check_outputs([log for log in chosen.logs if isinstance(configs[log.directory], CleanerConfig)], request.output)
    with ExitStack() as stack:
        if request.is_local:
            for parent in sorted({str(Path(log.directory).parent) for log in chosen.logs}):
                stack.enter_context(DirLock(parent))

        def work(log: Log, progress: Progress, means: Means) -> PartitionCompaction:
            return _compact(
                log, configs[log.directory], asked, dataclasses.replace(request, progress=progress, means=means)
            )

        threads = workers or os.cpu_count() or 1
        one_by_one = spark is not None or uri is not None or threads == 1
        lanes = 1 if one_by_one else lanes_for(len(chosen.logs), threads)
        done = run_lanes(work, chosen.logs, progress, lanes, threads)
    return CompactionReport(
        tuple(done), time.perf_counter() - began, dry_run, chosen.not_covered(chosen.logs), chosen.unread()
    )


def _check_arguments(asked: Mapping[str, Any], output: object) -> None:
    dataclasses.replace(CleanerConfig(), **asked)  # raises what is wrong before any partition is looked at
    if output is not None and not isinstance(output, str | os.PathLike):
        raise OptionError(f"output is a directory, got {output!r}")


def _compact(
    log: Log, config: CleanerConfig | Refusal, asked: Mapping[str, Any], request: Request
) -> PartitionCompaction:
    if isinstance(config, Refusal):
        return PartitionCompaction(
            log.topic, log.partition, log.directory, skipped=config.reason, is_usual=config.is_usual
        )
    try:
        done = compact_partition(log, dataclasses.replace(config, **asked), request)
        if done.skipped is None or request.output is None:
            return done
        copied = "would be" if request.dry_run else "was"
        return dataclasses.replace(done, skipped=f"{done.skipped}, so no copy {copied} made")
    except LockedError:
        raise
    except KsegError as error:
        return PartitionCompaction(log.topic, log.partition, log.directory, error=str(error))
