"""Delete local segments whose copies are proved, as a broker's local retention does: the log start stays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kseg import durable
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, update_checkpoint
from kseg.log.names import FileState, segment_file_name
from kseg.log.partition import Log
from kseg.log.writer_place import partition_path
from kseg.log.writer_session import WriteSession
from kseg.retention.apply import doomed_files
from kseg.retention.plan import NO_LIMIT, Limits, LogFacts, RetentionPlan, candidates_of, plan_retention
from kseg.settings.source import SettingsSource
from kseg.settings.values import Origin, Refusal, TopicSettings

INHERITED = -2  # local.retention.*: that of the whole log


@contextmanager
def partition_session(log: Log) -> Iterator[WriteSession]:
    """The right to change a partition."""
    directory, tp = partition_path(log.directory)
    session = WriteSession(directory.parent, tp)
    failed = True
    try:
        yield session
        failed = False
    finally:
        session.end(failed=failed)


def plan_local_deletion(
    log: Log, limits: Limits, *, copied_until: int, now_ms: int, start_offset: int | None = None
) -> RetentionPlan:
    """Which local segments go: Kafka's rules with the local limits, and none that is not in the tier.

    Args:
        copied_until: The offset behind the last one of which the tier has a copy.
        start_offset: What the log start will be, where it is not yet.
    """
    start = log.start_offset if start_offset is None else start_offset
    bound = max(min(log.high_watermark, copied_until), start)
    facts = LogFacts(start, log.end_offset, bound)
    return plan_retention(candidates_of(log.segments), facts, limits, now_ms=now_ms)


def resolve_local_limits(log: Log, source: SettingsSource) -> Limits | Refusal:
    """`local.retention.ms` and `local.retention.bytes`, or what they inherit; or why they are not known.

    Where one of them was given for this topic, the other may be unknown, and does not apply then.
    """
    found = {unit: _local_limit(log, source, unit) for unit in ("ms", "bytes")}
    refusals = [limit for limit in found.values() if isinstance(limit, Refusal)]
    is_given = any(not isinstance(limit, Refusal) and limit[1] is Origin.GIVEN for limit in found.values())
    if refusals and not is_given:
        return refusals[0]
    values = {unit: NO_LIMIT if isinstance(limit, Refusal) else limit[0] for unit, limit in found.items()}
    return Limits(True, values["ms"], values["bytes"])


def _local_limit(log: Log, source: SettingsSource, unit: str) -> tuple[int, Origin] | Refusal:
    for name in (f"local.retention.{unit}", f"retention.{unit}"):
        found = source.resolve_log(log, [name])
        if not isinstance(found, TopicSettings):
            return found
        if (value := found.integer(name)) != INHERITED:
            return value, found.origins[name]
    return NO_LIMIT, Origin.DEFAULT


def apply_local_deletion(log: Log, plan: RetentionPlan, session: WriteSession) -> int:
    """Delete what a plan says, durably; return the bytes that are freed.

    The log start is in its checkpoint, where it is not yet, before the first file goes: without it a broker would take
    the first local segment for the log's start, and drop what is in the tier.
    """
    directory = Path(log.directory)
    files = doomed_files(log, plan)
    starts = read_checkpoint(log.store, str(directory.parent), CheckpointKind.LOG_START) or {}
    session.begin_changes()
    if session.tp not in starts:
        update_checkpoint(str(directory.parent), CheckpointKind.LOG_START, {session.tp: log.start_offset})
    for _, of_segment in itertools.groupby(files, key=lambda file: file.base_offset):
        for file in of_segment:
            gone = segment_file_name(file.base_offset, file.kind, FileState.DELETED)
            durable.rename(directory / segment_file_name(file.base_offset, file.kind), directory / gone)
        durable.fsync_dir(directory)  # each before the next: a hole between local segments would hide what the tier has
    for file in files:
        durable.unlink(directory / segment_file_name(file.base_offset, file.kind, FileState.DELETED))
    durable.fsync_dir(directory)
    log.refresh()
    return sum(file.size for file in files)
