"""Decide what a reset writes: which offset, for which incarnation of the topic, or why it is refused.

| the offset asked for      | what is written                                                                        |
|---------------------------|----------------------------------------------------------------------------------------|
| behind the log's end      | the end, as kafka-consumer-groups does                                                 |
| before the log's start    | the start; where older segments may be in a tier, the start that the checkpoint tells  |
| of another topic id       | nothing, unless told: brokers pass over a commit whose topic id is another             |
| with a leader epoch       | the epoch only where the log's own epochs agree: else consumers would see a truncation |
| of a log that is not here | what was asked for, and a note that it was not checked                                 |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kseg.index.epoch import LeaderEpochs
from kseg.internal.remote_log_metadata import TOPIC as REMOTE_METADATA
from kseg.log.checkpoints import CheckpointKind
from kseg.log.metadata_image import MetadataImage
from kseg.log.partition import Log
from kseg.offsets.entries import OffsetEntry
from kseg.settings.values import Refusal
from kseg.types import TopicPartition

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class Topics:
    """The partitions that groups read: their logs, as far as they are here, and the cluster's metadata."""

    logs: dict[TopicPartition, Log]
    image: MetadataImage | None

    def topic_id(self, tp: TopicPartition) -> str | None:
        """The topic's id, None where nothing tells."""
        known = None if self.image is None else self.image.topics.get(tp.topic)
        log = self.logs.get(tp)
        if known is not None:
            return known.topic_id
        return None if log is None else log.topic_id

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic that are known."""
        known = None if self.image is None else self.image.topics.get(topic)
        own = {tp.partition for tp in self.logs if tp.topic == topic}
        return sorted(own | set(() if known is None else known.partitions))

    def refusal(self, tp: TopicPartition) -> str | None:
        """Why nobody can stand in a partition: the cluster has none such."""
        if self.image is None:
            return None
        known = self.image.topics.get(tp.topic)
        return None if known is not None and tp.partition in known.partitions else "the cluster has no such partition"

    def start_of(self, log: Log) -> int:
        """Where a log starts for consumers."""
        if not self._may_be_tiered(log.topic):
            return log.start_offset
        tp = TopicPartition(log.topic, log.partition)
        return min(log.checkpoints.get(CheckpointKind.LOG_START, tp) or 0, log.start_offset)

    def _may_be_tiered(self, topic: str) -> bool:
        if self.image is not None:
            return self.image.topic_configs(topic).get("remote.storage.enable") == "true"
        return any(tp.topic == REMOTE_METADATA for tp in self.logs)


def find_offset(log: Log, topics: Topics, *, to: str | None, to_time_ms: int | None) -> int:
    """The offset in a log that a target means: EARLIEST, LATEST, or the first record at or after a time."""
    if to_time_ms is not None:
        match = log.offset_for_time(to_time_ms)
        return log.high_watermark if match is None else match.offset
    return topics.start_of(log) if to == EARLIEST else log.high_watermark


def plan_offset(entry: OffsetEntry, topics: Topics, *, any_topic_id: bool) -> tuple[OffsetEntry, str | None] | Refusal:
    """What is written for a wish, with a note where it is not what was asked for; or why nothing is."""
    tp = TopicPartition(entry.topic, entry.partition)
    subject = f"group {entry.group}, {tp}"
    reason = topics.refusal(tp)
    if reason is not None:
        return Refusal(subject, reason)
    topic_id = topics.topic_id(tp)
    if None not in (topic_id, entry.topic_id) and topic_id != entry.topic_id and not any_topic_id:
        return Refusal(
            subject, f"its offset is for the topic of id {entry.topic_id}, and the cluster's has id {topic_id}"
        )
    entry = replace(entry, topic_id=topic_id or entry.topic_id)
    log = topics.logs.get(tp)
    if log is None:
        return entry, "its log is not here: not checked"
    start, end = topics.start_of(log), log.end_offset
    if not start <= entry.offset <= end:
        bound = end if entry.offset > end else start
        which = "end" if entry.offset > end else "start"
        note = f"the log's {which}: {entry.offset} is {'behind' if entry.offset > end else 'before'} it"
        return replace(entry, offset=bound, leader_epoch=None), note
    return _with_epoch(entry, log), None


def _with_epoch(entry: OffsetEntry, log: Log) -> OffsetEntry:
    if entry.leader_epoch is None:
        return entry
    epoch, end = LeaderEpochs(tuple(log.leader_epochs())).end_offset_for(entry.leader_epoch, log.end_offset)
    return entry if epoch == entry.leader_epoch and entry.offset <= end else replace(entry, leader_epoch=None)
