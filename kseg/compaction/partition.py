"""Compact one partition: plan, and unless it is a dry run, apply."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kseg.compaction.checking import check_segments
from kseg.compaction.config import CleanerConfig, Strategy
from kseg.compaction.copy import copy_partition
from kseg.compaction.lanes import Means
from kseg.compaction.lingering import lingering_aborts
from kseg.compaction.local import LocalPasses
from kseg.compaction.markers import TransactionRows
from kseg.compaction.output import CleanedSegment
from kseg.compaction.placing import Placing, placing_by_room
from kseg.compaction.policy import check_overlaps, find_cleanable
from kseg.compaction.remote import TierAccess
from kseg.compaction.remote_round import RemoteTarget, find_place
from kseg.compaction.report import PartitionCompaction
from kseg.compaction.rewrite import Rules
from kseg.compaction.round import RewrittenGroup, Round, Totals, write_group
from kseg.compaction.skipped import SkippedRound
from kseg.compaction.spark import SparkPasses
from kseg.compaction.strategy import plan_keys
from kseg.errors import IndexFileError, KsegError, LockedError, LogError
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, update_checkpoint
from kseg.log.metadata import read_clean_shutdown
from kseg.log.names import FileState, parse_segment_file
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.staging import has_leftovers, remove_leftovers, staging, temporary_staging
from kseg.log.writer_place import partition_path
from kseg.log.writer_session import WriteSession
from kseg.native import cleaning
from kseg.native import table as t
from kseg.progress import SILENT, Progress
from kseg.recovery.plan import Plan
from kseg.recovery.transients import apply_transients
from kseg.storage import LocalStore
from kseg.types import TopicPartition


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, for all partitions alike."""

    now_ms: int
    first_dirty: int | None = None
    dry_run: bool = False
    output: Path | None = None
    spark: Any = None
    workers: int | None = None
    progress: Progress = SILENT
    access: TierAccess | None = None
    means: Means = field(default_factory=Means)

    @property
    def is_local(self) -> bool:
        """Whether local files are changed where they are."""
        is_alone = self.access is not None and self.access.is_alone
        return not self.dry_run and self.output is None and not is_alone


def plan_round(
    log: Log, config: CleanerConfig, request: Request, checkpoint: int | None, *, was_clean: bool
) -> Round | SkippedRound:
    """What a round would work on, or why there is nothing to do.

    With `first_dirty` the caller decides where dirty records begin, and the dirty ratio does not matter.

    Args:
        checkpoint: Where the last round ended; None where there was none.
        was_clean: Whether a broker that starts here takes all files for what they say.
    """
    log.was_clean = was_clean  # another partition's round may have taken the marker away
    told = request.first_dirty
    cleanable = find_cleanable(log, checkpoint if told is None else told, config, request.now_ms)
    reason = cleanable.why_not(0.0 if told is not None else config.min_cleanable_dirty_ratio)
    if reason is not None:
        return SkippedRound(reason, cleanable, by_checkpoint=told is None)
    check_overlaps([segment for segment in log.segments if segment.base_offset <= cleanable.first_uncleanable])
    oldest = request.now_ms - config.producer_id_expiration_ms
    rebuilt_from = None if was_clean or not log.knows_producers else _rebuilt_from(log)
    end = cleanable.first_uncleanable
    # the cleaner asks for none that ended below the log start (UnifiedLog.collectAbortedTransactions)
    aborted = log.aborted_transactions(log.start_offset, end, rebuilt_from=rebuilt_from)
    dirty = [segment for segment in log.segments if segment.base_offset < end]
    return Round(
        log,
        config,
        cleanable,
        request.now_ms,
        plan_keys(log.segments, cleanable, config, request.workers),
        [p for p in log.producers(snapshot_limit=rebuilt_from) if p.txn_first_offset >= 0 or p.timestamp > oldest],
        aborted,
        lingering_aborts(dirty, aborted, cleanable.first_dirty, config.index_interval_bytes, rebuilt_from),
        request.workers,
        request.progress,
    )


def _rebuilt_from(log: Log) -> int:
    """Where a broker begins that starts here without a clean shutdown: at the segment that holds the recovery point.

    From there on it reads the batches, and believes neither snapshots nor transaction indexes: they may tell of batches
    that an earlier round took. Where even the newest snapshot names nobody, it makes no difference.
    """
    flushed = log.checkpoints.get(CheckpointKind.RECOVERY_POINT, TopicPartition(log.topic, log.partition)) or 0
    bases = [segment.base_offset for segment in log.segments]
    return max((base for base in bases if base <= flushed), default=0)


def _was_clean(log: Log, session: WriteSession | None, target: RemoteTarget | None) -> bool:
    if target is not None:  # a tier's snapshots are what they were when they were copied
        return True
    if session is not None:
        return session.was_clean
    return read_clean_shutdown(log.store, os.path.dirname(log.directory)) is not None  # noqa: PTH120


def compact_partition(log: Log, config: CleanerConfig, request: Request) -> PartitionCompaction:
    """Run one round.

    An error that ends it when groups were replaced already is told in the report, with what became of these.

    Raises:
        FormatError: A batch is damaged; the partition is as it was.
        LogError: The log cannot be compacted as it is.
        LockedError: A broker or another job holds the directory.
        StorageError: A file could not be read or written; the partition is as it was, or a start-up carries the
            replacement of its first group to the end.
    """
    begun: list[_Work] = []
    try:
        return _run_round(log, config, request, begun)
    except LockedError:
        raise
    except KsegError as error:
        if not any(work.has_changed for work in begun):
            raise
        return begun[0].described(error)


def _run_round(log: Log, config: CleanerConfig, request: Request, begun: list[_Work]) -> PartitionCompaction:
    """Run one round, which is told in `begun` before it changes anything."""
    with ExitStack() as stack:
        session = None
        if request.is_local:
            session = stack.enter_context(write_session(log))
            finish_interrupted(log, session)
        elif request.output is not None:
            refuse_interrupted(log)
        target = _remote_target(log, request, stack)
        if isinstance(target, str):
            return PartitionCompaction(log.topic, log.partition, log.directory, skipped=target)
        was_clean = _was_clean(log, session, target)
        plan = plan_round(log, config, request, _checkpoint(log, request, target), was_clean=was_clean)
        if isinstance(plan, SkippedRound):
            if target is not None and not request.dry_run:
                target.sweep()
            return plan.finish(log, session, dry_run=request.dry_run)
        parent = os.path.dirname(log.directory)  # noqa: PTH120
        if session is not None:
            with suppress(IndexFileError):  # it counts as empty, and is replaced in the end; or nothing is changed
                read_checkpoint(LocalStore(), parent, CheckpointKind.CLEANER)
            session.begin_changes()
        work = _Work(plan, request, stack, target)
        begun.append(work)
        work.run()
        if session is not None:
            tp = TopicPartition(log.topic, log.partition)
            offset = plan.range.first_uncleanable
            update_checkpoint(parent, CheckpointKind.CLEANER, {tp: offset}, replace_malformed=True)
        done = work.described()
        if target is not None and not request.dry_run:
            if session is None:
                target.move_checkpoint(plan.range.first_uncleanable)
            target.sweep()
            done = dataclasses.replace(done, retired=target.retired())
        return done


def _checkpoint(log: Log, request: Request, target: RemoteTarget | None) -> int | None:
    if target is not None and request.access is not None and request.access.is_alone:
        return target.checkpoint
    return log.checkpoints.get(CheckpointKind.CLEANER, TopicPartition(log.topic, log.partition))


def _remote_target(log: Log, request: Request, stack: ExitStack) -> RemoteTarget | str | None:
    """Where groups of a tier go; why they may not be changed; None where the tier has none of this log."""
    place = None if request.access is None else find_place(request.access, log)
    if request.access is None or place is None:
        return None
    refusal = request.access.refusal(place, None if request.access.is_alone else log)
    return refusal if refusal is not None else RemoteTarget(request.access, place, stack)


@contextmanager
def write_session(log: Log) -> Iterator[WriteSession]:
    """The right to change a partition, which is listed again once it is held."""
    directory, tp = partition_path(log.directory)
    with WriteSession(directory.parent, tp).ending() as session:
        log.refresh()
        yield session


def finish_interrupted(log: Log, session: WriteSession) -> None:
    """Bring to its end, by a broker's rules, what a run that died has left."""
    directory = Path(log.directory)
    plan = Plan.of(directory, TopicPartition(log.topic, log.partition)).transients
    if plan or has_leftovers(directory):
        session.begin_changes()
        apply_transients(directory, plan)
        remove_leftovers(directory)
        log.refresh()


def refuse_interrupted(log: Log) -> None:
    """Refuse to copy a log in which a replacement of segments was interrupted: a copy has only what is settled."""
    for entry in log.store.list(log.directory):
        name = parse_segment_file(entry.name)
        if name is not None and name.state in (FileState.SWAP, FileState.CLEANED):
            raise LogError(
                "a replacement of segments was interrupted here", path=log.directory, hint="run 'kseg recover' first"
            )


class Passes(Protocol):
    """How the two passes of a round are run."""

    strategy: Strategy
    reason: str
    key_count: int

    @property
    def is_staged(self) -> bool:
        """Whether the results of pass 2 are in files before they are written to where they belong."""

    def find_keys(self, folder: Callable[[], Path]) -> tuple[Any, list[TransactionRows]]:
        """Pass 1: what pass 2 looks keys up in, and the transactional batches of the log."""

    def rewrite(self, groups: Sequence[Sequence[Segment]], rules: Rules, latest: Any) -> Generator[RewrittenGroup]:
        """Pass 2, group by group."""


class _Work:
    """Carries a round out: into the log itself, into a copy, into a tier, or nowhere."""

    def __init__(self, round_: Round, request: Request, stack: ExitStack, remote: RemoteTarget | None = None) -> None:
        self._round = round_
        self._request = request
        self._stack = stack
        self._remote = remote
        self._folder: Path | None = None
        self.totals = Totals()
        self._target = Path(round_.log.directory)
        if request.output is not None and not request.dry_run:
            self._target = stack.enter_context(copy_partition(round_.log, request.output, round_.range))
        self.passes: Passes = LocalPasses(round_, request.means, stack)
        if request.spark is not None and not request.dry_run:  # a dry run makes no files, and tasks need them
            self.passes = SparkPasses(round_, request.spark, self.folder)

    def folder(self) -> Path:
        """A folder for what is not needed afterwards; made when it is first asked for."""
        if self._remote is not None:
            return self._remote.folder()
        if self._folder is None:
            # a dry run holds no lock: what it finds beside the log may be that of a job that runs
            place = temporary_staging() if self._request.dry_run else staging(self._target)
            self._folder = self._stack.enter_context(place)
        return self._folder

    def run(self) -> None:
        """Both passes."""
        round_ = self._round
        latest, parts = self.passes.find_keys(self.folder)
        self._check_cleaned()
        rules = round_.rules(parts)
        size = sum(segment.size for segment in round_.segments)
        rewriting = self.passes.rewrite(round_.groups, rules, latest)
        with round_.phase("rewrite", size), self._placing() as placing, closing(rewriting) as rewritten:
            for group in rewritten:
                if self._request.dry_run:
                    self._count(group)
                elif self._remote is not None and group.segments[0].tier == "remote":
                    new, counts = write_group(round_, group, rules, self._remote.folder())
                    self._put_remote(new, group.segments, counts, self._remote)
                else:
                    new, counts = write_group(round_, group, rules, self._target)
                    placing.put(new, group.segments, counts)

    def _placing(self) -> AbstractContextManager[Placing]:
        """What puts new segments in the place of local groups."""
        if self._request.is_local:
            means, is_staged = self._request.means, self.passes.is_staged
            return placing_by_room(self._round, self._target, self.totals, means, is_staged=is_staged)
        return Placing(self._target, self.totals, at_once=True, replaces=False)

    @property
    def has_changed(self) -> bool:
        """Whether groups are replaced that stay so whatever follows."""
        return bool(self.totals.groups) and not self._request.dry_run and self._request.output is None

    def described(self, error: KsegError | None = None) -> PartitionCompaction:
        """What was done, of which an error may be the end."""
        done = _described(self._round, self.passes, self.totals, self._request)
        if error is None:
            return done
        before = f"{self.totals.groups} of {len(self._round.groups)} groups were compacted before, and stay so"
        retired = () if self._remote is None else self._remote.retired()
        checkpoint = self._round.range.first_dirty
        return dataclasses.replace(done, error=f"{error}; {before}", checkpoint=checkpoint, retired=retired)

    def _check_cleaned(self) -> None:
        """Look for damage where pass 1 has not been: pass 2 would find it when the first groups are replaced."""
        round_, request = self._round, self._request
        if request.dry_run or request.output is not None:
            return
        later = [segment for group in round_.groups[1:] for segment in group]
        cleaned = [segment for segment in later if segment.base_offset < round_.range.first_dirty]
        if cleaned and self.passes.strategy == "memory":
            with round_.phase("check", sum(segment.size for segment in cleaned)):
                check_segments(cleaned, spark=request.spark, workers=request.workers, progress=round_.progress)

    def _put_remote(
        self, new: CleanedSegment, group: Sequence[Segment], counts: NDArray[np.int64], remote: RemoteTarget
    ) -> None:
        if new.size == sum(segment.size for segment in group) and not counts[cleaning.REBUILT_BATCHES]:
            new.abandon()  # nothing would change, and each change of a tier is an upload
            self.totals.add(group, counts, new.size, len(group))
            return
        remote.put(new, group)
        self.totals.add(group, counts, new.size)

    def _count(self, group: RewrittenGroup) -> None:
        size, counts = 0, np.zeros(cleaning.COUNTS, np.int64)

        def count(data: t.Bytes, table: t.Table) -> None:
            nonlocal size
            size += len(data)

        with closing(group.into(count)) as results:
            for result in results:
                counts += result.counts
                self._round.progress.advance(result.bytes_read)
        self.totals.add(group.segments, counts, size)


def _described(round_: Round, passes: Passes, totals: Totals, request: Request) -> PartitionCompaction:
    counts = [int(count) for count in totals.counts]
    log = round_.log
    dropped = cleaning.SUPERSEDED, cleaning.NULL_KEYS, cleaning.EXPIRED_TOMBSTONES, cleaning.ABORTED
    return PartitionCompaction(
        log.topic,
        log.partition,
        log.directory,
        dry_run=request.dry_run,
        first_dirty=round_.range.first_dirty,
        first_uncleanable=round_.range.first_uncleanable,
        checkpoint=round_.range.first_uncleanable,
        checkpoint_reset=round_.range.checkpoint_was_wrong and request.first_dirty is None,
        dirty_ratio=round_.range.dirty_ratio,
        strategy=passes.strategy,
        strategy_reason=passes.reason,
        segments_before=totals.segments_before,
        segments_after=totals.segments_after,
        bytes_before=totals.bytes_before,
        bytes_after=totals.bytes_after,
        records_before=counts[cleaning.KEPT] + sum(counts[reason] for reason in dropped),
        records_after=counts[cleaning.KEPT],
        keys=passes.key_count,
        superseded=counts[cleaning.SUPERSEDED],
        null_keys=counts[cleaning.NULL_KEYS],
        tombstones_kept=counts[cleaning.KEPT_TOMBSTONES],
        tombstones_expired=counts[cleaning.EXPIRED_TOMBSTONES],
        aborted=counts[cleaning.ABORTED],
        markers_kept=counts[cleaning.KEPT_MARKERS],
        markers_dropped=counts[cleaning.DROPPED_MARKERS],
        batches_copied=counts[cleaning.COPIED_BATCHES],
        batches_rebuilt=counts[cleaning.REBUILT_BATCHES],
        batches_emptied=counts[cleaning.EMPTIED_BATCHES],
        batches_dropped=counts[cleaning.DROPPED_BATCHES],
        seconds={name: round(seconds, 3) for name, seconds in round_.seconds.items()},
    )
