"""Which segments of a tier expire: the rules of a broker's RemoteLogManager, over numbers alone.

Segments are looked at by the leader epochs of the partition's lineage, in each from the oldest on, until one is found
that stays:

| rule      | a segment goes if                                                                                    |
|-----------|------------------------------------------------------------------------------------------------------|
| `start`   | it ends below the log start, and its epochs are not above the lineage's first                        |
| `time`    | it is on the lineage, and its largest timestamp is older than retention.ms (-1: never)               |
| `size`    | it is on the lineage, and without it tier and local log still have retention.bytes (-1: never)       |
| `lineage` | all its epochs are older than the lineage's first: an unclean election has left it, or a log start   |

One that is on another lineage is passed over, and neither goes nor ends the search. What was only begun to be copied
is looked at like the others. Time and size move the log start up behind what goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kseg.retention.plan import Limits
from kseg.tiering.metadata_records import COPY_FINISHED, COPY_STARTED, DELETE_STARTED, SegmentRecord
from kseg.tiering.segments import Epochs, is_on_lineage, written_epochs


class RemoteRule(StrEnum):
    """Why a segment goes."""

    START = "start"
    TIME = "time"
    SIZE = "size"
    LINEAGE = "lineage"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What the rules have to know of a partition.

    Attributes:
        lineage: Its leader epochs; those before the log start may be gone.
        local_only_bytes: Of the local segments that are not in the tier.
    """

    start_offset: int
    end_offset: int
    lineage: Epochs
    local_only_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RemoteRetentionPlan:
    """What goes, in the order in which it was found; and the log start afterwards."""

    doomed: tuple[tuple[SegmentRecord, RemoteRule], ...]
    start_offset: int


def plan_remote_retention(
    segments: Sequence[SegmentRecord], facts: PartitionFacts, limits: Limits, *, now_ms: int
) -> RemoteRetentionPlan:
    """Decide what remote retention deletes, of segments that nobody has begun to delete.

    Args:
        segments: All that were ever told of, in the order in which they were.
    """
    lineage = written_epochs(facts.lineage)
    excess = _excess(segments, facts, lineage, limits)
    expired_before = now_ms - limits.retention_ms if limits.deletes and limits.retention_ms >= 0 else -1
    doomed: dict[str, tuple[SegmentRecord, RemoteRule]] = {}
    start = facts.start_offset
    for found in _by_epoch(segments, lineage):
        if found.segment_id in doomed:
            continue
        rule = None
        if all(epoch.epoch <= lineage[0].epoch for epoch in found.epochs) and found.end_offset < facts.start_offset:
            rule = RemoteRule.START
        elif is_valid(found, facts.end_offset, lineage):
            if found.max_timestamp_ms < expired_before:
                rule, excess = RemoteRule.TIME, max(0, excess - found.size)
            elif 0 < excess >= found.size:
                rule, excess = RemoteRule.SIZE, excess - found.size
            if rule is None:
                break
            start = max(start, found.end_offset + 1)
        if rule is not None:
            doomed[found.segment_id] = (found, rule)
    for found in sorted(segments, key=lambda s: s.start_offset):
        if found.state not in (COPY_STARTED, COPY_FINISHED):
            continue
        if facts.lineage and all(epoch.epoch < facts.lineage[0].epoch for epoch in found.epochs):
            doomed.setdefault(found.segment_id, (found, RemoteRule.LINEAGE))
    return RemoteRetentionPlan(tuple(doomed.values()), start)


def is_valid(found: SegmentRecord, end_offset: int, lineage: Epochs) -> bool:
    """Whether a segment is a part of the log, as RemoteLogManager.isRemoteSegmentWithinLeaderEpochs decides it.

    Args:
        lineage: The partition's leader epochs that wrote something.
    """
    last = written_epochs(found.epochs)[-1].epoch
    if not lineage[0].epoch <= last <= lineage[-1].epoch or found.end_offset >= end_offset:
        return False
    return is_on_lineage(found.epochs, found.end_offset + 1, lineage)


def highest_copied(segments: Sequence[SegmentRecord], history: Epochs, end_offset: int) -> int:
    """The last offset that was ever copied, on the lineage; -1 where none was. What is being deleted counts too.

    Args:
        history: The partition's leader epochs.
        end_offset: Of the log.
    """
    lineage = written_epochs(history)
    for place in reversed(range(len(lineage))):
        epoch = lineage[place].epoch
        parts = [_part_of(found, epoch) for found in segments if found.state != COPY_STARTED]
        ends = [part[1] for part in parts if part is not None]
        if ends:
            following = lineage[place + 1].start_offset if place + 1 < len(lineage) else end_offset
            return min(max(ends), following - 1)
    return -1


def _part_of(found: SegmentRecord, epoch: int) -> tuple[int, int] | None:
    """The first and the last offset of an epoch in a segment, if the segment has one."""
    for place, entry in enumerate(found.epochs):
        if entry.epoch == epoch:
            is_last = place + 1 == len(found.epochs)
            return entry.start_offset, found.end_offset if is_last else found.epochs[place + 1].start_offset - 1
    return None


def _by_epoch(segments: Sequence[SegmentRecord], lineage: Epochs) -> Iterator[SegmentRecord]:
    """The segments of each epoch of the lineage, oldest first; one that spans two epochs comes twice."""
    for entry in lineage:
        yield from _listed(segments, entry.epoch)


def _listed(segments: Sequence[SegmentRecord], epoch: int) -> list[SegmentRecord]:
    """The segments of an epoch in the order in which a broker's RemoteLogLeaderEpochState lists them.

    By where the epoch begins in them; as soon as one of them is no valid copy, or was covered by a later one, by where
    they begin themselves. Of two copies that begin alike and do not cover each other, only the later is known.
    """
    valid: dict[int, SegmentRecord] = {}
    others: list[SegmentRecord] = []
    highest = -1
    for found in segments:
        if (part := _part_of(found, epoch)) is None:
            continue
        start, end = part
        if found.state == COPY_STARTED:
            others.append(found)
            continue
        while valid and highest <= end and (last := next(reversed(valid))) >= start:
            others.append(valid.pop(last))
        is_in_order = not valid or next(reversed(valid)) < start
        valid[start] = found
        if not is_in_order:
            valid = dict(sorted(valid.items()))
        highest = max(highest, end)
    listed = [*valid.values(), *sorted(others, key=lambda found: (found.start_offset, found.end_offset))]
    if others or any(found.state == DELETE_STARTED for found in listed):
        listed.sort(key=lambda found: found.start_offset)
    return [found for found in listed if found.state in (COPY_STARTED, COPY_FINISHED)]


def _excess(segments: Sequence[SegmentRecord], facts: PartitionFacts, lineage: Epochs, limits: Limits) -> int:
    """Bytes that tier and local log have above retention.bytes."""
    if not limits.deletes or limits.retention_bytes < 0:
        return 0
    epochs = {entry.epoch for entry in lineage}
    valid = [
        found
        for found in segments
        if found.state == COPY_FINISHED
        and any(entry.epoch in epochs for entry in found.epochs)
        and is_valid(found, facts.end_offset, lineage)
    ]
    return max(0, facts.local_only_bytes + sum(found.size for found in valid) - limits.retention_bytes)
