"""What one round of cleaning covers: pure decisions, by the rules of Kafka's LogCleanerManager and Cleaner."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kseg.compaction.config import CleanerConfig, check_integer
from kseg.errors import KsegError, OptionError, SegmentOverlapError
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.native import table as t

MAX_RELATIVE_OFFSET: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """The part of a log that one round cleans.

    Attributes:
        first_dirty: Where records begin that no round has seen.
        first_uncleanable: Where the round ends: always the base offset of a segment.
        clean_bytes: Bytes of the segments that begin before `first_dirty`.
        cleanable_bytes: Bytes of those from the one that holds it on. It counts in both, as in Kafka.
        must_compact_now: Records are older than max.compaction.lag.ms allows.
        checkpoint_was_wrong: The checkpoint lay outside of the log; the round starts at the log's start.
        is_young: The round ends there because records behind it are younger than min.compaction.lag.ms asks for.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    must_compact_now: bool
    checkpoint_was_wrong: bool = False
    is_young: bool = False

    @property
    def dirty_ratio(self) -> float:
        """The share that was not cleaned before."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def why_not(self, min_dirty_ratio: float) -> str | None:
        """Why there is nothing to do; None where there is."""
        if not self.cleanable_bytes and self.is_young:
            return "nothing to clean yet: what was not cleaned before is younger than min.compaction.lag.ms"
        if not self.cleanable_bytes:
            return "nothing to clean: no sealed segment holds stable records that were not cleaned before"
        if self.dirty_ratio > min_dirty_ratio or self.must_compact_now:
            return None
        return f"dirty ratio {self.dirty_ratio:.2f} is not above min.cleanable.dirty.ratio {min_dirty_ratio}"


def find_cleanable(log: Log, checkpoint: int | None, config: CleanerConfig, now_ms: int) -> CleanableRange:
    """The range that Kafka's cleaner would clean now.

    Args:
        checkpoint: Where the last round ended; None where there was none.
    """
    segments = log.segments
    wrong = checkpoint is not None and not log.start_offset <= checkpoint <= log.end_offset
    first_dirty = log.start_offset if checkpoint is None or wrong else checkpoint
    active = segments[-1].base_offset if segments else log.end_offset  # where a broker would make the first one
    dirty = [s for s in _from(segments, first_dirty) if s.base_offset < active]
    bounds = [log.last_stable_offset, active]
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        bounds += [s.base_offset for s in dirty if s.largest_timestamp > youngest][:1]
    is_young = min(bounds) < min(bounds[:2])
    end = max(min(bounds), first_dirty)
    end = max((s.base_offset for s in segments if s.base_offset <= end), default=active)
    oldest = now_ms - config.max_compaction_lag_ms
    late = any(0 < first_timestamp(s) < oldest for s in dirty) if oldest > 0 else False
    clean = sum(s.size for s in segments if s.base_offset < first_dirty)
    cleanable = sum(s.size for s in _from(segments, first_dirty) if s.base_offset < end)
    return CleanableRange(first_dirty, end, clean, cleanable, late, wrong, is_young)


def check_first_dirty(logs: Iterable[Log], first_dirty: int) -> None:
    """Check where a caller says that dirty records begin; below the log start it means that.

    Raises:
        OptionError: That is no offset, or behind the end of the log.
    """
    check_integer("first_dirty", first_dirty, 0)
    for log in logs:
        try:
            end = log.end_offset
        except KsegError:  # of a damaged log the round tells
            continue
        if first_dirty > end:
            raise OptionError(f"first_dirty is {first_dirty}, and {log.topic}-{log.partition} ends at offset {end}")


def _from(segments: Sequence[Segment], offset: int) -> list[Segment]:
    """The segments from the one that holds `offset` on."""
    floor = max((i for i, segment in enumerate(segments) if segment.base_offset <= offset), default=0)
    return list(segments[floor:])


def first_timestamp(segment: Segment) -> int:
    """The greatest timestamp of a segment's first batch, -1 where it is empty."""
    if not segment.size:
        return -1
    with segment.open() as file:
        for chunk in segment.walk(file, hint=t.HEADER_SIZE):
            return int(chunk.table[t.MAX_TIMESTAMP, 0])
    return -1


def group_segments(segments: Sequence[Segment], config: CleanerConfig, first_uncleanable: int) -> list[list[Segment]]:
    """Which segments become one: neighbours that fit a segment as they are, and whose offsets span less than 2^31.

    What is in a tier and what is local stay apart.
    """
    groups: list[list[Segment]] = []
    log_bytes = index_bytes = time_bytes = 0
    for i, segment in enumerate(segments):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else first_uncleanable
        index, times = 8 * len(segment.offset_index), 12 * len(segment.time_index)
        fits = bool(groups) and (
            segment.tier == groups[-1][-1].tier
            and log_bytes + segment.size <= config.segment_bytes
            and index_bytes + index <= config.segment_index_bytes
            and time_bytes + times <= config.segment_index_bytes
            and (segment.size == 0 or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if not fits:
            groups.append([])
            log_bytes = index_bytes = time_bytes = 0
        groups[-1].append(segment)
        log_bytes, index_bytes, time_bytes = log_bytes + segment.size, index_bytes + index, time_bytes + times
    return groups


def check_overlaps(segments: Sequence[Segment]) -> None:
    """Check that no segment reaches into the next one.

    The offset of a segment's last batch is under no checksum, and nothing follows it in its file. Where a bit of it was
    flipped, a record would supersede later ones.

    Raises:
        SegmentOverlapError: One does.
    """
    for segment, following in itertools.pairwise(segments):
        if segment.next_offset > following.base_offset:
            raise SegmentOverlapError(
                f"offsets up to {segment.next_offset - 1} reach into the next segment, of base {following.base_offset}",
                path=segment.path,
                offset=segment.next_offset - 1,
                hint="'kseg verify' shows what is sound",
            )
