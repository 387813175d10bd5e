"""From the options of a read to tasks: lists of splits, each about as large as a task should be."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from kseg.log.plan import TASK_BYTES, Split, group_splits, plan_splits
from kseg.log.ranges import PartitionRange, resolve_ranges
from kseg.log.select import select_logs
from kseg.options import SourceOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The tasks of a batch read, in the order of topics, partitions and offsets."""

    tasks: list[list[Split]]
    losses: tuple[str, ...] = ()


def plan_read(options: SourceOptions) -> ReadPlan:
    """Choose the logs, settle their ranges of offsets, cut these into splits and put small splits together.

    `maxRecordsPerPartition` divides ranges of offsets first, as in Spark's Kafka source; `minPartitions` is a hint.
    """
    warn_once(options)
    resolved = resolve_ranges(options, select_logs(options.paths, options))
    for loss in resolved.losses:
        logger.warning("%s", loss)
    pieces = [piece for wanted in resolved.ranges for piece in _cut_range(wanted, options.max_records_per_partition)]
    task_bytes = options.max_bytes_per_task or TASK_BYTES
    committed = options.isolation == "read_committed"
    if options.min_partitions:
        whole = sum(segment.size for wanted in resolved.ranges for segment in wanted.log.segments)
        task_bytes = max(1, min(task_bytes, whole // options.min_partitions))
    splits = [
        plan_splits(piece.log, piece.start, piece.end, committed=committed, target_bytes=task_bytes) for piece in pieces
    ]
    if options.max_records_per_partition:  # a task is a piece: putting pieces together would pass the limit again
        tasks = [group for group in splits if group]
    else:
        every = itertools.chain.from_iterable(splits)
        tasks = group_splits(every, target_bytes=task_bytes, min_groups=options.min_partitions or 1)
    return ReadPlan(tasks, tuple(str(loss) for loss in resolved.losses))


def warn_once(options: SourceOptions) -> None:
    """Say which options mean nothing here; Python shows the same warning once."""
    if options.ignored:
        warnings.warn(f"kseg ignores options that are for brokers: {', '.join(options.ignored)}", stacklevel=2)
    for note in options.notes:
        warnings.warn(note, stacklevel=2)


def _cut_range(wanted: PartitionRange, most: int | None) -> Iterator[PartitionRange]:
    """Ranges of at most `most` offsets, of about equal size."""
    span = wanted.end - wanted.start
    parts = 1 if most is None else max(1, -(-span // most))
    for part in range(parts):
        start, end = wanted.start + span * part // parts, wanted.start + span * (part + 1) // parts
        if start < end:
            yield PartitionRange(wanted.log, start, end)
