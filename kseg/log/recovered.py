"""The segments that a broker recovers when it starts: what it takes there from the batches, and not from other files.

Before LogLoader.recoverSegment reads a segment, it deletes the producer snapshots above the segment's base offset. So
what only they knew, of batches that are deleted or below the log start, is forgotten. Leader epochs of the segment's
batches go on top of those that the checkpoint has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kseg.index.epoch import LeaderEpochs
from kseg.log.epochs import epochs_of_batches
from kseg.log.names import FileKind
from kseg.log.producers import ProducerState
from kseg.log.segment import Segment
from kseg.log.visibility import replay_producers, segment_around


@dataclass(frozen=True, slots=True)
class Recovery:
    """What decides which of a log's segments a broker recovers that starts here."""

    segments: Sequence[Segment]
    recovery_point: int
    was_clean: bool

    def covers(self, segment: Segment) -> bool:
        """Whether a segment is recovered: its indexes are bad, or it was not flushed before a crash."""
        if segment.tier == "remote":
            return False
        return self._is_unflushed(segment) or segment.needs_rebuild

    def _is_unflushed(self, segment: Segment) -> bool:
        if self.was_clean:
            return False
        flushed = next((s.base_offset for s in reversed(self.segments) if s.base_offset <= self.recovery_point), -1)
        return segment.base_offset >= flushed

    def first_offset(self) -> int | None:
        """The base offset of the first segment that is recovered, None where none is."""
        return next((segment.base_offset for segment in self.segments if self.covers(segment)), None)

    def hear_epochs(self, stored: LeaderEpochs | None, *, with_last: bool = True) -> LeaderEpochs:
        """The leader epochs that a broker knows when it has started; all from the batches where none are stored.

        A segment that is recovered for its transaction index alone is left out: to know that takes a read of each.

        Args:
            with_last: Look at the last segment too.
        """
        segments = self.segments if with_last else self.segments[:-1]
        if stored is None:
            return epochs_of_batches(segments)
        local = [segment for segment in segments if segment.tier != "remote"]
        # LogLoader recovers those without an index when it lists the files, before it comes to the others
        reindexed = [segment for segment in local if FileKind.OFFSET_INDEX not in segment.files]
        return epochs_of_batches([*reindexed, *(segment for segment in local if self._is_unflushed(segment))], stored)

    def load_producers(
        self, snapshots: Sequence[int], *, log_start: int, limit: int, only_open: bool = False
    ) -> ProducerState:
        """Producer state at the log's end, as a broker has it that starts; see `replay_producers`.

        Args:
            limit: Use no snapshot above this.
            only_open: What matters is where transactions begin. Then less is read: snapshots of a recovered segment
                are believed unless they, or batches, may tell of a transaction that began below the log start.
        """
        state = self.replay(snapshots, log_start, limit)
        is_enough = not state.knows_any or (only_open and not state.began_below(log_start))
        if is_enough and not self._is_start_within(log_start):
            return state  # of a log without producers nothing is read: all that it had are forgotten
        first = self.first_offset()
        if first is None or not any(max(first, log_start) < offset <= limit for offset in snapshots):
            return state
        return self.replay(snapshots, log_start, first)

    def doubtful_snapshots(self, snapshots: Sequence[int], state: ProducerState, log_start: int) -> list[int]:
        """Snapshots that a broker deletes, where they may be why `state` knows what no batch of the log tells."""
        first = self.first_offset() if self._is_start_within(log_start) or state.knows_below(log_start) else None
        return [] if first is None else [offset for offset in snapshots if offset > max(first, log_start)]

    def _is_start_within(self, log_start: int) -> bool:
        """Whether the log starts inside a segment that is recovered, so that its batches below the start count too."""
        holder = segment_around(self.segments, log_start)
        return holder is not None and self.covers(holder)

    def replay(self, snapshots: Sequence[int], log_start: int, limit: int, *, upto: int | None = None) -> ProducerState:
        """Producer state by the newest of these snapshots up to `limit`, and the batches behind it."""
        return replay_producers(
            self.segments, snapshots, log_start=log_start, is_recovered=self.covers, snapshot_limit=limit, upto=upto
        )
