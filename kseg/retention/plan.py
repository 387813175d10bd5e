"""Which segments retention deletes: Kafka's rules, over numbers alone.

The rules run one after the other, each from the oldest segment on, and each stops at the first segment that it keeps:

| rule    | a segment goes if                                                                         | policy |
|---------|-------------------------------------------------------------------------------------------|--------|
| `start` | the next segment begins at or before the log start                                        | any    |
| `size`  | without it the log still has retention.bytes (-1: never)                                  | delete |
| `time`  | its largest timestamp is older than retention.ms (-1: never), by more than 0 ms           | delete |

None goes that holds offsets at or above the high watermark, nor an empty last one. Where all go, an empty segment
is made at the log end first. A timestamp in the future keeps its segment, and all behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

NO_LIMIT: Final = -1


class Rule(StrEnum):
    """Why a segment goes."""

    START = "start"
    SIZE = "size"
    TIME = "time"


class Candidate(Protocol):
    """What the rules look at; the largest timestamp is asked for only where the rules get that far."""

    @property
    def base_offset(self) -> int:
        """The first offset."""

    @property
    def size(self) -> int:
        """Bytes of the log file."""

    @property
    def largest_timestamp(self) -> int:
        """The greatest timestamp of a record; the file's mtime where none has one."""


class LogSegment(Candidate, Protocol):
    """A segment as it is on disk."""

    @property
    def sound_size(self) -> int:
        """Bytes up to where the batches end."""


@dataclass(frozen=True, slots=True)
class _Sound:
    """The last segment without what a crash left behind its batches, as a broker has it that has started."""

    segment: LogSegment

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def size(self) -> int:
        return self.segment.sound_size

    @property
    def largest_timestamp(self) -> int:
        return self.segment.largest_timestamp


def candidates_of(segments: Sequence[LogSegment]) -> list[Candidate]:
    """What the rules look at of the segments on disk; zeros or half a batch at the end of the last one are no log."""
    return [*segments[:-1], *(_Sound(segment) for segment in segments[-1:])]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much is kept; `deletes` is whether cleanup.policy has `delete` in it."""

    deletes: bool
    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Where a log starts and ends, and up to where it is replicated."""

    start_offset: int
    end_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What goes, oldest first, with the rule that it falls under.

    Attributes:
        start_offset: The log start afterwards.
        new_base_offset: Where an empty segment has to be made first, because all others go; else None.
    """

    doomed: tuple[tuple[int, Rule], ...]
    start_offset: int
    new_base_offset: int | None = None


@dataclass(frozen=True, slots=True)
class _Empty:
    """The segment that is made where all others go."""

    base_offset: int
    size: int = 0
    largest_timestamp: int = 0


def plan_retention(segments: Sequence[Candidate], facts: LogFacts, limits: Limits, *, now_ms: int) -> RetentionPlan:
    """Decide what retention deletes.

    Args:
        segments: By base offset, all of the log.
    """
    kept: list[Candidate] = list(segments)
    doomed: list[tuple[int, Rule]] = []
    start = facts.start_offset
    new_base: int | None = None
    for rule in Rule if limits.deletes else (Rule.START,):
        test = _test_of(rule, kept, start, limits, now_ms)
        count = 0 if test is None else _count_deletable(kept, facts, test)
        if not count:
            continue
        doomed += [(segment.base_offset, rule) for segment in kept[:count]]
        if count == len(kept):
            new_base = facts.end_offset
            kept.append(_Empty(new_base))
        kept = kept[count:]
        start = max(start, kept[0].base_offset)
    return RetentionPlan(tuple(doomed), start, new_base)


_Test = Callable[[Candidate, Candidate | None], bool]


def _count_deletable(segments: Sequence[Candidate], facts: LogFacts, test: _Test) -> int:
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        is_empty_last = following is None and not segment.size
        bound = facts.end_offset if following is None else following.base_offset
        if is_empty_last or facts.high_watermark < bound or not test(segment, following):
            return number
    return len(segments)


def _test_of(rule: Rule, segments: Sequence[Candidate], start: int, limits: Limits, now_ms: int) -> _Test | None:
    if rule is Rule.START:
        return lambda _, following: following is not None and following.base_offset <= start
    if rule is Rule.SIZE:
        return _size_test(sum(segment.size for segment in segments), limits.retention_bytes)
    if limits.retention_ms < 0:
        return None
    return lambda segment, _: now_ms - segment.largest_timestamp > limits.retention_ms


def _size_test(log_bytes: int, retention_bytes: int) -> _Test | None:
    if retention_bytes < 0 or log_bytes < retention_bytes:
        return None
    excess = log_bytes - retention_bytes

    def test(segment: Candidate, _: Candidate | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return test
