"""One partition of a tier under retention: what is known of its segments, and what is done to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kseg.errors import LogError
from kseg.index.epoch import EpochStart, LeaderEpochs
from kseg.log.checkpoints import CheckpointKind, read_leader_epochs, update_checkpoint
from kseg.log.partition import Log
from kseg.log.writer_session import WriteSession
from kseg.retention.apply import move_start
from kseg.retention.plan import candidates_of
from kseg.storage import LocalStore
from kseg.tiering.layout import RemoteName
from kseg.tiering.marks import Mark
from kseg.tiering.metadata_records import COPY_FINISHED, SegmentRecord
from kseg.tiering.retain_report import ExpiredSegment
from kseg.tiering.retention_plan import PartitionFacts, RemoteRetentionPlan, highest_copied
from kseg.tiering.retirement import PartitionTier, list_partition, retire
from kseg.tiering.segments import Epochs, RemoteSegment
from kseg.tiering.tier import Tier, TierPartition
from kseg.types import TopicPartition

REASON: Final = "retention"
_NEVER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """A partition in a tier.

    Attributes:
        replicas: Its local logs, of all brokers whose directories were given; none where the tier is all there is.
        log: What tells where it starts and ends: the replica that would lead, or, where no metadata topic tells of the
            tier, the log that is read of both; None where nothing of it is left to read.
        records: Its segments in the tier, as the metadata topic describes them, or as their objects do.
    """

    where: PartitionTier
    replicas: tuple[Log, ...]
    log: Log | None
    records: tuple[SegmentRecord, ...]

    @property
    def start_offset(self) -> int:
        """The log start, of replicas the furthest: followers learn of it late."""
        own = 0 if self.log is None else self.log.start_offset
        return max((self.start_of(log) for log in self.replicas), default=own)

    def start_of(self, log: Log) -> int:
        """Where a replica says that the log starts; by its names alone it would be where its local part does."""
        listed = listed_start(log)
        if listed is not None:
            return listed
        copied = [record.start_offset for record in self.records if record.state == COPY_FINISHED]
        return min([*copied, *(segment.base_offset for segment in log.segments[:1])], default=log.start_offset)

    def facts(self, log: Log) -> PartitionFacts:
        """What the rules have to know; `log` is its own."""
        lineage = tuple(log.leader_epochs()) or _history(self.records)
        highest = highest_copied(self.records, lineage, log.end_offset)
        local = [segment for segment in log.segments if segment.tier == "local"]
        only_local = sum(segment.size for segment in candidates_of(local) if segment.base_offset >= highest)
        return PartitionFacts(self.start_offset, log.end_offset, lineage, only_local)


def listed_start(log: Log) -> int | None:
    """The log start in its checkpoint, None where it is not listed there."""
    return log.checkpoints.get(CheckpointKind.LOG_START, TopicPartition(log.topic, log.partition))


def leading(replicas: Sequence[Log]) -> Log:
    """The replica whose word counts: that of the newest leader epoch, then the longest."""
    return max(replicas, key=lambda log: (log.latest_epoch, log.end_offset))


def described_segments(tier: Tier, partition: TierPartition, log: Log) -> tuple[SegmentRecord, ...]:
    """The complete segments of a tier of which no metadata topic tells, as one would describe them.

    Args:
        log: The partition as it is read; it tells of what manifests do not.
    """
    found = [segment for segment in tier.segments(partition) if not segment.is_retired]
    starts = sorted({name.start_offset for name in found} | {segment.base_offset for segment in log.segments})
    ends = dict(zip(starts, [*starts[1:], log.end_offset], strict=True))
    times = {(segment.base_offset, segment.size): segment for segment in log.segments}
    records = []
    for segment in found:
        name = segment.name
        next_offset = ends[name.start_offset] if segment.next_offset is None else segment.next_offset
        timestamp = segment.max_timestamp
        if timestamp is None:
            shown = times.get((name.start_offset, segment.size))
            timestamp = _NEVER if shown is None else shown.largest_timestamp
        records.append(
            SegmentRecord(
                name.topic,
                name.topic_id,
                name.partition,
                name.segment_id,
                name.start_offset,
                next_offset - 1,
                timestamp,
                -1,
                segment.event_timestamp_ms,
                segment.size,
                _epochs_of(tier, segment),
                state=COPY_FINISHED,
            )
        )
    return tuple(records)


def _epochs_of(tier: Tier, segment: RemoteSegment) -> Epochs:
    if segment.leader_epochs:
        return segment.leader_epochs
    history = LeaderEpochs(tier.leader_epochs(segment)).truncate_from_start(segment.start_offset)
    return history.entries or _made_up(segment.start_offset)


def _made_up(start_offset: int) -> Epochs:
    """One epoch for all, where nobody tells of any."""
    return (EpochStart(0, start_offset),)


def _history(records: Sequence[SegmentRecord]) -> Epochs:
    """The leader epochs of all segments, where the log tells of none."""
    firsts: dict[int, int] = {}
    for entry in sorted((entry for record in records for entry in record.epochs), key=lambda e: e.start_offset):
        firsts.setdefault(entry.epoch, entry.start_offset)
    return tuple(EpochStart(epoch, start) for epoch, start in sorted(firsts.items()))


def expired_segments(found: TieredPartition, plan: RemoteRetentionPlan) -> tuple[ExpiredSegment, ...]:
    """What a plan retires, for the report."""
    uploads, _ = list_partition(found.where)
    sizes = {name.segment_id: sum(part.size for part in parts.values()) for name, parts in uploads.items()}
    return tuple(
        ExpiredSegment(
            record.start_offset,
            record.end_offset + 1,
            "remote",
            record.size,
            sizes.get(record.segment_id, 0),
            str(rule),
            record.max_timestamp_ms,
            record.segment_id,
        )
        for record, rule in plan.doomed
    )


def apply_remote_retention(
    found: TieredPartition, plan: RemoteRetentionPlan, sessions: Sequence[WriteSession], *, now_ms: int
) -> None:
    """Move the log start up in all replicas, durably; then retire what goes.

    In this order, as a broker does it: what a run that dies leaves below the log start, the next one finds there.

    Raises:
        LogError: The log start would pass what is replicated.
    """
    for log in found.replicas:
        if plan.start_offset > log.high_watermark:
            raise LogError(
                f"the log start would be {plan.start_offset}, behind the high watermark {log.high_watermark}",
                path=log.directory,
                hint="recover it first",
            )
    for log, session in zip(found.replicas, sessions, strict=True):
        if plan.start_offset > found.start_of(log):
            session.begin_changes()
            epochs = read_leader_epochs(LocalStore(), log.directory)
            move_start(Path(log.directory), session, epochs, plan.start_offset)
    if plan.doomed:
        retire(found.where, Mark(REASON, _names(plan)), now_ms=now_ms)


def _names(plan: RemoteRetentionPlan) -> tuple[RemoteName, ...]:
    return tuple(sorted(record.name for record, _ in plan.doomed))


def list_start(found: TieredPartition, log: Log, session: WriteSession) -> None:
    """See that the log start is in its checkpoint, before what tells it by its name is deleted."""
    if listed_start(log) is None:
        session.begin_changes()
        update_checkpoint(str(Path(log.directory).parent), CheckpointKind.LOG_START, {session.tp: found.start_of(log)})
