"""What an export would do: offsets of each partition from where the last run ended, cut into tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kseg.datasource.planning import plan_tasks
from kseg.errors import LogError
from kseg.exporting.manifest import Manifest, Place
from kseg.exporting.settings import ExportSettings
from kseg.log.partition import Log
from kseg.log.plan import Split
from kseg.log.ranges import Loss, PartitionRange, resolve_ranges
from kseg.log.select import partition_of, select_logs
from kseg.options import SourceOptions
from kseg.tiering.reading import store_opener
from kseg.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What is to be exported.

    Attributes:
        ranges: Offsets of the partitions that have something new.
        losses: Offsets that are not there any more; always empty with `failOnDataLoss`.
        tasks: Splits, a list for each task.
    """

    ranges: tuple[PartitionRange, ...]
    losses: tuple[Loss, ...]
    tasks: tuple[tuple[Split, ...], ...]

    @property
    def bytes(self) -> int:
        """Bytes of log that will be read."""
        return sum(split.size for splits in self.tasks for split in splits)

    @property
    def places(self) -> dict[TopicPartition, Place]:
        """Where the partitions stand once this is done."""
        return {wanted.topic_partition: Place(wanted.end, wanted.log.topic_id) for wanted in self.ranges}

    def bytes_of(self, tp: TopicPartition) -> int:
        """Bytes of log that will be read of a partition."""
        splits = (split for task in self.tasks for split in task)
        return sum(split.size for split in splits if (split.topic, split.partition) == (tp.topic, tp.partition))


def plan_export(options: SourceOptions, settings: ExportSettings, last: Manifest | None) -> ExportPlan:
    """Plan a run: what is there and visible now, behind what `last` and the runs before it have exported.

    Raises:
        DataLossError: Offsets that come next are gone, and `failOnDataLoss` is set.
        LogError: A topic was deleted and made again since it was exported.
    """
    logs = select_logs(options.paths, options, store_opener(options))
    resume: dict[TopicPartition, int] = {}
    for log in logs:
        place = None if last is None else last.places.get(partition_of(log))
        if place is not None:
            _check_same_topic(log, place)
            resume[partition_of(log)] = place.offset
    resolved = resolve_ranges(options, logs, resume=resume)
    sized = replace(options, max_bytes_per_task=options.max_bytes_per_task or settings.file_bytes)
    tasks = tuple(tuple(splits) for splits in plan_tasks(resolved.ranges, sized))
    return ExportPlan(resolved.ranges, resolved.losses, tasks)


def _check_same_topic(log: Log, place: Place) -> None:
    if None not in (place.topic_id, log.topic_id) and place.topic_id != log.topic_id:
        raise LogError(
            f"topic {log.topic} was deleted and made again since it was exported: its id was {place.topic_id}"
            f" and is {log.topic_id}",
            path=log.directory,
            hint="export it to another target",
        )
