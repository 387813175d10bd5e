"""The view `offsets`: what consumer groups have committed, and how far they are behind.

A commit inside a transaction counts once the transaction is committed. The end is the one that consumers can see; it
is null where the partition is not here, or is another incarnation of the topic than the one that was committed for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kseg.internal import consumer_offsets
from kseg.log.group_offsets import CommittedOffset, committed_offsets
from kseg.log.partition import Log
from kseg.types import TopicPartition
from kseg.views.columns import TIMESTAMP, to_batches, to_micros
from kseg.views.places import LogPlace, Unit, one_each, open_all

SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("leaderEpoch", pa.int32()),
        ("metadata", pa.string()),
        ("commitTimestamp", TIMESTAMP),
        ("endOffset", pa.int64()),
        ("lag", pa.int64()),
        ("topicId", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class OffsetsUnit:
    """The partitions of `__consumer_offsets`, and those whose ends are to be told."""

    coordinator: Sequence[LogPlace]
    others: dict[TopicPartition, LogPlace]

    def read(self) -> Iterator[pa.RecordBatch]:
        """Replay the commits, and open the logs that they are about."""
        commits = committed_offsets(open_all(self.coordinator))
        wanted = sorted({TopicPartition(commit.topic, commit.partition) for commit in commits} & self.others.keys())
        logs = dict(zip(wanted, open_all(self.others[tp] for tp in wanted), strict=True))
        return to_batches(SCHEMA, (_row(commit, logs) for commit in commits))


def plan(logs: Iterable[Log]) -> list[Unit]:
    """One unit, none where there is no `__consumer_offsets`."""
    chosen = one_each(logs)
    coordinator = tuple(LogPlace.of(log) for log in chosen if log.topic == consumer_offsets.TOPIC)
    places = {TopicPartition(log.topic, log.partition): LogPlace.of(log) for log in chosen}
    return [OffsetsUnit(coordinator, places)] if coordinator else []


def _row(commit: CommittedOffset, logs: dict[TopicPartition, Log]) -> dict[str, object]:
    log = logs.get(TopicPartition(commit.topic, commit.partition))
    if log is not None and None not in (commit.topic_id, log.topic_id) and commit.topic_id != log.topic_id:
        log = None
    end = None if log is None else log.high_watermark
    return {
        "group": commit.group,
        "topic": commit.topic,
        "partition": commit.partition,
        "offset": commit.offset,
        "leaderEpoch": commit.leader_epoch,
        "metadata": commit.metadata,
        "commitTimestamp": to_micros(commit.commit_timestamp_ms),
        "endOffset": end,
        # After a crash the checkpoint of the high watermark can be older than the commit: nothing is left to read then.
        "lag": None if end is None else max(end - commit.offset, 0),
        "topicId": commit.topic_id,
    }
