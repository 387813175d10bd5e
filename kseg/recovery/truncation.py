"""Cut a log back to an offset, as a broker does with a replica that follows a new leader (UnifiedLog.truncateTo).

Segments that begin behind the target go. The last one is cut before the first batch that reaches the target: a target
inside a batch takes the whole batch away. Index entries at or behind the target go, producer state and leader epochs
are taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from kseg.errors import OptionError
from kseg.index.build import IndexBuilder
from kseg.index.epoch import LeaderEpochs
from kseg.index.offset import OffsetIndex
from kseg.index.time import TimeIndex
from kseg.index.txn import TxnIndex
from kseg.log.checkpoints import CheckpointKind
from kseg.log.names import FileKind, segment_file_name
from kseg.native import table as t
from kseg.progress import SILENT, Progress
from kseg.recovery.folder import Content, Folder
from kseg.recovery.loader import Cut, Loader, LoadOptions
from kseg.recovery.plan import (
    CheckpointChange,
    Plan,
    checkpoint_changes,
    put_epochs,
    read_offset,
    settle_files,
    stored_epochs,
)
from kseg.recovery.producers import ProducerSnapshots
from kseg.recovery.recover_segment import cut_segment
from kseg.recovery.segments import LoadedSegment
from kseg.types import TopicPartition

_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.SNAPSHOT)


def plan_truncation(
    directory: Path,
    tp: TopicPartition,
    options: LoadOptions,
    target: int | Callable[[Plan], int],
    *,
    progress: Progress = SILENT,
) -> Plan:
    """Decide how a log is cut back to `target`; it is loaded first, and recovered where it was not shut down cleanly.

    Args:
        target: The first offset that goes, or what tells it of the log once that is loaded.

    Raises:
        OptionError: The target is negative.
        LogError: A broker cannot load this log.
    """
    if isinstance(target, int) and target < 0:
        raise OptionError(f"an offset to truncate to is not negative, got {target}")
    plan = Plan.of(directory, tp)
    stored = stored_epochs(plan)
    plan.loaded = Loader(plan.folder, options, stored or LeaderEpochs(), progress=progress).load()
    end = plan.loaded.log_end
    target = target if isinstance(target, int) else target(plan)
    if target >= end:
        plan.loaded.epochs = plan.loaded.epochs.truncate_from_end(end)  # an epoch may begin at the end
        plan.notes.append(f"the log ends at {end}: nothing to cut")
    elif plan.folder.bases()[0] > target:
        _start_anew(plan, target)
    else:
        _cut_back(plan, options, target)
    put_epochs(plan, stored)
    settle_files(plan)
    limit = min(target, end)
    cleaned = plan.folder.bases()[-1] if target < end else end  # a broker's cleaner never was in the last segment
    plan.checkpoints = tuple(checkpoint_changes(plan, limit, cleaned)) + _log_start_change(plan, limit)
    if limit < end:
        plan.lost = ((max(limit, plan.loaded.log_start), end),)
        plan.loaded.log_end = limit
    plan.loaded.log_start = min(plan.loaded.log_start, limit)
    plan.lost_bytes = sum(cut.size for cut in plan.loaded.cuts) + sum(c.size for _, c in plan.loaded.dropped)
    return plan


def _log_start_change(plan: Plan, limit: int) -> tuple[CheckpointChange, ...]:
    """A log start behind the new end falls to it."""
    start = read_offset(plan.directory.parent, CheckpointKind.LOG_START, plan.tp)
    if start is None or start <= limit:
        return ()
    return (CheckpointChange(CheckpointKind.LOG_START, start, limit),)


def _start_anew(plan: Plan, target: int) -> None:
    """Nothing of the log is below the target: it begins there, empty."""
    _drop(plan, plan.folder.bases())
    for offset in plan.folder.snapshots():
        plan.folder.remove(offset, FileKind.SNAPSHOT)
    plan.folder.files[segment_file_name(target, FileKind.LOG)] = Content(data=b"")
    cut_segment(LoadedSegment(plan.folder, target), IndexBuilder(target), b"")
    plan.loaded.epochs = LeaderEpochs()


def _cut_back(plan: Plan, options: LoadOptions, target: int) -> None:
    folder, loaded = plan.folder, plan.loaded
    state = ProducerSnapshots(folder, now_ms=options.now_ms, expiration_ms=options.config.producer_id_expiration_ms)
    segments = [LoadedSegment(folder, base) for base in folder.bases()]
    state.rebuild(segments, loaded.log_start, loaded.log_end, clean=False)  # as it is in a broker that has loaded it
    _drop(plan, [segment.base_offset for segment in segments if segment.base_offset > target])
    kept = [segment for segment in segments if segment.base_offset <= target]
    _truncate_segment(plan, kept[-1], target)
    loaded.epochs = loaded.epochs.truncate_from_end(target)
    state.rebuild(kept, min(loaded.log_start, target), target, clean=False)


def _drop(plan: Plan, bases: list[int]) -> None:
    for base in bases:
        content = plan.folder.files[segment_file_name(base, FileKind.LOG)]
        plan.loaded.dropped.append((base, content))
        for kind in _KINDS:
            plan.folder.remove(base, kind)


def _truncate_segment(plan: Plan, segment: LoadedSegment, target: int) -> None:
    folder, base = plan.folder, segment.base_offset
    position = segment.translate(target)
    offsets = OffsetIndex.parse(_bytes(folder, base, FileKind.OFFSET_INDEX), base).truncated(target)
    times = TimeIndex.parse(_bytes(folder, base, FileKind.TIME_INDEX), base).truncated(target)
    if position is not None:
        name = segment.log_name
        size = segment.size
        folder.files[name] = folder.files[name].cut(position)
        plan.loaded.cuts.append(Cut(base, position, size - position, target, "truncated"))
    folder.put(base, FileKind.OFFSET_INDEX, offsets.to_bytes())
    folder.put(base, FileKind.TIME_INDEX, _with_largest(segment, offsets, times).to_bytes())
    if folder.get(base, FileKind.TXN_INDEX) is not None:
        aborted = TxnIndex.parse(_bytes(folder, base, FileKind.TXN_INDEX)).truncated(target)
        folder.put(base, FileKind.TXN_INDEX, aborted.to_bytes())


def _with_largest(segment: LoadedSegment, offsets: OffsetIndex, times: TimeIndex) -> TimeIndex:
    """The time index with the segment's greatest timestamp as its last entry, as when a broker closes it."""
    largest, place = times.last_entry
    for chunk in segment.walk(offsets.lookup(place)[1]):
        stamps = chunk.table[t.MAX_TIMESTAMP, : chunk.rows]
        row = int(stamps.argmax())
        if stamps[row] > largest:
            largest, place = int(stamps[row]), int(chunk.table[t.LAST_OFFSET, row])
    if largest <= times.max_timestamp:
        return times
    columns = [*times, (largest, place)]
    return TimeIndex(segment.base_offset, *np.array(columns, np.int64).reshape(-1, 2).T)


def _bytes(folder: Folder, base: int, kind: FileKind) -> bytes:
    name = segment_file_name(base, kind)
    return folder.read_bytes(name) if name in folder.files else b""
