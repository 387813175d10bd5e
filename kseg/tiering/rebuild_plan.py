"""Which segments of a partition the metadata topic has to be told of.

| a segment in the tier                                          | what is done                                   |
|----------------------------------------------------------------|------------------------------------------------|
| finished, by the metadata                                      | nothing                                        |
| begun, or being deleted, by the metadata                       | nothing: brokers go on with it                 |
| not complete, or damaged                                       | nothing                                        |
| before the log start                                           | nothing: brokers would delete it from the tier |
| one of several over its offsets, and readers choose another    | nothing                                        |
| whose offsets finished segments have                           | nothing                                        |
| any other                                                      | STARTED and FINISHED are written               |
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kseg.errors import FormatError
from kseg.tiering.fsck_checks import SegmentCheck, check_segment
from kseg.tiering.listing import plain_segment, read_manifest
from kseg.tiering.metadata_records import COPY_FINISHED, SegmentRecord
from kseg.tiering.objects import open_tier
from kseg.tiering.segments import Epochs, RemoteSegment, choose_segments


@dataclass(frozen=True, slots=True)
class Inspected:
    """What the objects of a complete segment say of it; `broker_id` is None where they do not tell."""

    next_offset: int
    max_timestamp_ms: int
    broker_id: int | None


def inspect_segment(check: SegmentCheck) -> Inspected:
    """Check a complete segment against its manifest or its index, and say what its records need.

    Raises:
        KsegError: It is damaged.
    """
    end = check_segment(check)
    tier = open_tier(check.remote, retry=check.retry)
    if check.group.layout == "plain":
        assert end is not None
        return Inspected(end, check.retry.run(lambda: plain_segment(tier, check.group).largest_timestamp), None)
    told = read_manifest(tier, check.group).metadata
    if told is None:
        raise FormatError("the manifest does not say which segment it is of", path=check.group.name.stem)
    return Inspected(told.end_offset + 1, told.max_timestamp_ms, told.broker_id)


@dataclass(slots=True)
class RebuildPlan:
    """The segments to tell of, by offset; and why others are passed over, by their ids."""

    segments: list[RemoteSegment] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)


def plan_rebuild(
    found: Sequence[RemoteSegment],
    known: Mapping[str, SegmentRecord],
    *,
    log_start: int,
    lineage: Callable[[], Epochs],
    epochs_of: Callable[[RemoteSegment], Epochs],
) -> RebuildPlan:
    """Decide by the table above.

    Args:
        found: The complete, sound segments of the partition, with their ends.
        known: What the metadata says, by segment id.
        log_start: Where the log starts, by the brokers' checkpoints.
    """
    plan = RebuildPlan()
    finished = [_informed(s, known[s.name.segment_id]) for s in found if _is_finished(s, known)]
    pool = list(finished)
    for segment in found:
        told = known.get(segment.name.segment_id)
        if told is not None and told.state != COPY_FINISHED:
            plan.passed_over[segment.name.segment_id] = "the metadata says that its copy or deletion was begun"
        elif told is None and (segment.next_offset or 0) <= log_start:
            plan.passed_over[segment.name.segment_id] = f"the log starts at {log_start}: brokers would delete it"
        elif told is None:
            pool.append(segment)
    chosen = _closed(choose_segments(pool, None, lineage=lineage, epochs_of=epochs_of))
    ids = {segment.name.segment_id for segment in chosen}
    for segment in pool:
        if segment.name.segment_id not in ids and segment.name.segment_id not in known:
            plan.passed_over[segment.name.segment_id] = "other segments hold its offsets, and readers choose those"
    for segment in chosen:
        if segment.name.segment_id in known:
            continue
        if _is_covered(segment, finished):
            plan.passed_over[segment.name.segment_id] = "segments that the metadata knows hold its offsets"
        else:
            plan.segments.append(segment)
    return plan


def _is_finished(segment: RemoteSegment, known: Mapping[str, SegmentRecord]) -> bool:
    told = known.get(segment.name.segment_id)
    return told is not None and told.state == COPY_FINISHED


def _informed(segment: RemoteSegment, told: SegmentRecord) -> RemoteSegment:
    return replace(segment, next_offset=told.end_offset + 1, leader_epochs=told.epochs)


def _closed(chosen: Sequence[RemoteSegment]) -> list[RemoteSegment]:
    """Let segments whose objects do not tell where they end, end where the next one begins, as readers take it."""
    return [
        replace(segment, next_offset=after.start_offset)
        if segment.layout == "plain" and after is not None and (segment.next_offset or 0) < after.start_offset
        else segment
        for segment, after in itertools.zip_longest(chosen, chosen[1:])
    ]


def _is_covered(segment: RemoteSegment, finished: Sequence[RemoteSegment]) -> bool:
    reached = segment.start_offset
    for other in sorted(finished, key=lambda s: s.start_offset):
        if other.start_offset <= reached:
            reached = max(reached, other.next_offset or 0)
    return reached >= (segment.next_offset or 0)
