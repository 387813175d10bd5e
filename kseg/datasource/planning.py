"""From the options of a read to tasks: lists of splits, each about as large as a task should be."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Sequence

from kseg.log.plan import TASK_BYTES, Split, group_splits, plan_splits
from kseg.log.ranges import PartitionRange, describe_withheld, resolve_ranges
from kseg.log.select import select_logs
from kseg.log.walk import ReadOptions
from kseg.options import SourceOptions
from kseg.tiering.reading import store_opener

logger = logging.getLogger(__name__)


def plan_read(options: SourceOptions) -> list[list[Split]]:
    """The tasks of a batch read: choose the logs, settle their ranges of offsets, cut these into splits."""
    warn_once(options)
    logs = select_logs(options.paths, options, store_opener(options))
    resolved = resolve_ranges(options, logs)
    for loss in resolved.losses:
        logger.warning("%s", loss)
    if withheld := describe_withheld(logs, options):
        logger.warning("%s", withheld)
    return plan_tasks(resolved.ranges, options)


def plan_tasks(ranges: Sequence[PartitionRange], options: SourceOptions) -> list[list[Split]]:
    """Cut ranges of offsets into tasks, each a list of splits, in the order of topics, partitions and offsets.

    `maxRecordsPerPartition` divides ranges first, as in Spark's Kafka source; `minPartitions` is a hint.
    """
    committed, most = options.isolation == "read_committed", options.max_records_per_partition
    task_bytes = options.max_bytes_per_task or TASK_BYTES

    def plan(target: int) -> list[list[Split]]:
        return [
            plan_splits(
                wanted.log, start, end, committed=committed, target_bytes=target, continues=start > wanted.start
            )
            for wanted in ranges
            for start, end in _cut(wanted.start, wanted.end, most)
        ]

    pieces = plan(task_bytes)
    if options.min_partitions:
        size = sum(split.size for splits in pieces for split in splits)
        task_bytes = max(1, min(task_bytes, size // options.min_partitions))
        pieces = plan(task_bytes)
    if most:  # each piece by itself: putting pieces together would pass the limit again
        return [task for splits in pieces for task in group_splits(splits, target_bytes=task_bytes)]
    every = itertools.chain.from_iterable(pieces)
    return group_splits(every, target_bytes=task_bytes, min_groups=options.min_partitions or 1)


def _cut(start: int, end: int, most: int | None) -> list[tuple[int, int]]:
    parts = 1 if most is None else max(1, -(-(end - start) // most))
    bounds = [start + (end - start) * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(bounds))


def read_options(options: SourceOptions) -> ReadOptions:
    """How tasks read bytes."""
    return ReadOptions(max_bytes_per_second=options.max_read_bytes_per_second, skip_damage=options.corrupt != "fail")


def warn_once(options: SourceOptions) -> None:
    """Say which options mean nothing here; Python shows the same warning once."""
    for note in options.notes:
        warnings.warn(note, stacklevel=2)
