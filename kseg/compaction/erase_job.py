"""Erase records physically, with a proof: from partitions, from what a broker has set aside, from quarantine."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kseg import durable
from kseg.compaction.aborted import listed_aborts
from kseg.compaction.config import check_means
from kseg.compaction.erase_places import (
    Places,
    delete_folder,
    find_places,
    foreign_files,
    given_up_files,
    may_hold,
    quarantine_folders,
)
from kseg.compaction.erase_report import EraseReport, PlaceErasure
from kseg.compaction.erase_work import EraseWork
from kseg.compaction.eraser import Keeping, SegmentErasure
from kseg.compaction.matching import KeySearch, Predicate, PredicateSearch, Search, as_keys, hashed_keys
from kseg.compaction.partition import finish_interrupted
from kseg.compaction.remote import RemoteOptions, open_access, tier_of, tiered_dir
from kseg.compaction.remote_erase import TierErasure, erase_tier
from kseg.errors import KsegError, LockedError, LogError, OptionError
from kseg.log.lock import DirLock
from kseg.log.logdir import open_dir
from kseg.log.names import FileState, segment_file_name
from kseg.log.partition import Log
from kseg.log.staging import staging
from kseg.log.swap import SEGMENT_FILES, replace_segments
from kseg.log.visibility import segment_around
from kseg.log.writer_session import WriteSession
from kseg.progress import SILENT, Progress
from kseg.runner import spark_failures
from kseg.settings.select import PathLike, own_metadata, select_logs
from kseg.types import TopicPartition


@spark_failures()
def erase(
    path: PathLike,
    *,
    keys: Any = None,
    predicate: Predicate | None = None,
    spark: Any = None,
    topics: Iterable[str] | None = None,
    metadata: PathLike | None = None,
    this_replica_only: bool = False,
    remote: str | None = None,
    archive: bool = False,
    remote_options: RemoteOptions | None = None,
    hash_secret: bytes | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> EraseReport:
    """Take every record with one of some keys out of the files, whatever the topic's policy; offsets stay.

    The last batch of a log, each producer's last one and those of open transactions stay as empty batches, so that
    neither the log's end nor producers move back.

    Args:
        path: A local log directory, a tree of them, or one partition; with `archive`, also a tier alone.
        keys: Bytes or texts, an Arrow array, or a table or Spark DataFrame with a column `key`.
        predicate: A function instead: it gets record batches of key, value and headers, and gives a truth value for
            each row.
        spark: A session to run on; None runs in threads of this process.
        topics: These only; by default all but internal ones.
        metadata: A log directory that holds `__cluster_metadata-0`: it tells which brokers hold replicas. By default
            the one at the path, if it is there; without any the report says that replicas are unknown.
        this_replica_only: Go on though other brokers hold the partitions too; the report names them.
        remote: A tier that holds segments of the partitions; what it holds is erased too. Objects of segments that were
            rewritten stay for a grace period, and hold the records so long: the report lists them.
        archive: No cluster knows of the tier, so nobody has to be told of changes there.
        remote_options: Keys of an encrypted tier, the cluster's metadata topic, the grace period and more.
        hash_secret: The key of the hashes in the report; by default one that nobody knows.
        dry_run: Only count.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: An argument is wrong.
        JobError: Spark failed.
    """
    began = time.perf_counter()
    if (keys is None) == (predicate is None):
        raise OptionError("give either keys or a predicate")
    if predicate is not None and not callable(predicate):
        raise OptionError(f"predicate is a function, got {predicate!r}")
    if hash_secret is not None and not (isinstance(hash_secret, bytes | bytearray) and hash_secret):
        raise OptionError("hash_secret is bytes, at least one", hint="give none for a random one")
    check_means(spark, workers)
    chosen_keys = None if keys is None else as_keys(keys)
    hashes = () if chosen_keys is None else hashed_keys(chosen_keys, hash_secret or secrets.token_bytes(32))
    search: Search = KeySearch.of(chosen_keys) if chosen_keys is not None else PredicateSearch(predicate)  # type: ignore[arg-type]
    uri, options = tier_of(path, remote, archive=archive), remote_options or RemoteOptions()
    is_alone = uri is not None and remote is None
    directory = open_dir(path) if uri is None or not is_alone else tiered_dir(path, uri, options, is_alone=True)
    if metadata is None and not is_alone:
        metadata = own_metadata(directory)
    chosen = select_logs(path, topics, None, metadata, None, directory=directory, set_aside=not is_alone)
    found = Places() if is_alone else find_places(directory, chosen, this_replica_only=this_replica_only)
    work = EraseWork(search, spark, workers, progress)
    run, in_tier = _Run(work, dry_run), TierErasure()
    with ExitStack() as stack:
        if not dry_run:
            for parent in sorted({str(Path(place.directory).absolute().parent) for place in found.everything}):
                stack.enter_context(DirLock(parent))
        places = [run.take(log) for log in (*found.logs, *found.aside)]
        for folder in found.bare:
            run.clear(Path(folder.directory))
        if uri is not None:
            now_ms = int(time.time() * 1000)
            access = open_access(uri, chosen, options, archive=archive, is_alone=is_alone, now_ms=now_ms)
            in_tier = erase_tier(access, chosen.source, found.logs, work, dry_run=dry_run)
    return EraseReport(
        (*places, *in_tier.places),
        hashes,
        tuple(run.deleted_files),
        tuple(run.deleted_quarantine),
        (*found.not_covered, *in_tier.not_covered),
        (*found.refusals, *in_tier.refusals),
        dry_run,
        time.perf_counter() - began,
        in_tier.lingering,
        () if is_alone else (*chosen.unread(set_aside=True), *run.not_cleared),
        chosen.replicas_unknown(found.everything),
        tuple(run.not_searched),
    )


class _Run:
    """One call of `erase`, directory by directory."""

    def __init__(self, work: EraseWork, dry_run: bool) -> None:
        self._work = work
        self._dry_run = dry_run
        self.deleted_files: list[str] = []
        self.deleted_quarantine: list[str] = []
        self.not_cleared: list[str] = []
        self.not_searched: list[str] = []

    def take(self, log: Log) -> PlaceErasure:
        """Search one directory and, unless it is a dry run, erase there; its own failure does not stop the others."""
        place = PlaceErasure(log.topic, log.partition, log.directory)
        try:
            with self._session(log) as session:
                given_up = given_up_files(Path(log.directory))
                if session is not None:
                    finish_interrupted(log, session)
                counts = self._count(log, "search")
                place = replace(place, segments_searched=len(counts), records=sum(counts.values()))
                if session is None:
                    self._delete_leftovers(Path(log.directory), given_up)
                    return place
                session.begin_changes()
                self._delete_leftovers(Path(log.directory), given_up)
                erased = self._erase(log, [base for base, count in counts.items() if count])
                log.refresh()
                left = sum(self._count(log, "last look").values()) if erased else 0
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
        tp = TopicPartition(directory.name, log.partition)
        with WriteSession(directory.parent, tp, directory=directory).ending() as session:
            log.refresh()
            yield session

    def _count(self, log: Log, phase: str) -> dict[int, int]:
        """Records that are meant, by segment."""
        segments = log.segments
        with self._work.phase(f"{Path(log.directory).name} {phase}", segments):
            return dict(zip((s.base_offset for s in segments), self._work.count(segments), strict=True))

    def _erase(self, log: Log, bases: list[int]) -> list[SegmentErasure]:
        if not bases:
            return []
        if log.segments[-1].sound_size < log.segments[-1].size:
            raise LogError("bytes behind the last record are no batch", path=log.directory, hint="run 'kseg recover'")
        keeping, directory = Keeping.of(log), Path(log.directory)
        doomed = [segment for segment in log.segments if segment.base_offset in bases]
        aborted = listed_aborts(log, doomed)
        around = segment_around(log.segments, log.start_offset)
        # a broker that recovers it takes a snapshot at its end, and believes none that is not behind the log start
        keepings = [keeping.until(segment.next_offset) if segment is around else keeping for segment in doomed]
        chosen = [(s, kept, aborted[s.base_offset]) for s, kept in zip(doomed, keepings, strict=True)]
        with staging(directory) as folder, self._work.phase(f"{directory.name} erase", doomed):
            try:
                erased = self._work.erase(chosen, folder, directory)
            except BaseException:
                _drop_cleaned(directory, bases)
                raise
            for done in erased:
                replace_segments(directory, [done.base_offset], [done.base_offset])
        return erased

    def clear(self, directory: Path) -> None:
        """Take from a directory without segments what repairs have kept; its failure does not stop the others."""
        try:
            self._delete_leftovers(directory, given_up_files(directory))
        except KsegError as error:
            self.not_cleared.append(f"{directory}: {error}")

    def _delete_leftovers(self, directory: Path, given_up: list[Path]) -> None:
        """Delete what nothing reads any more; a dry run only tells of it."""
        self.not_searched += foreign_files(directory)
        folders = [folder for folder in quarantine_folders(directory) if may_hold(folder, self._work.search)]
        for path in given_up:
            if not self._dry_run:
                durable.unlink(path, missing_ok=True)
            self.deleted_files.append(str(path))
        for folder in folders:
            if not self._dry_run:
                delete_folder(folder, directory)
            self.deleted_quarantine.append(str(folder))
        if not self._dry_run:
            durable.fsync_dir(directory)


def _drop_cleaned(directory: Path, bases: Iterable[int]) -> None:
    for base in bases:
        for kind in SEGMENT_FILES:
            durable.unlink(directory / segment_file_name(base, kind, FileState.CLEANED), missing_ok=True)
