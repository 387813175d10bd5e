"""Which segments are copied to the tier: Kafka's rules, over numbers alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

from kseg.index.epoch import EpochStart


class Candidate(Protocol):
    """What the rules look at."""

    @property
    def base_offset(self) -> int:
        """The first offset."""


def plan_offload(
    segments: Sequence[Candidate], *, start_offset: int, stable_offset: int, copied_until: int
) -> list[tuple[int, int]]:
    """Base and next base of the segments to copy, oldest first.

    A segment is copied once another follows it that begins at or below the last stable offset, so the one that is
    appended to never is. Those that end at or before what was copied already, or before the log start, are left out.

    Args:
        copied_until: The offset behind the last one that is in the tier.
    """
    done = max(start_offset, copied_until)
    return [
        (segment.base_offset, following.base_offset)
        for segment, following in itertools.pairwise(segments)
        if done < following.base_offset <= stable_offset
    ]


def epochs_within(entries: Sequence[EpochStart], start: int, end: int) -> tuple[EpochStart, ...]:
    """The leader epochs that wrote `[start, end)`, the first of them from `start` on."""
    found = []
    for entry, following in itertools.zip_longest(entries, entries[1:]):
        if entry.start_offset < end and (following is None or following.start_offset > start):
            found.append(EpochStart(entry.epoch, max(entry.start_offset, start)))
    return tuple(found)
