"""Erase records physically, with a proof: from partitions, from what a broker has set aside, from quarantine."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kseg import durable
from kseg.compaction.config import CleanerConfig
from kseg.compaction.erase_places import (
    delete_folder,
    given_up_files,
    may_hold,
    quarantine_folders,
    set_aside_logs,
)
from kseg.compaction.erase_report import EraseReport, PlaceErasure
from kseg.compaction.eraser import EraseTask, Keeping, SegmentErasure, count_matches, digest, erase_segment
from kseg.compaction.matching import KeySearch, Predicate, PredicateSearch, Search, as_keys, hashed_keys
from kseg.compaction.partition import finish_interrupted
from kseg.compaction.pieces import portable
from kseg.errors import JobError, KsegError, LockedError, LogError, OptionError
from kseg.log.lock import DirLock
from kseg.log.logdir import open_dir
from kseg.log.names import FileKind, FileState, segment_file_name
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.staging import staging, write_nonce
from kseg.log.swap import SEGMENT_FILES, replace_segments
from kseg.log.writer_session import WriteSession
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks
from kseg.settings.select import PathLike, Selection, select_logs
from kseg.types import TopicPartition


def erase(
    path: PathLike,
    *,
    keys: Any = None,
    predicate: Predicate | None = None,
    spark: Any = None,
    topics: Iterable[str] | None = None,
    metadata: PathLike | None = None,
    this_replica_only: bool = False,
    hash_secret: bytes | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> EraseReport:
    """Take every record with one of some keys out of the files, whatever the topic's policy; offsets stay.

    The last batch of a log, each producer's last one and those of open transactions stay as empty batches, so that
    neither the log's end nor producers move back.

    Args:
        path: A local log directory, a tree of them, or one partition.
        keys: Bytes or texts, an Arrow array, or a table or Spark DataFrame with a column `key`.
        predicate: A function instead: it gets record batches of key, value and headers, and gives a truth value for
            each row.
        spark: A session to run on; None runs in threads of this process.
        topics: These only; by default all but internal ones.
        metadata: A log directory that holds `__cluster_metadata-0`: it tells which brokers hold replicas.
        this_replica_only: Go on though other brokers hold the partitions too; the report names them.
        hash_secret: The key of the hashes in the report; by default one that nobody knows.
        dry_run: Only count.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: An argument is wrong.
    """
    began = time.perf_counter()
    if (keys is None) == (predicate is None):
        raise OptionError("give either keys or a predicate")
    chosen_keys = None if keys is None else as_keys(keys)
    search: Search = KeySearch.of(chosen_keys) if chosen_keys is not None else PredicateSearch(predicate)  # type: ignore[arg-type]
    chosen = select_logs(path, topics, None, metadata, None)
    logs, refusals = _allowed(chosen, this_replica_only)
    aside = set_aside_logs(open_dir(path), chosen.source.topics)
    run = _Run(search, spark, workers, progress, dry_run)
    with ExitStack() as stack:
        if not dry_run:
            for parent in sorted({str(Path(log.directory).parent) for log in (*logs, *aside)}):
                stack.enter_context(DirLock(parent))
        progress.begin("erase", sum(s.size for log in (*logs, *aside) for s in log.segments))
        stack.callback(progress.end)
        places = [run.take(log) for log in (*logs, *aside)]
    return EraseReport(
        tuple(places),
        () if chosen_keys is None else hashed_keys(chosen_keys, hash_secret or secrets.token_bytes(32)),
        tuple(run.deleted_files),
        tuple(run.deleted_quarantine),
        chosen.not_covered(logs),
        refusals,
        dry_run,
        time.perf_counter() - began,
    )


def _allowed(chosen: Selection, this_replica_only: bool) -> tuple[list[Log], tuple[str, ...]]:
    logs, refusals = [], []
    for log in chosen.logs:
        tp = TopicPartition(log.topic, log.partition)
        refusal = chosen.source.refuse_topic(log.topic) or chosen.source.check_replicas(
            tp, chosen.logs, this_replica_only=this_replica_only
        )
        if refusal is None:
            logs.append(log)
        elif not refusal.is_usual:
            refusals.append(str(refusal))
    return logs, tuple(dict.fromkeys(refusals))


@dataclass(frozen=True, slots=True)
class _Erasing:
    """The work of tasks on one segment; a class, so that Spark can send the caller's predicate along."""

    search: Search

    def count(self, segment: Segment) -> int:
        """How many records are meant."""
        return count_matches(segment, self.search)

    def erase(self, task: EraseTask) -> SegmentErasure:
        """Write what is left."""
        return erase_segment(task, self.search)


class _Run:
    """One call of `erase`, directory by directory."""

    def __init__(self, search: Search, spark: Any, workers: int | None, progress: Progress, dry_run: bool) -> None:
        self._work = _Erasing(search)
        self._search = search
        self._spark = spark
        self._workers = workers
        self._progress = progress
        self._dry_run = dry_run
        self.deleted_files: list[str] = []
        self.deleted_quarantine: list[str] = []

    def take(self, log: Log) -> PlaceErasure:
        """Search one directory and, unless it is a dry run, erase there; its own failure does not stop the others."""
        place = PlaceErasure(log.topic, log.partition, log.directory)
        try:
            with self._session(log) as session:
                given_up = given_up_files(Path(log.directory))
                if session is not None:
                    finish_interrupted(log, session)
                counts = self._count(log)
                place = replace(place, segments_searched=len(counts), records=sum(counts.values()))
                if session is None:
                    return place
                session.begin_changes()
                self._delete_leftovers(Path(log.directory), given_up)
                erased = self._erase(log, [base for base, count in counts.items() if count])
                log.refresh()
                left = sum(self._count(log).values()) if erased else 0
                return replace(place, segments=tuple(erased), left=left)
        except LockedError:
            raise
        except KsegError as error:
            return replace(place, error=str(error))

    @contextmanager
    def _session(self, log: Log) -> Iterator[WriteSession | None]:
        if self._dry_run:
            yield None
            return
        directory = Path(os.path.abspath(log.directory))  # noqa: PTH100
        if directory.is_symlink():
            raise OptionError(f"{str(directory)!r} is a symbolic link; give the directory that it points to")
        session = WriteSession(directory.parent, TopicPartition(directory.name, log.partition))
        failed = True
        try:
            log.refresh()
            yield session
            failed = False
        finally:
            session.end(failed=failed)

    def _count(self, log: Log) -> dict[int, int]:
        """Records that are meant, by segment."""
        segments = [portable(segment) for segment in log.segments]
        sizes = [segment.size for segment in segments]
        found = self._run(self._work.count, segments, weights=sizes, progress=self._progress)
        return dict(zip((s.base_offset for s in segments), found, strict=True))

    def _erase(self, log: Log, bases: list[int]) -> list[SegmentErasure]:
        if not bases:
            return []
        if log.segments[-1].sound_size < log.segments[-1].size:
            raise LogError("bytes behind the last record are no batch", path=log.directory, hint="run 'kseg recover'")
        keeping, interval = Keeping.of(log), CleanerConfig().index_interval_bytes
        directory = Path(log.directory)
        with staging(directory) as folder:
            nonce = write_nonce(folder)
            chosen = [portable(s) for s in log.segments if s.base_offset in bases]
            tasks = [EraseTask(segment, keeping, interval, folder, nonce, directory) for segment in chosen]
            try:
                erased: list[SegmentErasure] = self._run(self._work.erase, tasks)
                for done in erased:
                    _check(directory, done)
            except BaseException:
                _drop_cleaned(directory, bases)
                raise
            for done in erased:
                replace_segments(directory, [done.base_offset], [done.base_offset])
        return erased

    def _run(self, work: Any, tasks: list[Any], **options: Any) -> list[Any]:
        results = run_tasks(work, tasks, spark=self._spark, workers=self._workers, **options)
        for result in results:
            if isinstance(result, KsegError):
                raise result
        return results

    def _delete_leftovers(self, directory: Path, given_up: list[Path]) -> None:
        for path in given_up:
            durable.unlink(path, missing_ok=True)
            self.deleted_files.append(str(path))
        for folder in list(quarantine_folders(directory)):
            if may_hold(folder, self._search):
                delete_folder(folder)
                self.deleted_quarantine.append(str(folder))
        durable.fsync_dir(directory)


def _check(directory: Path, done: SegmentErasure) -> None:
    """Read a new file again before it takes the old one's place."""
    path = directory / segment_file_name(done.base_offset, FileKind.LOG, FileState.CLEANED)
    if digest(path) != done.digest_after:
        raise JobError("a task's file is not what the task wrote", path=str(path))


def _drop_cleaned(directory: Path, bases: Iterable[int]) -> None:
    for base in bases:
        for kind in SEGMENT_FILES:
            durable.unlink(directory / segment_file_name(base, kind, FileState.CLEANED), missing_ok=True)
