"""Retention for a log directory, a tree of them, or one partition, on a stopped broker's disk or on a copy."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from kseg.errors import JobError, KsegError, OptionError
from kseg.log.checkpoints import read_leader_epochs
from kseg.log.lock import DirLock
from kseg.log.names import FileState, parse_segment_file
from kseg.log.partition import Log
from kseg.log.writer_place import partition_path
from kseg.log.writer_session import WriteSession
from kseg.progress import SILENT, Progress
from kseg.retention.apply import apply_retention, doomed_files, leftover_files
from kseg.retention.limits import KnownLimits, resolve_limits
from kseg.retention.plan import LogFacts, RetentionPlan, candidates_of, plan_retention
from kseg.retention.report import DeletedSegment, PartitionRetention, RetentionReport
from kseg.settings.select import Selection, select_logs
from kseg.settings.values import Refusal

SETTINGS: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "remote.storage.enable")


class _RefusedError(Exception):
    """A partition is left alone; the refusal says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def retain(
    path: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    settings: Mapping[str, object] | None = None,
    metadata: str | os.PathLike[str] | None = None,
    server_properties: str | os.PathLike[str] | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> RetentionReport:
    """Delete old segments by Kafka's rules for retention (`kseg.retention.plan`).

    What cannot be known is refused, and the report says why (docs/settings.md, "What is refused"). Internal topics
    are touched only where they are named, tiered topics not at all.

    Args:
        path: A local log directory, a tree of them, or one partition.
        topics: These only; by default all but internal ones, or that of `path` where it is one partition.
        settings: Values by Kafka's names (`retention.ms`, `retention.bytes`, `cleanup.policy`) for the topics that were
            named; stronger than all other sources.
        metadata: A log directory that holds `__cluster_metadata-0`, or that directory itself.
        server_properties: The configuration file of the broker whose directories these are.
        now_ms: The time that ages are counted from, in milliseconds; by default the system's.
        dry_run: Change nothing, and report what would go.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: An argument is wrong, or there is no partition at `path`.
        JobError: A change failed; its `report` holds what was done before.
    """
    started = time.monotonic()
    chosen = select_logs(path, topics, settings, metadata, server_properties)
    logs = chosen.logs
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    run = _Run(chosen, now_ms, dry_run=dry_run)
    with ExitStack() as stack:
        for parent in () if dry_run else sorted({os.path.dirname(log.directory) for log in logs}):  # noqa: PTH120
            stack.enter_context(DirLock(parent))
        progress.begin("retain", len(logs), "partition")
        stack.callback(progress.end)
        for log in logs:
            run.take(log, lambda: run.report(time.monotonic() - started))
            progress.advance(1)
    return run.report(time.monotonic() - started)


class _Run:
    """One call of `retain`, partition by partition."""

    def __init__(self, chosen: Selection, now_ms: int, *, dry_run: bool) -> None:
        self._source = chosen.source
        self._unread = chosen.unread()
        self._now_ms = now_ms
        self._dry_run = dry_run
        self._done: list[PartitionRetention] = []
        self._refusals: list[Refusal] = []

    def take(self, log: Log, so_far: Callable[[], RetentionReport]) -> None:
        """Plan for one partition and, unless it is a dry run, apply that; a refusal goes to the report."""
        try:
            known = self._known(log)
            with self._session(log) as session:
                log = Log(log.store, log.directory, options=log.options)  # as it is now that nobody else changes it
                plan, done = self._plan(log, known)
                if session is not None and (plan.doomed or leftover_files(log, plan)):
                    self._apply(log, plan, session, so_far)
            self._done.append(done)
        except _RefusedError as refused:
            self._refusals.append(refused.refusal)

    def _known(self, log: Log) -> KnownLimits:
        found = self._source.resolve_log(log, [], optional=["remote.storage.enable"])
        if isinstance(found, Refusal):
            raise _RefusedError(found)
        if found["remote.storage.enable"]:
            raise _refused(log, "it is tiered: what is local goes once it is in the tier; say which tier that is")
        known = resolve_limits(functools.partial(self._source.resolve_log, log))
        if isinstance(known, Refusal):
            raise _RefusedError(known)
        return known

    @contextmanager
    def _session(self, log: Log) -> Iterator[WriteSession | None]:
        """The right to change the partition; None for a dry run."""
        if self._dry_run:
            yield None
            return
        try:
            directory, tp = partition_path(log.directory)
        except OptionError as error:
            raise _refused(log, error.message) from None
        session = WriteSession(directory.parent, tp)
        failed = True
        try:
            yield session
            failed = False
        finally:
            session.end(failed=failed)

    def _plan(self, log: Log, known: KnownLimits) -> tuple[RetentionPlan, PartitionRetention]:
        for entry in log.store.list(log.directory):
            name = parse_segment_file(entry.name)
            if name is not None and name.state in (FileState.SWAP, FileState.CLEANED):
                raise _refused(log, "a replacement of segments was interrupted here: recover it first")
        try:
            self._check_sidecars(log)
            facts = LogFacts(log.start_offset, log.end_offset, log.high_watermark)
            if log.segments and log.segments[-1].next_offset < log.start_offset:
                raise _refused(log, "its log start is behind its last record: recover it first")
            plan = plan_retention(candidates_of(log.segments), facts, known.limits, now_ms=self._now_ms)
            if plan.new_base_offset is not None:
                log.producers()  # they go into a snapshot: what stands against that is told before anything changes
                if log.segments[-1].sound_size < log.segments[-1].size:
                    raise _refused(log, "bytes behind its last record are no batch: recover it first")
            return plan, _described(log, plan, known)
        except KsegError as error:
            raise _refused(log, str(error), is_damage=True) from error

    def _check_sidecars(self, log: Log) -> None:
        """Refuse where a checkpoint cannot be read: a high watermark that is not known would protect nothing."""
        for problem in log.checkpoints.problems:
            raise problem
        read_leader_epochs(log.store, log.directory)

    def _apply(
        self, log: Log, plan: RetentionPlan, session: WriteSession, so_far: Callable[[], RetentionReport]
    ) -> None:
        try:
            apply_retention(log, plan, session, now_ms=self._now_ms)
        except KsegError as error:
            failure = JobError(f"retention stopped: {error.message}", path=error.path, hint="run it again")
            failure.report = so_far()
            raise failure from error

    def report(self, seconds: float) -> RetentionReport:
        """What was done so far."""
        deleted = [segment for done in self._done for segment in done.deleted]
        return RetentionReport(
            self._dry_run,
            self._now_ms,
            tuple(self._done),
            tuple(dict.fromkeys(self._refusals)),
            len(deleted),
            sum(segment.bytes for segment in deleted),
            sum(segment.freed_bytes for segment in deleted) + sum(done.leftover_bytes for done in self._done),
            seconds,
            self._unread,
        )


def _refused(log: Log, reason: str, *, is_damage: bool = False) -> _RefusedError:
    return _RefusedError(Refusal(f"{log.topic}-{log.partition}", reason, is_damage=is_damage))


def _described(log: Log, plan: RetentionPlan, known: KnownLimits) -> PartitionRetention:
    freed: dict[int, int] = {}
    for file in doomed_files(log, plan):
        freed[file.base_offset] = freed.get(file.base_offset, 0) + file.size
    segments = {segment.base_offset: segment for segment in log.segments}
    following = dict(itertools.zip_longest(segments, list(segments)[1:], fillvalue=log.end_offset))
    return PartitionRetention(
        log.topic,
        log.partition,
        log.directory,
        log.start_offset,
        plan.start_offset,
        plan.new_base_offset,
        tuple(
            DeletedSegment(
                base, following[base], segments[base].size, freed[base], str(rule), segments[base].largest_timestamp
            )
            for base, rule in plan.doomed
        ),
        sum(size for _, size in leftover_files(log, plan)),
        known.values,
        known.origins,
    )
