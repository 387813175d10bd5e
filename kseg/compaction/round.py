"""One round over one partition: what it covers, whom it must not forget, and how long its phases take."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kseg.compaction.config import CleanerConfig
from kseg.compaction.markers import TransactionRows, settle
from kseg.compaction.output import CleanedSegment
from kseg.compaction.policy import CleanableRange, group_segments
from kseg.compaction.rewrite import Append, Rewritten, Rules, last_entries
from kseg.compaction.strategy import KeyPlan
from kseg.index.build import IndexBuilder
from kseg.index.producer import ProducerEntry
from kseg.index.txn import AbortedTxn
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.native import cleaning
from kseg.progress import SILENT, Progress


@dataclass(slots=True)
class Round:
    """What a round works on; made before anything is changed."""

    log: Log
    config: CleanerConfig
    range: CleanableRange
    now_ms: int
    keys: KeyPlan
    producers: list[ProducerEntry]
    aborted: list[AbortedTxn]
    lingering: list[AbortedTxn]
    workers: int | None = None
    progress: Progress = SILENT
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def segments(self) -> list[Segment]:
        """The segments that the round rewrites: all below its end, clean ones too."""
        return [s for s in self.log.segments if s.base_offset < self.range.first_uncleanable]

    @property
    def groups(self) -> list[list[Segment]]:
        """What becomes one segment each."""
        return group_segments(self.segments, self.config, self.range.first_uncleanable)

    def end_of(self, group: Sequence[Segment]) -> int:
        """The offset behind a group."""
        following = (s.base_offset for s in self.segments if s.base_offset > group[-1].base_offset)
        return next(following, self.range.first_uncleanable)

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[None]:
        """Time a phase and show its progress."""
        began = time.perf_counter()
        self.progress.begin(f"{self.log.topic}-{self.log.partition} {name}", total)
        try:
            yield
        finally:
            self.progress.end()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def rules(self, parts: Sequence[TransactionRows]) -> Rules:
        """The rules of the round, once all transactions were followed."""
        clean = [s for s in self.log.segments if s.base_offset < self.range.first_dirty]
        retention = self.config.delete_retention_ms
        return Rules(
            now_ms=self.now_ms,
            upper_bound=self.range.first_uncleanable,
            new_horizon_ms=_wrapped(self.now_ms + retention),
            legacy_horizon_ms=clean[-1].mtime_ms - retention if clean else 0,
            transactions=settle(parts, self.aborted),
            producers=last_entries(self.producers),
        )


def _wrapped(number: int) -> int:
    """A sum as the cleaner's 64 bits have it: a horizon behind their end is negative, and no batch gets it."""
    return (number + 2**63) % 2**64 - 2**63


@dataclass(slots=True)
class Totals:
    """What the groups of a round came to, as far as it has come."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(cleaning.COUNTS, np.int64))
    groups: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0

    def add(self, group: Sequence[Segment], counts: NDArray[np.int64], size: int, segments: int = 1) -> None:
        """Count a group of which so many bytes, in so many segments, are left."""
        self.counts += counts
        self.groups += 1
        self.bytes_before += sum(segment.size for segment in group)
        self.bytes_after += size
        self.segments_before += len(group)
        self.segments_after += segments


@dataclass(frozen=True, slots=True)
class RewrittenGroup:
    """What pass 2 makes of a group.

    Attributes:
        into: Gives the pieces' results; what is left of them goes to the function that it gets, in order. No thread
            calls that any more once the generator is closed.
    """

    segments: Sequence[Segment]
    into: Callable[[Append], Generator[Rewritten]]


def write_group(
    round_: Round, rewritten: RewrittenGroup, rules: Rules, directory: Path
) -> tuple[CleanedSegment, NDArray[np.int64]]:
    """Make one segment, complete and durable, of what is left of a group; nothing is left of it after a failure."""
    group = rewritten.segments
    counts = np.zeros(cleaning.COUNTS, np.int64)
    output = CleanedSegment(directory, IndexBuilder(group[0].base_offset, round_.config.index_interval_bytes))
    try:
        with closing(rewritten.into(output.append)) as results:
            for result in results:
                counts += result.counts
                round_.progress.advance(result.bytes_read)
        aborted = rules.transactions.kept_between(group[0].base_offset, round_.end_of(group))
        output.finish(aborted, group[-1].mtime_ms)
    except BaseException:
        output.abandon()
        raise
    return output, counts
