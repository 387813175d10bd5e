"""Recover and truncate partitions, and undo it: the calls that users make."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kseg.errors import KsegError, LockedError, LogError, OptionError
from kseg.log.config import LogConfig
from kseg.log.metadata import read_clean_shutdown
from kseg.log.names import FileKind
from kseg.log.writer_session import WriteSession
from kseg.progress import SILENT, Progress
from kseg.recovery import quarantine
from kseg.recovery.apply import apply_plan
from kseg.recovery.leader import Leader
from kseg.recovery.loader import LoadOptions
from kseg.recovery.places import check_replicas, find_partitions
from kseg.recovery.plan import Plan, load_options, plan_recovery
from kseg.recovery.report import CutReport, PartitionReport, RecoveryReport, RepairReport, TruncationReport
from kseg.recovery.truncation import plan_truncation
from kseg.recovery.undo import check_undo, undo
from kseg.storage import LocalStore
from kseg.types import TopicPartition

PathLike = str | os.PathLike[str]
Planner = Callable[[Path, TopicPartition, LoadOptions], Plan]


def recover(
    path: PathLike,
    *,
    all: bool = False,
    as_kafka: bool = False,
    salvage: bool = False,
    dry_run: bool = False,
    config: LogConfig | None = None,
    now_ms: int | None = None,
    metadata: PathLike | None = None,
    this_replica_only: bool = False,
    progress: Progress = SILENT,
) -> RecoveryReport:
    """Do to a partition, or to all of a log directory, what a broker does that starts there.

    Interrupted replacements are rolled back or forward. After a crash, segments from the recovery point on are checked,
    cut at the first bad batch, and later ones dropped; indexes, producer snapshots, leader epochs and checkpoints are
    put right. After a clean shutdown a broker checks nothing, and so does this, unless `all` is given.

    What is cut off or dropped, and what is rewritten, is kept in `.kseg/quarantine` of the partition: `undo_repair`
    puts it back.

    Args:
        all: Check every segment, whatever the recovery point and the clean-shutdown marker say.
        as_kafka: Keep nothing of what goes, as a broker.
        salvage: Take only the damaged bytes out, and keep what is sound behind them.
        dry_run: Plan and report, change nothing.
        config: The topic's `index_interval_bytes` and `producer_id_expiration_ms` count.
        now_ms: The time by which producers expire; by default now.
        metadata: A directory with the cluster's metadata log: says where other replicas are.
        this_replica_only: Salvage though there are other replicas.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: There is nothing to recover here, or arguments contradict each other.
        LogError: A broker cannot load this log. Of a log directory, such a partition's line in the report says so.
    """
    if as_kafka and salvage:
        raise OptionError("as_kafka and salvage exclude each other: a broker salvages nothing")
    found = find_partitions(path)
    notes = []
    if salvage:
        notes = check_replicas(metadata, found, this_replica_only=this_replica_only)

    def plan(directory: Path, tp: TopicPartition, options: LoadOptions) -> Plan:
        return plan_recovery(directory, tp, options, salvage=salvage, progress=progress)

    job = _Job("recover", plan, config=config, now_ms=now_ms, as_kafka=as_kafka, dry_run=dry_run)
    reports = _run_all(found, lambda directory, tp: job.run(directory, tp, check_all=all, notes=notes), progress)
    return RecoveryReport(reports.partitions, dry_run, reports.seconds)


def truncate(
    path: PathLike,
    offset: int | None = None,
    *,
    to_leader: PathLike | None = None,
    as_kafka: bool = False,
    dry_run: bool = False,
    config: LogConfig | None = None,
    now_ms: int | None = None,
    metadata: PathLike | None = None,
    this_replica_only: bool = False,
    progress: Progress = SILENT,
) -> TruncationReport:
    """Cut a partition back to an offset, as a broker does after a change of leader.

    Batches that reach `offset` go, with all behind them; producer state, leader epochs and checkpoints follow. What
    goes is kept in quarantine unless `as_kafka` is given. A log that was not shut down cleanly is recovered first.

    Args:
        offset: The first offset that goes.
        to_leader: The leader's directory of the same partition: cut back to where the two part, by their epochs. Both
            are taken as a broker has them that has started there; the leader's is only read.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: Not one of `offset` and `to_leader` is given, the path is no partition, or the leader's is another.
        LogError: The epochs of the two logs do not tell where they part.
    """
    found = find_partitions(path)
    if (offset is None) == (to_leader is None):
        raise OptionError("give either an offset or the leader's directory")
    if len(found) != 1:
        raise OptionError(f"{os.fspath(path)!r} is no partition directory: one is truncated at a time")
    notes = check_replicas(metadata, found, this_replica_only=this_replica_only)

    def plan(directory: Path, tp: TopicPartition, options: LoadOptions) -> Plan:
        target = offset if to_leader is None else Leader.read(to_leader, directory, tp, like=options).parting_offset
        return plan_truncation(directory, tp, options, 0 if target is None else target, progress=progress)

    job = _Job("truncate", plan, config=config, now_ms=now_ms, as_kafka=as_kafka, dry_run=dry_run)
    reports = _run_all(found, lambda directory, tp: job.run(directory, tp, notes=notes), progress)
    return TruncationReport(reports.partitions, dry_run, reports.seconds)


def undo_repair(path: PathLike, *, run: str | None = None, dry_run: bool = False) -> RepairReport:
    """Put back, byte for byte, what the last `recover` or `truncate` changed in a partition or log directory.

    Args:
        run: Which one, by the name of its folder in `.kseg/quarantine`; only the last one of a partition can be undone.

    Raises:
        OptionError: Nothing was kept here.
        LogError: The partition was changed since.
    """
    found = [(directory, tp) for directory, tp in find_undoable(path) if run is None or _last_run(directory) == run]
    if not found:
        raise OptionError("no repair is kept here that could be undone", path=os.fspath(path))
    found.sort(key=lambda item: _last_run(item[0]) or "", reverse=True)
    if run is None:  # of several, those of the last call
        latest = _last_run(found[0][0])
        found = [item for item in found if _last_run(item[0]) == latest]
    return _run_all(found, lambda directory, tp: _undo(directory, tp, dry_run=dry_run), SILENT)


def find_undoable(path: PathLike) -> list[tuple[Path, TopicPartition]]:
    """Partitions at a path that have something in quarantine."""
    return [(directory, tp) for directory, tp in find_partitions(path) if _last_run(directory) is not None]


class _Job:
    """One call's way with each partition: hold it, plan, keep, apply, report."""

    def __init__(
        self,
        verb: str,
        plan: Planner,
        *,
        config: LogConfig | None,
        now_ms: int | None,
        as_kafka: bool,
        dry_run: bool,
    ) -> None:
        self._verb = verb
        self._plan = plan
        self._config = config or LogConfig()
        self._now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        self._run = quarantine.new_run()
        self._as_kafka = as_kafka
        self._dry_run = dry_run

    def run(
        self, directory: Path, tp: TopicPartition, *, check_all: bool = False, notes: list[str] | None = None
    ) -> PartitionReport:
        """Do it to one partition."""
        began = time.perf_counter()
        if self._dry_run:
            clean = read_clean_shutdown(LocalStore(), str(directory.parent)) is not None and not check_all
            plan = self._plan(directory, tp, self._options(directory, tp, clean=clean, check_all=check_all))
            plan.notes += [*(notes or ()), *_interrupted_notes(directory)]
            return _report(plan, clean, self._status(plan), None, time.perf_counter() - began)
        session = WriteSession(directory.parent, tp)
        failed = True
        try:
            own_notes = [*(notes or ()), *_take_back(directory, tp, session)]
            clean = session.was_clean and not check_all
            plan = self._plan(directory, tp, self._options(directory, tp, clean=clean, check_all=check_all))
            plan.notes += own_notes
            kept = self._apply(plan, session) if plan.has_changes else None
            failed = False
        finally:
            session.end(failed=failed)
        return _report(plan, clean, self._status(plan), kept, time.perf_counter() - began)

    def _options(self, directory: Path, tp: TopicPartition, *, clean: bool, check_all: bool) -> LoadOptions:
        like = LoadOptions(now_ms=self._now_ms, config=self._config)
        options = load_options(directory, tp, clean=clean, like=like)
        return replace(options, recovery_point=0) if check_all else options

    def _apply(self, plan: Plan, session: WriteSession) -> str | None:
        """Keep what will go, then change the log; return where it is kept."""
        if self._as_kafka:
            session.begin_changes()
            apply_plan(plan)
            return None
        folder = quarantine.keep(plan, self._run, self._verb, now_ms=self._now_ms)
        session.begin_changes()
        apply_plan(plan)
        quarantine.finish(folder)
        return str(folder)

    def _status(self, plan: Plan) -> str:
        return "unchanged" if not plan.has_changes else "planned" if self._dry_run else "changed"


def _interrupted(directory: Path) -> list[tuple[Path, quarantine.Manifest | None]]:
    """Runs behind the last complete one: they were stopped in the middle, or while they were undone."""
    found = []
    for run in reversed(quarantine.list_runs(directory)):
        folder = quarantine.quarantine_dir(directory) / run
        manifest = quarantine.Manifest.read(folder)
        if manifest is not None and manifest.status == quarantine.DONE:
            break
        found.append((folder, manifest))
    return found


def _interrupted_notes(directory: Path) -> list[str]:
    return [f"run {folder.name} was interrupted; it will be taken back first" for folder, _ in _interrupted(directory)]


def _take_back(directory: Path, tp: TopicPartition, session: WriteSession) -> list[str]:
    """Undo runs that were interrupted, so that this one starts from what there was before them."""
    notes = []
    for folder, manifest in _interrupted(directory):
        try:
            session.begin_changes()
            _drop_or_undo(directory, tp, folder, manifest)
            notes.append(f"run {folder.name}, which was interrupted, was taken back first")
        except LogError as error:
            notes.append(str(error))
    return notes


def _drop_or_undo(directory: Path, tp: TopicPartition, folder: Path, manifest: quarantine.Manifest | None) -> None:
    if manifest is None or manifest.status == quarantine.UNDONE:
        quarantine.remove_run(directory, folder)
        return
    check_undo(directory, manifest)
    undo(directory, tp, folder, manifest)


def _last_run(directory: Path) -> str | None:
    runs = quarantine.list_runs(directory)
    return runs[-1] if runs else None


def _undo(directory: Path, tp: TopicPartition, *, dry_run: bool) -> PartitionReport:
    began = time.perf_counter()
    run = _last_run(directory) or ""
    folder = quarantine.quarantine_dir(directory) / run
    session = WriteSession(directory.parent, tp)
    failed = True
    try:
        manifest = quarantine.Manifest.read(folder)
        if manifest is not None and manifest.status != quarantine.UNDONE:
            check_undo(directory, manifest)
        if not dry_run:
            session.begin_changes()
            _drop_or_undo(directory, tp, folder, manifest)
        failed = False
    finally:
        session.end(failed=failed)
    kept = () if manifest is None else tuple(kept.name for kept in manifest.kept)
    status = "planned" if dry_run else "undone"
    note = f"run {run} {'would be' if dry_run else 'was'} taken back"
    return PartitionReport(
        tp.topic,
        tp.partition,
        str(directory),
        status,
        written_files=kept,
        undoes=run,
        notes=(note,),
        seconds=time.perf_counter() - began,
    )


def _run_all(
    found: list[tuple[Path, TopicPartition]],
    work: Callable[[Path, TopicPartition], PartitionReport],
    progress: Progress,
) -> RepairReport:
    began = time.perf_counter()
    reports = []
    progress.begin("checking", sum(_log_bytes(directory) for directory, _ in found))
    try:
        for directory, tp in found:
            try:
                reports.append(work(directory, tp))
            except (LockedError, OptionError):
                raise
            except KsegError as error:
                reports.append(PartitionReport(tp.topic, tp.partition, str(directory), "failed", error=str(error)))
                if len(found) == 1:
                    raise
    finally:
        progress.end()
    return RepairReport(tuple(reports), seconds=time.perf_counter() - began)


def _log_bytes(directory: Path) -> int:
    return sum(entry.size for entry in LocalStore().list(str(directory)) if entry.name.endswith(FileKind.LOG.value))


def _report(plan: Plan, clean: bool, status: str, kept: str | None, seconds: float) -> PartitionReport:
    loaded = plan.loaded
    removed = sorted({*plan.transients.removed, *plan.removed})
    return PartitionReport(
        plan.tp.topic,
        plan.tp.partition,
        str(plan.directory),
        status,
        clean=clean,
        start_offset=loaded.log_start,
        end_offset=loaded.log_end,
        recovery_point=loaded.recovery_point,
        checked_segments=len(loaded.checked),
        checked_bytes=loaded.checked_bytes,
        cuts=tuple(CutReport(cut.base_offset, cut.position, cut.size, cut.reason) for cut in loaded.cuts),
        cut_bytes=sum(cut.size for cut in loaded.cuts),
        dropped_segments=tuple(base for base, _ in loaded.dropped),
        dropped_bytes=sum(content.size for _, content in loaded.dropped),
        rewritten_segments=tuple(loaded.rewritten),
        removed_files=tuple(removed),
        renamed_files=tuple(source for source, _ in plan.transients.renames),
        written_files=plan.changed,
        checkpoints=tuple(
            f"{change.kind.value}: {change.before} becomes {change.after}" for change in plan.checkpoints
        ),
        lost=plan.lost,
        damaged=plan.is_damaged,
        quarantine=kept,
        notes=tuple(plan.notes),
        seconds=seconds,
    )
