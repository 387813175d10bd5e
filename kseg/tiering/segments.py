"""Which of the segments in a tier are a partition's log: complete ones, and of several over the same offsets the valid.

A broker's `__remote_log_metadata` knows best: what is not finished there, or is being deleted, does not count. Without
it, what a mark says is retired does not count (`marks.py`), and of uploads that overlap those count whose leader epochs
are on the partition's lineage; of equals the longest, then the latest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kseg.index.epoch import EpochStart
from kseg.tiering.layout import Layout, PlainPart, RemoteName
from kseg.tiering.metadata_records import SegmentRecord

Epochs: TypeAlias = "tuple[EpochStart, ...]"


EndOf: TypeAlias = "Callable[[RemoteSegment], int | None]"


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A complete upload of a segment.

    Attributes:
        directory: Where its objects are.
        size: Bytes of the log.
        sidecars: Sizes of the other parts that are there.
        next_offset: The offset behind it, None where neither manifest nor metadata tell.
        leader_epochs: Epochs inside the segment, None where neither manifest nor metadata tell.
        is_retired: A mark says that it does not count; the metadata topic, where there is one, knows better.
    """

    name: RemoteName
    layout: Layout
    directory: str
    size: int
    mtime_ms: int
    sidecars: Mapping[PlainPart, int]
    next_offset: int | None = None
    max_timestamp: int | None = None
    leader_epochs: Epochs | None = None
    event_timestamp_ms: int = -1
    is_retired: bool = False

    @property
    def start_offset(self) -> int:
        """The first offset."""
        return self.name.start_offset


def choose_segments(
    found: Sequence[RemoteSegment],
    known: Mapping[str, SegmentRecord] | None,
    *,
    lineage: Callable[[], Epochs],
    epochs_of: Callable[[RemoteSegment], Epochs],
    end_of: EndOf | None = None,
    exact: bool = False,
) -> list[RemoteSegment]:
    """The segments that are the log, by start offset; no two have the same.

    Args:
        known: What `__remote_log_metadata` says of the partition, by segment id; None where it says nothing.
        lineage: Gives the partition's leader epochs; asked only where uploads overlap, or may.
        epochs_of: Gives the leader epochs of a segment; asked only there too.
        end_of: Gives the offset behind a segment's batches, where nobody else tells where it ends.
        exact: Ask it of all such segments. Otherwise they are taken to end where the next one starts, which is right to
            read them, but not to restore them.
    """
    if known is not None:
        finished = {segment_id: told for segment_id, told in known.items() if told.is_finished}
        found = [_informed(s, finished[s.name.segment_id]) for s in found if s.name.segment_id in finished]
    else:
        found = [segment for segment in found if not segment.is_retired]
    pool = sorted(found, key=lambda segment: segment.start_offset)
    history: Epochs | None = None
    while True:
        ordered = _with_ends(pool, end_of if exact else None)
        guessed = {i for i, segment in enumerate(pool) if segment.next_offset is None and len(pool) > 1}
        suspects = (
            _overlapping(ordered) | guessed
        )  # what ends at a guess may have offsets that a later leader wrote anew
        if not suspects:
            break
        history = lineage() if history is None else history
        stale = {
            i
            for i in suspects
            if not _is_valid(ordered[i], epochs_of, history)
            and not (i in guessed and _is_valid(_cut(ordered[i], end_of), epochs_of, history))
        }
        if not stale:
            break
        pool = [segment for i, segment in enumerate(pool) if i not in stale]
    return _without_duplicates(ordered)


def _is_valid(segment: RemoteSegment, epochs_of: Callable[[RemoteSegment], Epochs], lineage: Epochs) -> bool:
    """Whether a segment, up to where it ends or is taken to end, is on the lineage."""
    end = segment.next_offset
    inside = tuple(entry for entry in epochs_of(segment) if end is None or entry.start_offset < end)
    return is_on_lineage(inside, end, lineage)


def _cut(segment: RemoteSegment, end_of: EndOf | None) -> RemoteSegment:
    """A segment that ends with its batches, if that is before where it was taken to end: what is behind is a gap."""
    end = None if end_of is None else end_of(segment)
    return segment if end is None or end >= _end(segment) else replace(segment, next_offset=end)


def _informed(segment: RemoteSegment, told: SegmentRecord) -> RemoteSegment:
    return replace(
        segment,
        next_offset=told.end_offset + 1,
        max_timestamp=told.max_timestamp_ms,
        leader_epochs=told.epochs,
        event_timestamp_ms=told.event_timestamp_ms,
    )


def _with_ends(ordered: Sequence[RemoteSegment], end_of: EndOf | None) -> list[RemoteSegment]:
    """Fill in what nobody tells: a segment ends where the next one starts, unless its batches go on behind that."""
    starts = sorted({segment.start_offset for segment in ordered})
    following: dict[int, int | None] = dict(itertools.zip_longest(starts, starts[1:]))

    def end(segment: RemoteSegment) -> int | None:
        start = following[segment.start_offset]
        own = None if end_of is None or start is None else end_of(segment)
        return start if own is None or start is None else max(start, own)

    return [
        segment if segment.next_offset is not None else replace(segment, next_offset=end(segment))
        for segment in ordered
    ]


def _overlapping(ordered: Sequence[RemoteSegment]) -> set[int]:
    """Places of the segments that share offsets with another."""
    clashing: set[int] = set()
    widest = 0
    for i in range(1, len(ordered)):
        end = ordered[widest].next_offset
        if end is None or ordered[i].start_offset < end:
            clashing |= {widest, i}
        if end is not None and (ordered[i].next_offset or 2**63) > end:
            widest = i
    return clashing


def _without_duplicates(ordered: Sequence[RemoteSegment]) -> list[RemoteSegment]:
    """Drop segments whose offsets others have too.

    What follows a segment is one that begins where it ends, if there is one; of several that which leads farthest so,
    then the longest, then the latest.
    """
    places: dict[int, list[RemoteSegment]] = {}
    leads: dict[int, int] = {}  # how far segments that follow each other lead from an offset
    for segment in sorted(ordered, key=lambda s: -s.start_offset):
        places.setdefault(segment.start_offset, []).append(segment)
        end = _end(segment)
        leads[segment.start_offset] = max(leads.get(segment.start_offset, 0), leads.get(end, end), end)

    def rank(s: RemoteSegment) -> tuple[int, int, int, int, RemoteName]:
        return -leads.get(_end(s), _end(s)), -_end(s), -s.event_timestamp_ms, -s.mtime_ms, s.name

    chosen: list[RemoteSegment] = []
    rest = iter(sorted(ordered, key=lambda s: (s.start_offset, rank(s))))
    while True:
        end = _end(chosen[-1]) if chosen else -1
        exact = min(places.get(end, ()), key=rank, default=None)
        if exact is not None and _end(exact) > end:
            chosen.append(exact)
            continue
        further = next((s for s in rest if _end(s) > end), None)
        if further is None:
            return chosen
        while len(chosen) > 1 and _end(chosen[-2]) >= further.start_offset:
            chosen.pop()  # its neighbours have all of it
        chosen.append(further)


def _end(segment: RemoteSegment) -> int:
    return 2**63 if segment.next_offset is None else segment.next_offset


def is_on_lineage(epochs: Epochs, next_offset: int | None, lineage: Epochs) -> bool:
    """Whether a segment was written by leaders whose history is the partition's own, as Kafka decides it.

    Args:
        epochs: The segment's epochs, the first one from its start offset on.
        next_offset: The offset behind the segment.
        lineage: The partition's epochs; those before its log start may be gone.
    """
    written = written_epochs(epochs)
    if not written or not lineage:
        return True
    first = next((entry.epoch for entry in written if entry.epoch >= lineage[0].epoch), None)
    starts = dict(lineage)
    following = dict(itertools.zip_longest([e.epoch for e in lineage], lineage[1:]))
    for i, (epoch, offset) in enumerate(written):
        if epoch < lineage[0].epoch:
            continue
        if epoch not in starts or (epoch == first != lineage[0].epoch and offset < starts[epoch]):
            return False
        after = following[epoch]
        if i + 1 < len(written):
            if after != written[i + 1]:
                return False
        elif after is not None and next_offset is not None and next_offset > after.start_offset:
            return False
    return True


def written_epochs(epochs: Epochs) -> Epochs:
    """Leader epochs without those that wrote nothing."""
    return tuple(e for i, e in enumerate(epochs) if i + 1 == len(epochs) or epochs[i + 1].start_offset > e.start_offset)
