"""Rebuild `__remote_log_metadata` of a stopped cluster from what is in its tier."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from kseg.errors import FormatError, KsegError, LockedError, LogError, OptionError
from kseg.index.epoch import EpochStart
from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.log.lock import DirLock
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks
from kseg.settings.values import Refusal
from kseg.storage import LocalStore
from kseg.tables import format_count
from kseg.tiering.crypto import KeyRing
from kseg.tiering.fsck_checks import SegmentCheck
from kseg.tiering.layout import PlainPart
from kseg.tiering.listing import RemoteObjects, group_objects, read_manifest
from kseg.tiering.metadata_records import COPY_FINISHED, TOPIC, SegmentRecord, metadata_partition
from kseg.tiering.metadata_writer import StoppedTopic
from kseg.tiering.objects import RetryPolicy, check_remote, open_tier
from kseg.tiering.plan import epochs_within
from kseg.tiering.rebuild_plan import Inspected, RebuildPlan, inspect_segment, plan_rebuild
from kseg.tiering.rebuild_report import PartitionRebuild, RebuildReport, ToldSegment
from kseg.tiering.rebuild_topic import Directories
from kseg.tiering.segments import Epochs, RemoteSegment
from kseg.tiering.tier import Tier, TierPartition

PathLike = str | os.PathLike[str]


def rebuild_metadata(
    remote: str,
    metadata: PathLike | Sequence[PathLike],
    *,
    remote_metadata_partitions: int | None = None,
    topics: Iterable[str] | None = None,
    keys: Mapping[str, PathLike] | None = None,
    allow_shared_keys: bool = False,
    retry: RetryPolicy | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> RebuildReport:
    """Tell a stopped cluster of the complete segments in its tier that its `__remote_log_metadata` does not name.

    Records go to all replicas of the partition that Kafka's hash chooses, or nowhere. Partitions of the topic that are
    lost on all brokers are made. Which segments are told of, `kseg.tiering.rebuild_plan` says in a table.

    Args:
        remote: The tier, as `kseg.tiering.offload` takes it.
        metadata: Log directories of all brokers that hold `__remote_log_metadata`, or held it.
        remote_metadata_partitions: How many partitions that topic has, where no metadata log there tells.
        topics: These only.
        keys: Files of private keys by id: needed where encrypted segments overlap.
        allow_shared_keys: Take key files that others can read.
        now_ms: The time of the records; by default now.
        dry_run: Write nothing, and report what would be written.
        workers: Threads; by default one per core.

    Raises:
        LockedError: A broker or another job holds a directory.
        OptionError: An argument is wrong, or it is not known how many partitions the topic has.
    """
    began = time.monotonic()
    places = [metadata] if isinstance(metadata, str | os.PathLike) else list(metadata)
    directories = Directories(places)
    topic = None if directories.image is None else directories.image.topics.get(TOPIC)
    count = remote_metadata_partitions if topic is None else len(topic.partitions)
    if count is None:
        raise OptionError(
            f"it is not known how many partitions {TOPIC} has", hint="give the metadata log, or their number"
        )
    ring = KeyRing(keys, allow_shared=allow_shared_keys)
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    job = _Job(
        directories, Tier(check_remote(remote), ring, retry), count, now_ms, retry or RetryPolicy(), dry_run, workers
    )
    with ExitStack() as stack:
        for parent in () if dry_run else directories.parents:
            stack.enter_context(DirLock(parent))
        job.run(None if topics is None else frozenset(topics), progress)
    return job.report(time.monotonic() - began)


@dataclass(slots=True)
class _Job:
    """One call of `rebuild_metadata`."""

    directories: Directories
    tier: Tier
    count: int
    now_ms: int
    retry: RetryPolicy
    dry_run: bool
    workers: int | None
    done: list[PartitionRebuild] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    made: list[Path] = field(default_factory=list)
    _groups: dict[str, RemoteObjects] = field(default_factory=dict)
    _topic: StoppedTopic = field(init=False)

    def run(self, topics: frozenset[str] | None, progress: Progress) -> None:
        """Look at the tier, make what was lost, and write what is missing."""
        found = [place for place in self.tier.partitions() if topics is None or place.place.topic in topics]
        wanted = [place for place in self._without_doubles(found) if not self._is_refused(place)]
        listed = group_objects(open_tier(self.tier.uri, retry=self.retry).list())[0]
        self._groups = {group.name.segment_id: group for group in listed if not group.missing}
        numbers = sorted({self._number(place) for place in wanted})
        self.made = [path for number in numbers for path in self.directories.plan_lost(number)]
        if not self.dry_run:
            self.directories.make(self.made)
            self.directories.reopen()
        logs = [log for log in self.directories.logs if log.topic == TOPIC]
        self._topic = StoppedTopic(logs, self.directories.source, self.count)
        progress.begin("rebuild", len(wanted))
        try:
            for place in wanted:
                self._take(place)
                progress.advance(1)
        finally:
            progress.end()

    def _number(self, place: TierPartition) -> int:
        return metadata_partition(place.place.topic_id, place.place.partition, self.count)

    def _without_doubles(self, found: Sequence[TierPartition]) -> list[TierPartition]:
        by_id: dict[tuple[str, int], list[TierPartition]] = {}
        for place in found:
            by_id.setdefault((place.place.topic_id, place.place.partition), []).append(place)
        for places in by_id.values():
            if len(places) > 1:
                where = ", ".join(place.directory for place in places)
                self.refusals.append(Refusal(str(places[0].place.topic_partition), f"the tier has it twice: {where}"))
        return [places[0] for places in by_id.values() if len(places) == 1]

    def _is_refused(self, place: TierPartition) -> bool:
        image, name, root = self.directories.image, place.place.topic, self.tier.root.rstrip("/") + "/"
        topic = None if image is None else image.topics.get(name)
        reason = None
        if not place.directory.startswith(root) or "/" not in place.directory.removeprefix(root):
            reason = "the URI is that of a part of the tier: give the prefix that all its objects share, up to a slash"
        elif image is None:
            reason = None
        elif topic is None or topic.topic_id != place.place.topic_id:
            reason = f"the cluster has no topic of id {place.place.topic_id}: it was deleted, or is another cluster's"
        elif place.place.partition not in topic.partitions:
            reason = "the cluster has no such partition"
        elif image.topic_configs(name).get("remote.storage.enable") != "true":
            reason = "remote.storage.enable is not true: brokers would not look into the tier"
        if reason is not None:
            self.refusals.append(Refusal(str(place.place.topic_partition), reason))
        return reason is not None

    def _take(self, place: TierPartition) -> None:
        topic_id, partition, number = place.place.topic_id, place.place.partition, self._number(place)
        is_made = any(path.name == f"{TOPIC}-{number}" for path in self.made)
        reason = None if self.dry_run and is_made else self._topic.refusal(topic_id, partition)
        if reason is not None:
            self.refusals.append(Refusal(str(place.place.topic_partition), reason))
            return
        known: Mapping[str, SegmentRecord] = {}
        plan, records, error = RebuildPlan(), list[SegmentRecord](), None
        try:
            known = {} if self.dry_run and is_made else self._topic.segments(topic_id, partition)
            plan, records = self._plan(place, known)
            if records and not self.dry_run:
                values = [value for r in records for value in (r.started_value(), r.finished_value(self.now_ms))]
                self._topic.write(topic_id, partition, values, now_ms=self.now_ms)
        except (LockedError, OptionError):
            raise
        except KsegError as failure:
            error = str(failure)
        told = [ToldSegment(r.start_offset, r.end_offset + 1, r.size, r.segment_id) for r in records]
        finished = sum(record.state == COPY_FINISHED for record in known.values())
        self.done.append(
            PartitionRebuild(
                place.place.topic,
                partition,
                topic_id,
                number,
                finished,
                tuple(told) if error is None else (),
                plan.passed_over,
                error,
            )
        )

    def _plan(
        self, place: TierPartition, known: Mapping[str, SegmentRecord]
    ) -> tuple[RebuildPlan, list[SegmentRecord]]:
        """The segments of a partition to tell of, and their records."""
        every = self._segments(place)
        listed = [segment for segment in every if not segment.is_retired]
        found = {s.name.segment_id: s for s in listed if s.name.segment_id in self._groups}
        new = [segment_id for segment_id in found if segment_id not in known]
        checks = [
            SegmentCheck(self.tier.uri, self._groups[segment_id], self.tier.keys, False, self.retry)
            for segment_id in new
        ]
        inspected: dict[str, Inspected] = {}
        for segment_id, result in zip(new, run_tasks(inspect_segment, checks, workers=self.workers), strict=True):
            if isinstance(result, KsegError):
                del found[segment_id]
                self.refusals.append(
                    Refusal(f"segment {segment_id}", str(result), is_damage=isinstance(result, FormatError))
                )
            else:
                inspected[segment_id] = result
                found[segment_id] = replace(found[segment_id], next_offset=result.next_offset)
        segments = list(found.values())
        plan = plan_rebuild(
            segments,
            known,
            log_start=self._log_start(place),
            lineage=lambda: self._lineage(place, segments),
            epochs_of=self._epochs_of,
        )
        partial = (segment.name.segment_id for segment in listed if segment.name.segment_id not in self._groups)
        plan.passed_over.update((segment_id, "objects of it are missing") for segment_id in partial)
        retired = (segment.name.segment_id for segment in every if segment.is_retired)
        plan.passed_over.update((segment_id, "it is retired") for segment_id in retired if segment_id not in known)
        return plan, [self._record(segment, inspected[segment.name.segment_id]) for segment in plan.segments]

    def _segments(self, place: TierPartition) -> list[RemoteSegment]:
        """The complete uploads of a partition.

        Raises:
            LogError: Manifests cannot be read; a refusal names each. What such a manifest describes nobody knows, and a
                broker that is told of the rest alone passes over its offsets for good, or moves the log start up.
        """
        try:
            return self.tier.segments(place)
        except FormatError:
            tier, broken = open_tier(self.tier.uri, retry=self.retry), list[Refusal]()
            for group in self._groups.values():
                name = group.name
                if (name.topic_id, name.partition) != (place.place.topic_id, place.place.partition):
                    continue
                try:
                    read_manifest(tier, group)
                except FormatError as error:
                    broken.append(Refusal(f"segment {name.segment_id}", str(error), is_damage=True))
            if not broken:  # a mark of retired segments, then
                raise
            self.refusals += broken
            raise LogError(
                f"{format_count(len(broken), 'manifest')} cannot be read, so the cluster was told of no segment here",
                path=place.directory,
                hint="put them back from a copy of the tier; or move them away: their offsets are lost then",
            ) from None

    def _log_start(self, place: TierPartition) -> int:
        """Where brokers say that the log starts; what lies before they delete from the tier."""
        starts = [
            (read_checkpoint(LocalStore(), parent, CheckpointKind.LOG_START) or {}).get(place.place.topic_partition, 0)
            for parent in self.directories.parents
        ]
        return max(starts, default=0)

    def _lineage(self, place: TierPartition, found: Iterable[RemoteSegment]) -> Epochs:
        """The partition's leader epochs: a local log's, else those of the newest segment."""
        for log in self.directories.logs:
            if (log.topic_id, log.partition) == (place.place.topic_id, place.place.partition):
                return tuple(log.leader_epochs())
        histories = [self.tier.leader_epochs(segment) for segment in found]
        return max(histories, key=lambda epochs: epochs[-1] if epochs else EpochStart(-1, -1), default=())

    def _epochs_of(self, segment: RemoteSegment) -> Epochs:
        if segment.leader_epochs is not None:
            return segment.leader_epochs
        return epochs_within(self.tier.leader_epochs(segment), segment.start_offset, segment.next_offset or 2**63)

    def _record(self, segment: RemoteSegment, told: Inspected) -> SegmentRecord:
        name, epochs = segment.name, self._epochs_of(segment)
        if not epochs or segment.next_offset is None:
            raise LogError("no leader epoch is known of the segment", path=f"{segment.directory}/{name.stem}")
        return SegmentRecord(
            name.topic,
            name.topic_id,
            name.partition,
            name.segment_id,
            segment.start_offset,
            segment.next_offset - 1,
            told.max_timestamp_ms,
            -1 if told.broker_id is None else told.broker_id,
            segment.event_timestamp_ms if segment.event_timestamp_ms >= 0 else segment.mtime_ms,
            segment.size,
            epochs,
            not segment.sidecars.get(PlainPart.TXN_INDEX),
        )

    def report(self, seconds: float) -> RebuildReport:
        """What was done."""
        return RebuildReport(
            self.dry_run,
            self.tier.uri,
            tuple(self.done),
            tuple(self.refusals),
            tuple(str(path) for path in self.made),
            sum(len(found.segments) for found in self.done),
            seconds,
        )
