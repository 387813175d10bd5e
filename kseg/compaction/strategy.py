"""How the keys of a round are compared: in memory where they fit, else through files. Chosen by a sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kseg.compaction.config import CleanerConfig, Strategy
from kseg.compaction.keymap import largest_map, slots_for
from kseg.compaction.policy import CleanableRange
from kseg.compaction.sample import Sample, sample_keys
from kseg.compaction.spill import files_for
from kseg.log.segment import Segment
from kseg.tables import format_size

MARGIN: Final = 1.25


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """The way that was chosen, and why.

    Attributes:
        slots: Of the map in memory.
        files: That keys are spilled to.
    """

    strategy: Strategy
    reason: str
    estimate: Sample
    slots: int
    files: int

    @property
    def is_swept(self) -> bool:
        """Whether the log is read from its end, so that it is decompressed once (`sweep`)."""
        return not self.estimate.is_plain


def plan_keys(
    segments: Sequence[Segment], cleanable: CleanableRange, config: CleanerConfig, workers: int | None = None
) -> KeyPlan:
    """Choose by a sample of the records that were not cleaned before; those that were are compared with these."""
    dirty = [s for s in segments if s.base_offset < cleanable.first_uncleanable]
    floor = max((s.base_offset for s in dirty if s.base_offset <= cleanable.first_dirty), default=0)
    sampled = [s for s in dirty if s.base_offset >= floor]
    room = largest_map(config.memory_budget)
    estimate = sample_keys(sampled)
    if slots_for(int(estimate.records * MARGIN)) > room:  # else all fit, whatever their keys are
        estimate = sample_keys(sampled, closely=True)
    whole = sum(s.size for s in dirty)
    share = whole / max(sum(s.size for s in sampled), 1)
    needed = slots_for(int(estimate.keys * MARGIN))
    threads = workers or os.cpu_count() or 1
    files = files_for(int(estimate.records * share * MARGIN), config.memory_budget, threads)
    slots = min(slots_for(int(min(estimate.records, estimate.keys) * MARGIN)), room)
    about = f"about {estimate.keys} keys take {format_size(needed * 24)}"
    budget = f"the budget of {format_size(config.memory_budget)}"
    if config.strategy is not None:
        return KeyPlan(config.strategy, f"asked for; {about} of {budget}", estimate, slots, files)
    if needed <= room:
        return KeyPlan("memory", f"{about}, within {budget}", estimate, slots, files)
    return KeyPlan("spill", f"{about}, above {budget}: {files} files", estimate, slots, files)
