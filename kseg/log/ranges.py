"""From starting and ending options to a range of offsets for each partition, by the rules of Spark's Kafka source.

| limit            | offset                                                                                        |
|------------------|-----------------------------------------------------------------------------------------------|
| earliest, -2     | the log start                                                                                 |
| latest, -1       | the visible end: the high watermark, with read_committed the last stable offset               |
| a time           | the first record at or after it; none: the visible end for an end, an error or that for a start |
| `group:NAME`     | the group's last commit; none: what `auto.offset.reset` says                                  |

What is asked for by number must be there. Offsets before the log start or behind the end are data loss: an error, or
with `failOnDataLoss=false` left out and reported. Holes inside a log (compaction, transaction markers) are normal.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kseg.errors import DataLossError, FormatError, LogError, OptionError
from kseg.internal import consumer_offsets
from kseg.log.group_offsets import committed_offsets
from kseg.log.partition import Log
from kseg.log.select import find_internal_logs, partition_of
from kseg.option_values import PartitionValues, format_partitions
from kseg.options import EARLIEST, LATEST, AllAt, AtGroup, AtOffsets, AtTime, AtTimes, SourceOptions, Start
from kseg.types import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets `[start, end)` of a log."""

    log: Log
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return partition_of(self.log)


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets `[start, end)` that were asked for and are not there."""

    topic_partition: TopicPartition
    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic_partition}: offsets [{self.start}, {self.end}) {self.reason}"


@dataclass(frozen=True, slots=True)
class ResolvedRanges:
    """What is to be read, by partition.

    Attributes:
        ranges: Ranges that are not empty; and empty ones at the end of a log, where damage is behind it, which is told,
            or where nothing is left of what comes next, so that it goes on there from now on.
        losses: What was asked for and is not there; always empty with `failOnDataLoss`.
        empty: How many partitions have nothing to read.
    """

    ranges: tuple[PartitionRange, ...] = ()
    losses: tuple[Loss, ...] = ()
    empty: int = 0

    def __iter__(self) -> Iterator[PartitionRange]:
        return iter(self.ranges)

    def __len__(self) -> int:
        return len(self.ranges)


def resolve_ranges(
    options: SourceOptions,
    logs: Sequence[Log],
    *,
    offset_logs: Sequence[Log] | None = None,
    resume: Mapping[TopicPartition, int] | None = None,
) -> ResolvedRanges:
    """Resolve the ranges of a batch read.

    Args:
        logs: The partitions to read, as `select_logs` gives them.
        offset_logs: Partitions of `__consumer_offsets`, for a start at a group; found in the options' paths and beside
            the logs unless given.
        resume: Where partitions go on that were read before: how the options start does not hold for these, and an
            end before that is nothing to read.

    Raises:
        OptionError: The options do not name the partitions that are read, or a start is behind its end.
        DataLossError: Offsets that were asked for are not there, and `failOnDataLoss` is set.
    """
    resume = resume or {}
    fresh = [log for log in logs if partition_of(log) not in resume]
    options = _without_starts(options, resume)
    starts = {}
    if fresh or not resume:  # of no partitions at all, options may still name some
        starts = resolve_starts(options, fresh, offset_logs=offset_logs)
    ends = _resolve(options, options.ending, logs, starting=False)
    ranges, losses = [], []
    for log in logs:
        tp = partition_of(log)
        if tp in resume:
            starts[tp] = resume[tp]
            if ends[tp] < starts[tp] and ends[tp] != visible_end(log, options):
                continue
        wanted, found = clip_range(log, _ordered(options, log, starts[tp], ends[tp]), options)
        losses += found
        is_passed_over = tp in resume and bool(found) and wanted.end != resume[tp]
        # what a run has passed over at the end of a log, the next does not tell again
        is_damaged = (tp not in resume or options.corrupt == "fail") and find_damage_behind(log, wanted.end) is not None
        if wanted.start < wanted.end or is_passed_over or is_damaged:
            ranges.append(PartitionRange(log, wanted.start, wanted.end))
    if losses and options.fail_on_data_loss:
        raise data_loss(losses)
    return ResolvedRanges(tuple(ranges), tuple(losses), len(logs) - len(ranges))


def find_damage_behind(log: Log, offset: int) -> FormatError | None:
    """What is wrong behind an offset, where that is the end of a log and in truth no end but damage."""
    if not log.segments or log.end_offset != offset:
        return None
    problem = log.segments[-1].tail_problem
    return None if problem is None else copy.copy(problem).with_context(path=log.segments[-1].path)


def _without_starts(options: SourceOptions, resume: Mapping[TopicPartition, int]) -> SourceOptions:
    """The options, with starts of other partitions alone."""
    match options.starting:
        case AtOffsets(values):
            return replace(options, starting=AtOffsets({tp: at for tp, at in values.items() if tp not in resume}))
        case AtTimes(values):
            return replace(options, starting=AtTimes({tp: at for tp, at in values.items() if tp not in resume}))
    return options


def resolve_starts(
    options: SourceOptions, logs: Sequence[Log], *, offset_logs: Sequence[Log] | None = None
) -> dict[TopicPartition, int]:
    """Resolve where each partition starts, in a batch read or a new streaming one; nothing is clipped."""
    if isinstance(options.starting, AtGroup):
        return _group_starts(options, options.starting.group, logs, offset_logs)
    return _resolve(options, options.starting, logs, starting=True)


def visible_end(log: Log, options: SourceOptions) -> int:
    """Where reading stops: what `Log.read` with the same settings shows ends here."""
    visible = log.end_offset if options.read_past_high_watermark else log.high_watermark
    if options.isolation != "read_committed":
        return visible
    stable = log.stable_below(visible) if options.read_past_high_watermark else log.last_stable_offset
    return max(stable, log.start_offset)  # it is below where the log starts inside of an undecided batch


def describe_withheld(logs: Sequence[Log], options: SourceOptions) -> str | None:
    """A sentence on what lies behind the high watermarks and is not read; None where nothing does."""
    if options.read_past_high_watermark:
        return None
    withheld = {partition_of(log): log.end_offset - log.high_watermark for log in logs}
    behind = [tp for tp, count in withheld.items() if count]
    if not behind:
        return None
    return (
        f"{sum(withheld.values())} offsets behind the high watermark are not read, in {len(behind)} partitions:"
        f" {format_partitions(behind)}; readPastHighWatermark reads them"
    )


def clip_range(log: Log, wanted: OffsetRange, options: SourceOptions) -> tuple[OffsetRange, list[Loss]]:
    """Cut a range to what the log holds and shows; what was cut off is told."""
    tp, start, end = partition_of(log), wanted.start, wanted.end
    losses = []
    if start < log.start_offset and start < end:
        losses.append(Loss(tp, start, min(end, log.start_offset), f"are gone: the log starts at {log.start_offset}"))
        start = min(end, log.start_offset)
    if end > log.start_offset and end > (visible := visible_end(log, options)):
        losses.append(Loss(tp, max(start, visible), end, f"cannot be read: {_why_hidden(log, visible, options)}"))
        end = visible
    return OffsetRange(min(start, end), end), losses


def data_loss(losses: Sequence[Loss]) -> DataLossError:
    """The error that names what is not there."""
    more = f"; and {len(losses) - 5} more" if len(losses) > 5 else ""
    return DataLossError(
        f"[KAFKA_DATA_LOSS] {'; '.join(str(loss) for loss in losses[:5])}{more}",
        hint="set failOnDataLoss to false to read what there is",
    )


def _why_hidden(log: Log, visible: int, options: SourceOptions) -> str:
    if visible == log.end_offset:
        return f"the log ends at {visible}"
    if options.isolation == "read_committed" and visible < log.high_watermark:
        return f"a transaction that began at {visible} is not decided"
    return f"the log is replicated up to {visible} only (the high watermark); it ends at {log.end_offset}"


def _ordered(options: SourceOptions, log: Log, start: int, end: int) -> OffsetRange:
    """Compare what start and end came to, as Spark does; a start in what is there but not visible yet is no fault.

    A start behind the end is one: these offsets were there once, or were never. Where it is an option that names them,
    `failOnDataLoss=false` does not help, as it does not with Spark's source.
    """
    if start <= end:
        return OffsetRange(start, end)
    if end == visible_end(log, options) and start <= log.end_offset:
        return OffsetRange(end, end)
    is_named = isinstance(options.starting, AtOffsets) and partition_of(log) in options.starting.offsets
    if end == visible_end(log, options) and (options.fail_on_data_loss or not is_named):
        return OffsetRange(end, start)
    message = f"{partition_of(log)} starts at offset {start}, which is greater than its end offset {end}"
    raise OptionError(f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] {message}")


def _resolve(options: SourceOptions, limit: Start, logs: Sequence[Log], *, starting: bool) -> PartitionValues:
    assigned = {partition_of(log): log for log in logs}
    side = "start" if starting else "end"
    match limit:
        case AllAt(offset):
            wanted = dict.fromkeys(assigned, offset)
        case AtOffsets(offsets):
            _check_match("KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED", f"{side}ingOffsets", offsets, assigned)
            wanted = offsets
        case AtTime(timestamp):
            wanted = {tp: _at_time(options, log, timestamp, starting=starting) for tp, log in assigned.items()}
        case AtTimes(timestamps):
            option = f"{side}ingOffsetsByTimestamp"
            _check_match("KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED", option, timestamps, assigned)
            wanted = {tp: _at_time(options, log, timestamps[tp], starting=starting) for tp, log in assigned.items()}
        case AtGroup():
            raise OptionError("a read cannot end where a group stands")
    return {tp: _offset_of(wanted[tp], log, options) for tp, log in assigned.items()}


def _offset_of(wanted: int, log: Log, options: SourceOptions) -> int:
    if wanted == EARLIEST:
        return log.start_offset
    return visible_end(log, options) if wanted == LATEST else wanted


def _check_match(condition: str, option: str, named: PartitionValues, assigned: dict[TopicPartition, Log]) -> None:
    if named.keys() == assigned.keys():
        return
    raise OptionError(
        f"[{condition}] option {option} must name exactly the partitions that are read;"
        f" named: {format_partitions(named)}; read: {format_partitions(assigned)}"
    )


def _at_time(options: SourceOptions, log: Log, timestamp: int, *, starting: bool) -> int:
    """The offset for a time; a record that is not visible is none, as a broker has it."""
    found = log.offset_for_time(timestamp)
    if found is not None and found.offset < visible_end(log, options):
        return found.offset
    if starting and options.starting_no_match == "error":
        raise OptionError(
            f"no offset of {partition_of(log)} matches the starting timestamp {timestamp}: no record is that new",
            hint="startingOffsetsByTimestampStrategy=latest starts such partitions at their end",
        )
    return LATEST


def _group_starts(
    options: SourceOptions, group: str, logs: Sequence[Log], offset_logs: Sequence[Log] | None
) -> PartitionValues:
    if offset_logs is None:
        offset_logs = find_internal_logs(consumer_offsets.TOPIC, options.paths, logs)
    if not offset_logs:
        raise LogError(
            f"option startingOffsets is 'group:{group}', but there is no {consumer_offsets.TOPIC} beside the logs",
            hint="give the paths of the log directories that hold it too",
        )
    found = committed_offsets(offset_logs, group=group)
    commits = {TopicPartition(commit.topic, commit.partition): commit for commit in found}
    starts, without = {}, []
    for log in logs:
        tp = partition_of(log)
        commit = commits.get(tp)
        # a commit to an earlier topic of the same name says nothing of this one
        if commit is not None and (None in (commit.topic_id, log.topic_id) or commit.topic_id == log.topic_id):
            starts[tp] = commit.offset
        else:
            without.append(tp)
            starts[tp] = log.start_offset if options.auto_offset_reset == "earliest" else visible_end(log, options)
    if without and options.auto_offset_reset == "none":
        raise OptionError(
            f"group {group} has committed no offset of {format_partitions(without)}",
            hint="set auto.offset.reset to earliest or latest to say where these start",
        )
    return starts
