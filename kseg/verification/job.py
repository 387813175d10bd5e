"""`kseg.verify`: plan the tasks, run them, join what they found."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Sequence
from typing import Any

from kseg.errors import KsegError, LogError, OptionError, StorageError
from kseg.format.arrow import MAX_BATCH_BYTES
from kseg.log.logdir import LogDir
from kseg.log.partition import RETRIES, Log
from kseg.log.walk import ReadOptions
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks, spark_failures
from kseg.storage import open_store
from kseg.tiering.crypto import KeyFiles, KeyRing
from kseg.tiering.reading import open_tiered_store
from kseg.types import TopicPartition
from kseg.verification.against import compare_copies
from kseg.verification.directory import check_log_dir, was_closed
from kseg.verification.findings import Finding, Findings
from kseg.verification.partition import PartitionCheck
from kseg.verification.report import VerifyReport
from kseg.verification.segment import SegmentResult, verify_segment
from kseg.views.transaction_log import TransactionLog


@spark_failures()
def verify(
    path: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    keys: KeyFiles | None = None,
    allow_shared_keys: bool = False,
    spark: Any = None,
    deep: bool = False,
    topics: Sequence[str] | None = None,
    workers: int | None = None,
    max_batch_bytes: int | None = None,
    drop_page_cache: bool = False,
    progress: Progress = SILENT,
) -> VerifyReport:
    """Look for every kind of damage in a partition, a log directory or a tree of them; nothing is changed.

    Args:
        against: Another copy of the same partitions to compare with: a replica, a backup, or the tier.
        keys: Private key files by key id, for a tier that is encrypted.
        allow_shared_keys: Take key files that others than their owner can read.
        spark: A Spark session that does the work; None does it in threads of this process.
        deep: Decompress every batch and look at every record.
        topics: Only these.
        workers: Threads in this process; by default one per core.
        max_batch_bytes: The largest batch that is looked at (128 MiB unless told).
        drop_page_cache: Tell the kernel to forget what was read, so that a live broker's page cache survives.

    Raises:
        OptionError: There are no partitions at `path`, or an option is wrong.
        JobError: Spark failed.
    """
    began = time.monotonic()
    limit = MAX_BATCH_BYTES if max_batch_bytes is None else max_batch_bytes
    if limit < 1:
        raise OptionError(f"max_batch_bytes must be positive, got {limit}")
    options = ReadOptions(max_batch_bytes=limit, drop_page_cache=drop_page_cache)
    around = Findings()
    ring = KeyRing(keys, allow_shared=allow_shared_keys)
    logs = find_logs(path, ring, options, topics, around)
    closed = {parent: was_closed(log.store, parent) for log in logs for parent in [_parent(log)]}
    checks = _make_checks(logs, closed, around, deep=deep)
    results = _run(checks, spark, workers, progress)
    _repeat_stale(checks, results, spark, workers)
    findings: list[Finding] = around.list()
    coordinator = functools.cache(lambda: _coordinator(path, ring, options))
    for check, of_check in zip(checks, results, strict=True):
        findings += check.finish(of_check, coordinator)
    if against is not None:
        others = find_logs(against, ring, options, topics, Findings())
        findings += compare_copies(
            [check.log for check in checks], others, spark=spark, workers=workers, progress=progress
        )
    found = [result for of_check in results for result in of_check if isinstance(result, SegmentResult)]
    return VerifyReport(
        path=_shown(path), against=None if against is None else _shown(against), deep=deep, partitions=len(checks),
        segments=sum(len(check.tasks) for check in checks), batches=sum(result.batches for result in found),
        records=sum(result.records for result in found), bytes=sum(result.size for result in found),
        seconds=round(time.monotonic() - began, 3), findings=tuple(findings),
    )  # fmt: skip


def _make_checks(logs: list[Log], closed: dict[str, bool], around: Findings, *, deep: bool) -> list[PartitionCheck]:
    """Look at the partitions; one of several that is gone since they were found is told, and hides no other."""
    checks = []
    for log in logs:
        try:
            checks.append(PartitionCheck(log, deep=deep, was_closed=closed[_parent(log)]))
        except (LogError, StorageError) as error:
            if len(logs) == 1:
                raise
            around.add_error("KS708", error)
    return checks


def _shown(path: str | os.PathLike[str]) -> str:
    return open_store(path)[1]


def _parent(log: Log) -> str:
    return log.directory.rpartition("/")[0]


def find_logs(
    path: str | os.PathLike[str],
    keys: KeyRing,
    options: ReadOptions,
    topics: Sequence[str] | None,
    findings: Findings,
) -> list[Log]:
    """The partitions at a path, which may be a tier; what is wrong around them goes to `findings`."""
    store, directory = open_tiered_store(path, None, keys)
    log_dir = LogDir(store, directory, options=options)
    logs = log_dir.partitions
    if not logs:
        try:
            logs = [Log(store, directory, options=options)]
        except LogError:
            raise OptionError(f"no partitions in {os.fspath(path)}") from None
    elif logs[0].directory != directory:
        for parent in dict.fromkeys(map(_parent, logs)):
            present = [TopicPartition(log.topic, log.partition) for log in logs if _parent(log) == parent]
            check_log_dir(store, parent, present, findings)
    for problem in log_dir.problems:
        findings.add_error("KS708", problem)
    wanted = [log for log in logs if topics is None or log.topic in topics]
    if not wanted:
        raise OptionError(f"no partition of {', '.join(topics or ())} in {os.fspath(path)}")
    return wanted


def _run(
    checks: list[PartitionCheck], spark: Any, workers: int | None, progress: Progress
) -> list[list[SegmentResult | KsegError]]:
    tasks = [task for check in checks for task in check.tasks]
    weights = [sum(entry.size for entry in task.files.values()) for task in tasks]
    progress.begin("verify", sum(weights))
    try:
        done = run_tasks(verify_segment, tasks, spark=spark, workers=workers, progress=progress, weights=weights)
    finally:
        progress.end()
    for result in done:
        if isinstance(result, OptionError):  # such as a key that was not given: no damage
            raise result
    results = iter(done)
    return [[next(results) for _ in check.tasks] for check in checks]


def _repeat_stale(
    checks: list[PartitionCheck], results: list[list[SegmentResult | KsegError]], spark: Any, workers: int | None
) -> None:
    """Look once more at partitions whose segments a running broker has replaced or deleted meanwhile."""
    for _ in range(RETRIES):
        stale = [i for i, check in enumerate(checks) if _is_stale(check)]
        if not stale:
            return
        for i in stale:
            with contextlib.suppress(KsegError):  # the partition is gone: what was found stays
                checks[i], results[i] = _look_again(checks[i], results[i], spark, workers)


def _look_again(
    check: PartitionCheck, results: list[SegmentResult | KsegError], spark: Any, workers: int | None
) -> tuple[PartitionCheck, list[SegmentResult | KsegError]]:
    """Verify a partition as it is now; what was found in segments that are as they were is used again."""
    now = check.again()
    known = {task.base_offset: (task, result) for task, result in zip(check.tasks, results, strict=True)}
    reused = {}
    for i, task in enumerate(now.tasks):
        before, result = known.get(task.base_offset, (None, None))
        if result is not None and before == task and not task.is_last:
            reused[i] = result
    rest = [task for i, task in enumerate(now.tasks) if i not in reused]
    fresh = iter(run_tasks(verify_segment, rest, spark=spark, workers=workers))
    return now, [reused[i] if i in reused else next(fresh) for i in range(len(now.tasks))]


def _is_stale(check: PartitionCheck) -> bool:
    try:
        return check.is_stale()
    except KsegError:
        return False


def _coordinator(path: str | os.PathLike[str], keys: KeyRing, options: ReadOptions) -> TransactionLog | None:
    """What transaction coordinators say, where their log is beside the others and can be read."""
    try:
        store, directory = open_tiered_store(path, None, keys)
        found = TransactionLog.load(LogDir(store, directory, options=options).partitions)
    except KsegError:
        return None
    return found if found.entries else None
