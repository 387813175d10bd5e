"""What a round would save, guessed from a sample of the records that were not cleaned before."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kseg.compaction.config import CleanerConfig, check_integer
from kseg.compaction.effective import check_given, effective_config
from kseg.compaction.policy import check_first_dirty, find_cleanable
from kseg.compaction.report import left_alone
from kseg.compaction.sample import sample_keys
from kseg.errors import KsegError
from kseg.log.checkpoints import CheckpointKind
from kseg.log.partition import Log
from kseg.reports import Report
from kseg.settings.select import PathLike, select_logs
from kseg.settings.values import Refusal
from kseg.tables import Column, format_size, format_table
from kseg.types import TopicPartition

_COLUMNS = (
    Column("PARTITION", at_least=16),
    Column("DIRTY", right=True),
    Column("RATIO", right=True),
    Column("RECORDS ABOUT", right=True, droppable=1),
    Column("KEYS ABOUT", right=True),
    Column("SAVES ABOUT", right=True),
)


@dataclass(frozen=True, slots=True)
class PartitionEstimate(Report):
    """One partition: how much of it is dirty, and what a sample of that says."""

    topic: str
    partition: int
    path: str
    skipped: str | None = None
    error: str | None = None
    is_usual: bool = False
    dirty_bytes: int = 0
    dirty_ratio: float = 0.0
    records: int = 0
    keys: int = 0
    saved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CompactionEstimate(Report):
    """All partitions that were asked for."""

    partitions: tuple[PartitionEstimate, ...]
    seconds: float
    unread: tuple[str, ...] = ()

    @property
    def done(self) -> tuple[PartitionEstimate, ...]:
        """Those that were looked at."""
        return tuple(p for p in self.partitions if p.skipped is None and p.error is None)

    def lines(self, width: int = 80) -> list[str]:
        """The estimate as a table, then what was left alone, and why."""
        rows = [
            (
                f"{p.topic}-{p.partition}",
                format_size(p.dirty_bytes),
                f"{p.dirty_ratio:.2f}",
                p.records,
                p.keys,
                format_size(p.saved_bytes),
            )
            for p in self.done
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        return [*table, *left_alone(self.partitions, self.unread)]


def estimate(
    path: PathLike,
    *,
    topics: Iterable[str] | None = None,
    config: CleanerConfig | None = None,
    settings: Mapping[str, object] | None = None,
    metadata: PathLike | None = None,
    server_properties: PathLike | None = None,
    now_ms: int | None = None,
    first_dirty: int | None = None,
) -> CompactionEstimate:
    """Guess what `compact` would save, from 8 MiB of each partition, at random places; arguments as there."""
    began = time.perf_counter()
    if now_ms is not None:
        check_integer("now_ms", now_ms, 0)
    check_given(config, settings)
    chosen = select_logs(path, topics, settings, metadata, server_properties)
    if first_dirty is not None:
        check_first_dirty(chosen.logs, first_dirty)
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    done = []
    for log in chosen.logs:
        found = effective_config(log, chosen.source, config, told_where=chosen.is_one and first_dirty is not None)
        done.append(_estimate(log, found, now_ms, first_dirty))
    return CompactionEstimate(tuple(done), time.perf_counter() - began, chosen.unread())


def _estimate(log: Log, config: CleanerConfig | Refusal, now_ms: int, told: int | None) -> PartitionEstimate:
    name = log.topic, log.partition, log.directory
    if isinstance(config, Refusal):
        return PartitionEstimate(*name, skipped=config.reason, is_usual=config.is_usual)
    try:
        checkpoint = log.checkpoints.get(CheckpointKind.CLEANER, TopicPartition(log.topic, log.partition))
        cleanable = find_cleanable(log, checkpoint if told is None else told, config, now_ms)
        segments = [s for s in log.segments if s.base_offset < cleanable.first_uncleanable]
        floor = max((s.base_offset for s in segments if s.base_offset <= cleanable.first_dirty), default=0)
        sample = sample_keys([s for s in segments if s.base_offset >= floor], closely=True)
    except KsegError as error:
        return PartitionEstimate(*name, error=str(error))
    superseded = 1 - sample.keys / sample.records if sample.records else 0.0
    return PartitionEstimate(
        *name,
        skipped=cleanable.why_not(0.0 if told is not None else config.min_cleanable_dirty_ratio),
        is_usual=True,
        dirty_bytes=cleanable.cleanable_bytes,
        dirty_ratio=cleanable.dirty_ratio,
        records=sample.records,
        keys=sample.keys,
        saved_bytes=int(superseded * cleanable.cleanable_bytes),
    )
