"""Retention of tiered topics: what expired in the tier is retired, and what is local goes once it is in the tier."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kseg.errors import KsegError, LockedError, LogError, OptionError
from kseg.log.lock import DirLock
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.writer_session import WriteSession
from kseg.progress import SILENT, Progress
from kseg.retention.limits import KnownLimits, resolve_limits
from kseg.settings.select import PathLike, Selection, select_logs
from kseg.settings.source import SettingsSource
from kseg.settings.values import Refusal, TopicSettings
from kseg.tiering.crypto import KeyRing
from kseg.tiering.local_files import partition_session
from kseg.tiering.local_retention import delete_local
from kseg.tiering.metadata_records import COPY_FINISHED, DELETE_STARTED
from kseg.tiering.metadata_writer import MetadataTopic, NoTopic, StoppedTopic, choose_topic
from kseg.tiering.objects import RetryPolicy, TierObjects, check_remote, open_tier
from kseg.tiering.offload_partition import PartitionRun
from kseg.tiering.retain_partition import (
    TieredPartition,
    apply_remote_retention,
    described_segments,
    expired_segments,
    leading,
    list_start,
)
from kseg.tiering.retain_report import ExpiredSegment, PartitionTierRetention, TierRetentionReport
from kseg.tiering.retention_plan import plan_remote_retention
from kseg.tiering.retirement import GRACE_MS, PartitionTier, Sweep, sweep
from kseg.tiering.store import TieredStore
from kseg.tiering.tier import Tier, TierPartition
from kseg.tiering.upload import TierOptions
from kseg.types import TopicPartition

SETTINGS: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "remote.storage.enable",
    "local.retention.ms",
    "local.retention.bytes",
)
Place = tuple[str, int]


def retain(
    remote: str,
    path: PathLike | None = None,
    *,
    topics: Iterable[str] | None = None,
    settings: Mapping[str, object] | None = None,
    metadata: PathLike | None = None,
    server_properties: PathLike | None = None,
    remote_metadata: Sequence[PathLike] = (),
    remote_metadata_partitions: int | None = None,
    archive: bool = False,
    this_replica_only: bool = False,
    keys: Mapping[str, PathLike] | None = None,
    allow_shared_keys: bool = False,
    grace_ms: int = GRACE_MS,
    retry: RetryPolicy | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> TierRetentionReport:
    """Apply Kafka's retention to tiered topics, in the tier and in the local directories of a stopped cluster.

    Segments of the tier that expired by time, size, log start or a lineage that ended are retired: the log start moves
    up, the metadata topic says that they are being deleted, and their objects go `grace_ms` later, with this or the
    next run (`kseg.tiering.retirement`). Local segments go by local.retention.ms and local.retention.bytes, each after
    its copy was read back.

    Args:
        remote: The tier: a URI (s3://, gs://, abfs://, ...) or a local path.
        path: A local log directory, a tree of them (the brokers' of one cluster, say), or one partition. None: the tier
            is all there is, which has to be an archive.
        topics: These only; by default all but internal ones, or that of `path` where it is one partition.
        settings: Values by Kafka's names for the topics that were named.
        metadata: A log directory that holds `__cluster_metadata-0`, or that directory itself.
        server_properties: The configuration file of the broker whose directories these are.
        remote_metadata: Log directories of all brokers that hold `__remote_log_metadata`; by default that of `path`.
        remote_metadata_partitions: How many partitions that topic has, where no metadata log tells.
        archive: There is no such topic: no broker will ever load this again.
        this_replica_only: Move the log start here, although other brokers hold the partition too.
        keys: Files of private keys by id, for encrypted segments.
        allow_shared_keys: Take key files that others can read.
        grace_ms: How long objects stay after their segment was retired.
        now_ms: The time that ages are counted from, in milliseconds; by default the system's.
        dry_run: Change nothing, and report what would go.
        workers: Threads that read copies back; by default one per core.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: An argument is wrong, or there is nothing at `path`.
    """
    began = time.monotonic()
    check_remote(remote)
    if grace_ms < 0:
        raise OptionError(f"grace_ms is {grace_ms}; it must be 0 or more")
    if path is None and not archive:
        raise OptionError(
            "without a log directory nobody can tell what the cluster knows of the tier",
            hint="give the directory, or archive where no broker will ever load this again",
        )
    if path is not None:
        chosen = select_logs(path, topics, settings, metadata, server_properties)
    else:
        source = SettingsSource(
            metadata=metadata, server_properties=server_properties, overrides=settings, topics=topics
        )
        chosen = Selection((), source)
    ring = KeyRing(keys, allow_shared=allow_shared_keys)
    tier = Tier(remote, ring, retry)
    job = _Job(
        chosen,
        tier,
        open_tier(remote, retry=retry),
        choose_topic(chosen, remote_metadata, remote_metadata_partitions, None, archive=archive),
        int(time.time() * 1000) if now_ms is None else now_ms,
        grace_ms,
        dry_run,
        this_replica_only,
        workers,
        TieredStore(tier, None),
    )
    with ExitStack() as stack:
        for parent in () if dry_run else sorted({str(Path(log.directory).parent) for log in chosen.logs}):
            stack.enter_context(DirLock(parent))
        if isinstance(job.topic, StoppedTopic) and not dry_run:
            job.topic.complete(now_ms=job.now_ms)
        tasks = job.tasks(is_local=path is not None)
        progress.begin("retain", len(tasks), "partition")
        stack.callback(progress.end)
        for task in tasks:
            task()
            progress.advance(1)
    return job.report(time.monotonic() - began)


class _RefusedError(Exception):
    """A partition is left alone; the refusal says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@dataclass(slots=True)
class _Outcome:
    """What was done to a partition so far."""

    found: TieredPartition
    start_offset: int
    expired: tuple[ExpiredSegment, ...] = ()
    sweep: Sweep = field(default_factory=Sweep)
    error: str | None = None


@dataclass(slots=True)
class _Job:
    """One call of `retain`."""

    chosen: Selection
    tier: Tier
    objects: TierObjects
    topic: MetadataTopic
    now_ms: int
    grace_ms: int
    dry_run: bool
    this_replica_only: bool
    workers: int | None
    shown: TieredStore
    done: list[PartitionTierRetention] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def tasks(self, *, is_local: bool) -> list[Callable[[], None]]:
        """The partitions to look at, each as a call."""
        in_tier: dict[Place, list[TierPartition]] = {}
        for partition in self.tier.partitions():
            in_tier.setdefault((partition.place.topic_id, partition.place.partition), []).append(partition)
        if not is_local:
            if not in_tier:
                raise OptionError(f"no segments of a tier in {self.tier.uri}")
            wanted = self.chosen.source.topics
            found = [places for places in in_tier.values() if wanted is None or places[0].place.topic in wanted]
            if missing := (wanted or frozenset()) - {places[0].place.topic for places in found}:
                raise OptionError(f"no topic {', '.join(sorted(missing))} in {self.tier.uri}")
            return [functools.partial(self._take, places, ()) for places in found]
        replicas: dict[tuple[TopicPartition, str | None], list[Log]] = {}
        for log in self.chosen.logs:
            replicas.setdefault((TopicPartition(log.topic, log.partition), log.topic_id), []).append(log)
        return [
            functools.partial(self._take, in_tier.get((topic_id or "", tp.partition), []), tuple(logs))
            for (tp, topic_id), logs in sorted(replicas.items(), key=lambda item: (item[0][0], item[0][1] or ""))
        ]

    def _take(self, places: Sequence[TierPartition], replicas: tuple[Log, ...]) -> None:
        """One partition; a refusal goes to the report."""
        log = replicas[0] if replicas else None
        tp = TopicPartition(log.topic, log.partition) if log is not None else places[0].place.topic_partition
        try:
            known = self._known(tp, log)
            place = self._place(tp, places, replicas)
            if place is not None:
                self._retain(place, replicas, known)
        except _RefusedError as refused:
            self.refusals.append(refused.refusal)
        except (LockedError, OptionError):
            raise
        except KsegError as error:
            self.refusals.append(Refusal(str(tp), str(error), is_damage=True))

    def _known(self, tp: TopicPartition, log: Log | None) -> KnownLimits:
        source = self.chosen.source
        resolve: Callable[[Sequence[str]], TopicSettings | Refusal] = functools.partial(source.resolve, tp.topic)
        if log is not None:
            resolve = functools.partial(source.resolve_log, log)
        elif (refusal := source.refuse_topic(tp.topic)) is not None:
            raise _RefusedError(refusal)
        if not isinstance(self.topic, NoTopic):
            enabled = resolve(["remote.storage.enable"])
            if isinstance(enabled, Refusal):
                raise _RefusedError(enabled)
            if not enabled["remote.storage.enable"]:
                reason = "it is not tiered: retention without a tier sees to it"
                raise _RefusedError(Refusal(str(tp), reason, is_usual=source.topics is None))
        known = resolve_limits(resolve)
        if isinstance(known, Refusal):
            raise _RefusedError(known)
        return known

    def _place(
        self, tp: TopicPartition, places: Sequence[TierPartition], replicas: Sequence[Log]
    ) -> TierPartition | None:
        """The partition's only place in the tier; None where nothing of it is there, nor should be."""
        topic_id = replicas[0].topic_id if replicas else places[0].place.topic_id
        if topic_id is None:
            raise _RefusedError(Refusal(str(tp), "no partition.metadata tells the topic's id"))
        if replicas:
            missing = self.chosen.source.check_replicas(tp, replicas, this_replica_only=self.this_replica_only)
            reason = self.topic.refusal(topic_id, tp.partition) if missing is None else missing.reason
            if reason is not None:
                raise _RefusedError(Refusal(str(tp), reason))
        if len(places) > 1:
            shown = ", ".join(sorted(place.directory for place in places))
            raise _RefusedError(Refusal(str(tp), f"the tier holds it more than once: {shown}"))
        if places:
            return places[0]
        if told := [
            r
            for r in self.topic.segments(topic_id, tp.partition).values()
            if r.state in (COPY_FINISHED, DELETE_STARTED)
        ]:
            raise LogError(
                f"the metadata tells of {len(told)} segments of it, and the tier has none: is it the right one?"
            )
        return None

    def _retain(self, place: TierPartition, replicas: tuple[Log, ...], known: KnownLimits) -> None:
        outcome: _Outcome | None = None
        try:
            with ExitStack() as stack:
                sessions = [] if self.dry_run else [stack.enter_context(partition_session(log)) for log in replicas]
                found = self._open(place, tuple(_fresh(log) for log in replicas))
                outcome = _Outcome(found, found.start_offset)
                self._remote(found, known, sessions, outcome)
                for number, log in enumerate(found.replicas):
                    self._local(found, _fresh(log), sessions[number] if sessions else None, outcome)
                outcome.sweep = sweep(
                    found.where,
                    grace_ms=self.grace_ms,
                    pending_ms=max(self.grace_ms, GRACE_MS),  # another job may be replacing segments
                    now_ms=self.now_ms,
                    dry_run=self.dry_run,
                )
        except KsegError as error:
            if outcome is None or isinstance(error, LockedError | OptionError):
                raise
            outcome.error = str(error)
        self.done.append(_described(outcome, known))

    def _open(self, place: TierPartition, replicas: tuple[Log, ...]) -> TieredPartition:
        where = PartitionTier.of(self.objects, place, self.topic)
        for log in replicas:
            for problem in log.checkpoints.problems:  # a log start that is not known would be moved back
                raise problem
        if not isinstance(self.topic, NoTopic):
            return TieredPartition(where, replicas, leading(replicas), tuple(where.records().values()))
        if replicas:
            shown = Log(TieredStore(self.tier, replicas[0].store), leading(replicas).directory)
        elif any(not segment.is_retired for segment in self.tier.segments(place)):
            shown = Log(self.shown, self.shown.directory_of(place))
        else:
            return TieredPartition(where, (), None, ())
        return TieredPartition(where, replicas, shown, described_segments(self.tier, place, shown))

    def _remote(
        self, found: TieredPartition, known: KnownLimits, sessions: Sequence[WriteSession], outcome: _Outcome
    ) -> None:
        if found.log is None:
            return
        plan = plan_remote_retention(found.records, found.facts(found.log), known.limits, now_ms=self.now_ms)
        expired = expired_segments(found, plan)
        if not self.dry_run:
            apply_remote_retention(found, plan, sessions, now_ms=self.now_ms)
        outcome.expired, outcome.start_offset = expired, plan.start_offset

    def _local(self, found: TieredPartition, log: Log, session: WriteSession | None, outcome: _Outcome) -> None:
        """Local retention of one replica."""
        options = TierOptions(self.tier.uri, found.where.place.layout, keys=self.tier.keys, retry=self.objects.retry)
        local = {segment.base_offset: _local_segment(segment) for segment in log.segments[:-1]}  # before they are gone
        if session is not None:
            list_start(found, log, session)
            log = _fresh(log)
        run = PartitionRun(log, session, self.topic, options, now_ms=self.now_ms, verify=False)
        start = max(outcome.start_offset, log.start_offset)
        plan, refusals = delete_local(
            run, self.chosen.source, start_offset=start, dry_run=self.dry_run, workers=self.workers
        )
        self.refusals += refusals
        doomed = () if plan is None else plan.doomed
        outcome.expired += tuple(replace(local[base], rule=str(rule)) for base, rule in doomed)

    def report(self, seconds: float) -> TierRetentionReport:
        """What was done."""
        expired = [segment for found in self.done for segment in found.expired]
        remote = [segment for segment in expired if segment.tier == "remote"]
        local = [segment for segment in expired if segment.tier == "local"]
        return TierRetentionReport(
            self.dry_run,
            self.tier.uri,
            self.now_ms,
            self.grace_ms,
            tuple(self.done),
            tuple(dict.fromkeys(self.refusals)),
            len(remote),
            sum(segment.stored_bytes for segment in remote),
            len(local),
            sum(segment.stored_bytes for segment in local),
            sum(found.swept_segments for found in self.done),
            sum(found.swept_bytes for found in self.done),
            sum(found.waiting_segments for found in self.done),
            sum(found.waiting_bytes for found in self.done),
            seconds,
            self.chosen.unread(),
        )


def _fresh(log: Log) -> Log:
    """A log as it is now that nobody else changes it."""
    return Log(log.store, log.directory, options=log.options)


def _local_segment(segment: Segment) -> ExpiredSegment:
    return ExpiredSegment(
        segment.base_offset,
        segment.next_offset if segment.ceiling is None else segment.ceiling,
        "local",
        segment.size,
        sum(entry.size for entry in segment.files.values()),
        "",
        segment.largest_timestamp,
    )


def _described(outcome: _Outcome, known: KnownLimits) -> PartitionTierRetention:
    found, place = outcome.found, outcome.found.where.place
    return PartitionTierRetention(
        place.topic,
        place.partition,
        place.topic_id,
        tuple(log.directory for log in found.replicas),
        found.start_offset,
        outcome.start_offset,
        outcome.expired,
        len(outcome.sweep.swept),
        outcome.sweep.swept_bytes,
        len(outcome.sweep.waiting),
        outcome.sweep.waiting_bytes,
        known.values,
        known.origins,
        outcome.error,
    )
