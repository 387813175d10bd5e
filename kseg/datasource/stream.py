"""The streaming reader: follows the logs of a directory, in batches of offset ranges that a checkpoint can repeat.

An offset of the stream is what Spark's Kafka source writes into checkpoints: `{"orders": {"0": 23, "1": 7}}`, sorted,
the first offset that is not read yet. The directory is looked through anew for every batch, so new partitions and
rolled, deleted and compacted segments are seen.

| a partition                              | what happens                                                           |
|------------------------------------------|------------------------------------------------------------------------|
| is new                                   | is read from offset 0 on; a log that starts later is data loss         |
| starts behind what is read next          | data loss: the range is named                                          |
| ends before what is read next            | data loss; with `failOnDataLoss=false` the stream goes on at its end   |
| is gone                                  | data loss; else it keeps its offset, for the case that it comes back   |
| is of another topic id than before       | data loss: the topic was deleted and made again                        |
| has damage behind what is read next      | an error; unless `corrupt` is `fail` a warning, once                   |
| shows less than before, but still has it | nothing is new: another replica's high watermark lags                  |
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kseg.datasource.planning import plan_tasks, read_options, warn_once
from kseg.datasource.reader import SplitPartition
from kseg.datasource.spark_schema import arrow_schema
from kseg.datasource.worker import begin_task
from kseg.errors import DataLossError, KsegError, LogError, OptionError
from kseg.log.partition import Log
from kseg.log.plan import read_splits
from kseg.log.ranges import (
    Loss,
    PartitionRange,
    clip_range,
    data_loss,
    describe_withheld,
    find_damage_behind,
    resolve_starts,
    visible_end,
)
from kseg.log.select import find_logs, partition_of, select_logs
from kseg.option_values import MAX_INT64
from kseg.options import ALL_EARLIEST, LATEST, AtOffsets, SourceOptions, Start
from kseg.tiering.reading import store_opener
from kseg.types import OffsetRange, TopicPartition

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


class KsegStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in the driver's long-lived worker; what tasks need is in the partitions, as in a batch read."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._initial: Offsets | None = None
        self._frozen: Offsets | None = None
        self._shown: Offsets | None = None
        self._must_pin = False
        self._last_trigger: float | None = None
        self._topic_ids: dict[TopicPartition, str] = {}
        self._told: set[TopicPartition] = set()
        self._told_tails: set[TopicPartition] = set()
        self._warned = False
        self._told_withheld = False

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts; asked for again, the answer is the same."""
        if self._initial is None:
            logs = select_logs(
                self._options.paths, self._options, store_opener(self._options)
            )  # what is named must be there, in a new query
            self._initial = resolve_starts(self._options, logs)
            self._must_pin = not _is_fixed(self._options.starting)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger`; never ReadAllAvailable, which thus tells that a trigger wants all in one batch."""
        limit = self._options.max_offsets_per_trigger
        return ReadMaxRows(MAX_INT64 if limit is None else limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Settle where the query ends: what is visible now."""
        self._frozen = {partition_of(log): visible_end(log, self._options) for log in self._select()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; `start` itself where there is nothing new, or not enough of it.

        Raises:
            DataLossError: A partition is gone or was cut off before `start`, and `failOnDataLoss` is set.
        """
        begun = from_json(start)
        logs = self._select()
        shown = self._shown = {partition_of(log): visible_end(log, self._options) for log in logs}
        if not self._told_withheld and (withheld := describe_withheld(logs, self._options)):
            logger.warning("%s; the stream reads them once they are replicated", withheld)
            self._told_withheld = True
        if self._must_pin and begun == self._initial and not isinstance(limit, ReadAllAvailable):
            # Spark keeps the end of a batch, not its start: were the first batch to hold records and be repeated after
            # a crash, it would start where "latest" or the group is by then. So it is empty, and its end is kept.
            self._must_pin = False
            return start
        self._report_vanished(begun, logs)
        self._report_made_again(begun, logs)
        self._report_tails(begun, logs)
        ends = self._ends(begun, logs, shown)
        firsts = {partition_of(log): max(begun.get(partition_of(log), 0), log.start_offset) for log in logs}
        spans = {tp: end - firsts[tp] for tp, end in ends.items() if tp in firsts and end > firsts[tp]}
        if isinstance(limit, ReadMaxRows):
            if self._is_too_little(sum(spans.values())):
                return start
            for tp, share in share_limit(spans, limit.max_rows).items():
                ends[tp] = firsts[tp] + share
        return to_json(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What was visible when it was last looked at, for the query's progress."""
        return None if self._shown is None else to_json(self._shown)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch; of the same offsets the same records come again, also in a query that was restarted.

        Raises:
            DataLossError: Some of the offsets are not there any more, and `failOnDataLoss` is set.
        """
        self._must_pin = False  # a batch that is repeated: its offsets are in the checkpoint
        begun = from_json(start)
        wanted = {tp: OffsetRange(begun.get(tp, 0), last) for tp, last in from_json(end).items()}
        # a start behind the end: the empty first batch is repeated, while "latest" has moved on
        wanted = {tp: span for tp, span in wanted.items() if span.start < span.end}
        if not wanted:
            return []
        logs = {partition_of(log): log for log in self._select()}
        # these offsets were visible once: only whether they are still there is asked
        everything = replace(self._options, isolation="read_uncommitted", read_past_high_watermark=True)
        ranges: list[PartitionRange] = []
        losses: list[Loss] = []
        for tp in sorted(wanted):
            if tp not in logs:
                losses.append(Loss(tp, wanted[tp].start, wanted[tp].end, "are gone: the partition is not there"))
                continue
            clipped, found = clip_range(logs[tp], wanted[tp], everything)
            losses += found
            if clipped.start < clipped.end:
                ranges.append(PartitionRange(logs[tp], clipped.start, clipped.end))
        self._report(losses)
        return [SplitPartition(splits) for splits in plan_tasks(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's splits."""
        begin_task()
        return read_splits(getattr(partition, "splits", []), self._schema, read_options(self._options))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint is Spark's, and logs are not changed by reading."""

    def stop(self) -> None:
        """Nothing is held open between calls."""

    def _select(self) -> list[Log]:
        """The logs as they are now; of what the options name, what is not there any more is left to the caller."""
        options = self._options
        if not self._warned:
            warn_once(options)
            self._warned = True
        try:
            return select_logs(options.paths, options, store_opener(options))
        except LogError as error:
            logger.debug("looking for what is left: %s", error)
        there = {partition_of(log) for log in find_logs(options.paths, options, store_opener(options))}
        topics = {tp.topic for tp in there}
        if options.subscribe is not None:
            options = replace(options, subscribe=tuple(topic for topic in options.subscribe if topic in topics))
        elif options.assign is not None:
            options = replace(options, assign=options.assign & there)
        if not there or options.subscribe == () or options.assign == frozenset():
            return []
        return select_logs(options.paths, options, store_opener(options))

    def _ends(self, begun: Offsets, logs: Sequence[Log], shown: Offsets) -> Offsets:
        """Where each partition could be read up to; what is gone keeps its place."""
        ends, losses = dict(begun), []
        for log in logs:
            tp = partition_of(log)
            if self._frozen is not None and tp not in self._frozen:
                continue  # newer than the query's end
            last = shown[tp] if self._frozen is None else min(shown[tp], self._frozen[tp])
            first = begun.get(tp, 0)
            if first > log.end_offset:
                losses.append(Loss(tp, log.end_offset, first, f"are gone: the log ends at {log.end_offset}"))
                ends[tp] = last
            else:
                ends[tp] = max(first, last)
        self._report(losses)
        return ends

    def _is_too_little(self, count: int) -> bool:
        """Whether a batch is to wait for more offsets; it waits no longer than `maxTriggerDelay`."""
        least, now = self._options.min_offsets_per_trigger, time.monotonic()
        if not least or not count or self._frozen is not None:  # a query that ends would wait for ever
            return False
        waited = self._last_trigger is None or (now - self._last_trigger) * 1000 >= self._options.max_trigger_delay_ms
        if count < least and not waited:
            return True
        self._last_trigger = now
        return False

    def _report_vanished(self, begun: Offsets, logs: Sequence[Log]) -> None:
        gone = sorted(begun.keys() - {partition_of(log) for log in logs} - self._told)
        if not gone:
            return
        self._tell_loss(
            "; ".join(f"{tp}: the partition is gone, and offsets from {begun[tp]} on with it" for tp in gone)
        )
        self._told.update(gone)

    def _report_made_again(self, begun: Offsets, logs: Sequence[Log]) -> None:
        """Tell topics whose id changed under this query: offsets of the old one say nothing of the new one."""
        ids = {partition_of(log): log.topic_id for log in logs}
        other = sorted(tp for tp, id in ids.items() if tp in begun and id and self._topic_ids.get(tp, id) != id)
        self._topic_ids |= {tp: id for tp, id in ids.items() if id}
        if other:
            texts = (
                f"{tp}: the topic was deleted and made again, and offsets from {begun[tp]} on are gone" for tp in other
            )
            self._tell_loss("; ".join(texts))

    def _tell_loss(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"[KAFKA_DATA_LOSS] {text}", hint="set failOnDataLoss to false to read what there is")
        logger.warning("%s", text)

    def _report_tails(self, begun: Offsets, logs: Sequence[Log]) -> None:
        """Tell damage where nothing is new: no batch will come to it, and no task that would tell it."""
        for log in logs:
            tp = partition_of(log)
            problem = None if tp in self._told_tails else find_damage_behind(log, begun.get(tp, 0))
            if problem is not None and self._options.corrupt == "fail":
                raise problem
            if problem is not None:
                logger.warning("%s; nothing behind it is read", problem)
                self._told_tails.add(tp)

    def _report(self, losses: Sequence[Loss]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise data_loss(losses)
        for loss in losses:
            logger.warning("%s; %d offsets are passed over", loss, loss.end - loss.start)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says what is wrong with a query as soon as Spark asks it for anything.

    Where `streamReader` raises, Spark 4.3 fails in clearing up, and its UnboundLocalError is the last line that a user
    sees.
    """

    def __init__(self, error: KsegError) -> None:
        self._error = error

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise self._error

    prepareForTriggerAvailableNow = getDefaultReadLimit = initialOffset = latestOffset = _refuse
    partitions = read = commit = _refuse

    def stop(self) -> None:
        """Nothing is held open."""


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Offsets as Spark keeps them: equal ones have equal text, so keys are sorted."""
    topics: dict[str, Any] = {}
    for tp in sorted(offsets):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return topics


def from_json(topics: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Undo `to_json`.

    Raises:
        OptionError: These are offsets of another source: the query has got a checkpoint that is not its own.
    """
    try:
        return {
            TopicPartition(topic, int(key)): int(at) for topic, parts in topics.items() for key, at in parts.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(
            f"the checkpoint holds {json.dumps(topics)[:200]}, which is no offsets of partitions",
            hint="give each query a checkpointLocation of its own",
        ) from None


def _is_fixed(starting: Start) -> bool:
    """Whether a query that starts again would start at the same offsets, or at the same log's beginning."""
    if isinstance(starting, AtOffsets):
        return LATEST not in starting.offsets.values()
    return starting == ALL_EARLIEST


def share_limit(spans: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """Share a limit by how much each partition has; one that would get nothing gets one offset, unless nobody does."""
    total, least = sum(spans.values()), min(limit, 1)
    return {tp: min(span, max(least, limit * span // total)) for tp, span in spans.items()}
