"""Offload: sealed segments of a stopped broker's directory, or of a copy of one, to a tier."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kseg.errors import KsegError, LockedError, OptionError
from kseg.log.lock import DirLock
from kseg.log.partition import Log
from kseg.log.staging import staging, write_nonce
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks, spark_failures
from kseg.settings.select import PathLike, Selection, select_logs
from kseg.settings.values import Refusal
from kseg.tiering.crypto import KeyRing
from kseg.tiering.layout import LAYOUTS, Layout
from kseg.tiering.local_files import partition_session
from kseg.tiering.local_retention import delete_local
from kseg.tiering.metadata_writer import MetadataTopic, NoTopic, StoppedTopic, choose_topic
from kseg.tiering.objects import RetryPolicy, check_remote
from kseg.tiering.offload_partition import PartitionRun
from kseg.tiering.offload_report import OffloadReport
from kseg.tiering.upload import DEFAULT_CHUNK_SIZE, TierOptions, UploadTask, upload_segment

SETTINGS: Final = (
    "remote.storage.enable",
    "cleanup.policy",
    "local.retention.ms",
    "local.retention.bytes",
    "retention.ms",
    "retention.bytes",
)
WAVE: Final = 8
"""Segments of a partition that are announced, copied and finished together: a run that dies does no more again."""


@spark_failures()
def offload(
    path: PathLike,
    remote: str,
    *,
    spark: Any = None,
    layout: Layout = "chunked",
    topics: Iterable[str] | None = None,
    settings: Mapping[str, object] | None = None,
    metadata: PathLike | None = None,
    server_properties: PathLike | None = None,
    remote_metadata: Sequence[PathLike] = (),
    remote_metadata_partitions: int | None = None,
    bootstrap_server: str | None = None,
    archive: bool = False,
    delete_local: bool = False,
    verify: bool = False,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    compression: bool = True,
    encrypt: tuple[str, PathLike] | None = None,
    keys: Mapping[str, PathLike] | None = None,
    allow_shared_keys: bool = False,
    max_bytes_per_second: float | None = None,
    retry: RetryPolicy | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> OffloadReport:
    """Copy sealed segments below the last stable offset to a tier, oldest first, as a broker's own tiering does.

    Refused, with the reason in the report, is a topic whose remote.storage.enable is not known to be true: a broker
    would move its log start up. A run that died is continued by the next one.

    Args:
        path: A local log directory, a tree of them, or one partition.
        remote: The tier: a URI (s3://, gs://, abfs://, ...) or a local path.
        spark: A session to run on; None runs in threads of this process.
        layout: `chunked` is that of Aiven's plugin, `plain` that of Kafka's LocalTieredStorage.
        topics: These only; by default all but internal ones, or that of `path` where it is one partition.
        settings: Values by Kafka's names for the topics that were named.
        metadata: A log directory that holds `__cluster_metadata-0`, or that directory itself.
        server_properties: The configuration file of the broker whose directories these are.
        remote_metadata: Log directories of all brokers that hold `__remote_log_metadata`; by default that of `path`.
        remote_metadata_partitions: How many partitions that topic has, where no metadata log tells.
        bootstrap_server: Write the records about the copies to this live cluster instead.
        archive: Write no such records: no broker will ever load these directories again.
        delete_local: Delete local segments by local.retention.ms and local.retention.bytes, each after its copy was
            read back and its records are durable.
        verify: Read every copy back.
        chunk_size: Of `chunked`, in bytes.
        compression: Whether chunks are compressed with zstd.
        encrypt: Id and file of the public key that wraps the data keys.
        keys: Files of private keys by id, to read back what an earlier run has encrypted.
        allow_shared_keys: Take key files that others can read.
        max_bytes_per_second: For each task.
        now_ms: The clock, in milliseconds; by default the system's.
        dry_run: Change nothing, and report what would be done.
        workers: Threads; by default one per core.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: An argument is wrong, or there is no partition at `path`.
        JobError: Spark failed.
    """
    began = time.monotonic()
    check_remote(remote)
    if layout not in LAYOUTS:
        raise OptionError(f"unknown layout {layout!r}; valid values are {', '.join(LAYOUTS)}")
    if layout == "plain" and encrypt is not None:
        raise OptionError("the plain layout knows no encryption", hint="use the chunked layout")
    if archive and bootstrap_server is not None:
        raise OptionError("archive says that no broker needs records, and bootstrap_server names one")
    chosen = select_logs(path, topics, settings, metadata, server_properties)
    options = TierOptions(
        remote if "://" in remote else os.path.abspath(remote),  # noqa: PTH100  (links stay as they are written)
        layout,
        chunk_size,
        compression,
        None if encrypt is None else (encrypt[0], os.fspath(encrypt[1])),
        KeyRing(keys, allow_shared=allow_shared_keys),
        max_bytes_per_second,
        retry or RetryPolicy(),
    )
    topic = choose_topic(chosen, remote_metadata, remote_metadata_partitions, bootstrap_server, archive=archive)
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    job = _Job(chosen, options, topic, now_ms, delete_local, verify or delete_local, dry_run, spark, workers, progress)
    with ExitStack() as stack:
        for parent in () if dry_run else sorted({str(Path(log.directory).parent) for log in chosen.logs}):
            stack.enter_context(DirLock(parent))
        if isinstance(topic, StoppedTopic) and not dry_run:
            topic.complete(now_ms=now_ms)
        job.run(stack)
    return job.report(time.monotonic() - began)


@dataclass(slots=True)
class _Job:
    """One call of `offload`."""

    chosen: Selection
    options: TierOptions
    topic: MetadataTopic
    now_ms: int
    delete_local: bool
    verify: bool
    dry_run: bool
    spark: Any
    workers: int | None
    progress: Progress
    runs: list[PartitionRun] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def run(self, stack: ExitStack) -> None:
        """Plan for every partition, copy, and delete what may go."""
        for log in self.chosen.logs:
            refusal = self._refuse(log)
            if refusal is None:
                refusal = self._open(log, stack)
            if refusal is not None:
                self.refusals.append(refusal)
        if not self.dry_run:
            self._copy(stack)
        if self.delete_local:
            for run in self.runs:
                self._delete(run)

    def _refuse(self, log: Log) -> Refusal | None:
        if isinstance(self.topic, NoTopic):
            return self.chosen.source.refuse_topic(log.topic)
        optional = ["cleanup.policy", "remote.log.copy.disable"]
        found = self.chosen.source.resolve_log(log, ["remote.storage.enable"], optional=optional)
        if isinstance(found, Refusal):
            return found
        reason = None
        if not found["remote.storage.enable"]:
            reason = "remote.storage.enable is false: a broker would not look into the tier"
        elif "compact" in found.policy and str(found.origins["cleanup.policy"]) != "assumed":
            reason = "it is compacted, and Kafka does not tier compacted topics"
        elif found["remote.log.copy.disable"]:
            reason = "remote.log.copy.disable is true"
        elif log.topic.startswith("__"):
            reason = "Kafka does not tier internal topics"
        if reason is None and log.topic_id is not None:
            reason = self.topic.refusal(log.topic_id, log.partition)
        return None if reason is None else Refusal(f"{log.topic}-{log.partition}", reason)

    def _open(self, log: Log, stack: ExitStack) -> Refusal | None:
        try:
            session = None if self.dry_run else stack.enter_context(partition_session(log))
            log.refresh()
            for problem in log.checkpoints.problems:  # a high watermark that is not known would protect nothing
                raise problem
            run = PartitionRun(log, session, self.topic, self.options, now_ms=self.now_ms, verify=self.verify)
            if session is not None:
                run.settle()
        except (LockedError, OptionError):
            raise
        except KsegError as error:
            return Refusal(f"{log.topic}-{log.partition}", str(error), is_damage=True)
        self.runs.append(run)
        return None if run.refusal is None else Refusal(f"{log.topic}-{log.partition}", run.refusal)

    def _copy(self, stack: ExitStack) -> None:
        tier = self.options.open()
        self.progress.begin("offload", sum(record.size for run in self.runs for record in run.pending))
        stack.callback(self.progress.end)
        nonces = self._nonces(stack)
        while True:
            waves = [(run, self._begin(run, nonces.get(run.log.directory))) for run in self.runs if run.pending]
            tasks = [task for _, wave in waves for task in wave]
            if not tasks:
                return
            sizes = [task.record.size for task in tasks]
            results = run_tasks(
                upload_segment, tasks, spark=self.spark, workers=self.workers, progress=self.progress, weights=sizes
            )
            for run, wave in waves:
                with _failing(run):
                    run.finish(tier, results[: len(wave)])
                results = results[len(wave) :]

    def _begin(self, run: PartitionRun, nonce: tuple[str, bytes] | None) -> list[UploadTask]:
        wave: list[UploadTask] = []
        with _failing(run):
            wave = run.begin(WAVE, nonce)
        return wave

    def _nonces(self, stack: ExitStack) -> dict[str, tuple[str, bytes]]:
        """Proofs for tasks of other machines that they see these directories."""
        found: dict[str, tuple[str, bytes]] = {}
        for run in self.runs if self.spark is not None else ():
            folder = stack.enter_context(staging(Path(run.log.directory)))
            found[run.log.directory] = (str(folder), write_nonce(folder))
        return found

    def _delete(self, run: PartitionRun) -> None:
        until = None
        if self.dry_run and run.pending:
            until = run.pending[-1].end_offset + 1
        with _failing(run):
            options = {"copied_until": until, "dry_run": self.dry_run, "spark": self.spark, "workers": self.workers}
            self.refusals += delete_local(run, self.chosen.source, **options)[1]

    def report(self, seconds: float) -> OffloadReport:
        """What was done."""
        partitions = tuple(run.report(dry_run=self.dry_run) for run in self.runs)
        segments = [segment for found in partitions for segment in found.segments]
        return OffloadReport(
            self.dry_run,
            self.options.remote,
            self.options.layout,
            partitions,
            tuple(dict.fromkeys(self.refusals)),
            len(segments),
            sum(segment.bytes for segment in segments),
            sum(segment.stored_bytes for segment in segments),
            sum(len(found.deleted) for found in partitions),
            sum(found.freed_bytes for found in partitions),
            seconds,
            self.chosen.unread(),
        )


@contextmanager
def _failing(run: PartitionRun) -> Iterator[None]:
    """Note an error, and let the other partitions go on."""
    try:
        yield
    except LockedError:
        raise
    except KsegError as error:
        run.error = str(error)
        run.pending = []
