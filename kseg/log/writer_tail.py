"""The end of a log as an appender finds it: how much of it is sound, and whether the rest may be cut off.

A broker that starts after a crash cuts a segment at its first bad batch. That is right for a tail that was being
written, and destroys data where one bad batch in the middle is followed by thousands of sound ones. So the bytes behind
the cut are searched for a batch whose checksum fits; if there is one, this is damage and no torn tail: nothing is cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from kseg.errors import CorruptRecordError, LogError
from kseg.index.build import REASONS, IndexBuilder, Stop
from kseg.index.epoch import LeaderEpochs
from kseg.log.producers import ProducerState
from kseg.log.segment import Segment
from kseg.log.segment_scan import scan_segment
from kseg.log.sound import find_batch_behind
from kseg.log.walk import Chunk, check_order
from kseg.native.table import Table

DAMAGE_HINT = "nothing was changed; 'kseg recover --salvage' keeps what is sound"


@dataclass(slots=True)
class Tail:
    """A segment that was scanned from its start: its indexes, and what the rest of the log needs to know of it."""

    builder: IndexBuilder
    next_offset: int
    torn_bytes: int
    epochs: LeaderEpochs


def scan_tail(segment: Segment, interval_bytes: int, producers: ProducerState, epochs: LeaderEpochs) -> Tail:
    """Scan a segment with checksums; `producers` (as of its base offset) moves on to its end.

    Raises:
        FormatError: There is damage with sound batches behind it, or offsets fall back.
        LogError: A batch cannot be indexed.
    """
    builder = IndexBuilder(segment.base_offset, interval_bytes)
    last = segment.base_offset - 1

    def check(chunk: Chunk) -> None:
        nonlocal last
        last = check_order(chunk, segment.base_offset, last, segment.path)

    def take(table: Table, rows: int) -> None:
        nonlocal epochs
        producers.add(table, rows, strict=False)
        epochs = epochs.assign_batches(table, rows)

    with segment.open() as file:
        found = scan_segment(segment.walk(file, check=True), builder, take, check=check)
        if found.stop is not Stop.NONE:
            raise LogError(REASONS[found.stop], path=segment.path, position=builder.size, offset=found.stopped_at)
        if builder.size < file.size:
            sound = find_batch_behind(
                file, segment.options, builder.size, base_offset=segment.base_offset, next_offset=last + 1
            )
            if sound is not None:
                reason = "bytes that are no batch" if found.problem is None else found.problem.message
                raise CorruptRecordError(
                    f"{reason}, but a sound batch follows at byte {sound}: this is no torn tail, so it is not cut off",
                    path=segment.path,
                    position=builder.size,
                    offset=last + 1,
                    hint=DAMAGE_HINT,
                )
        return Tail(builder, last + 1, file.size - builder.size, epochs)


def check_unflushed(segment: Segment) -> None:
    """Check a segment that was perhaps not flushed before a crash, and that a later one follows.

    Raises:
        FormatError: It is damaged: a broker would cut it there and delete all later segments.
    """
    with segment.open() as file:
        walker = segment.walk(file, check=True)
        last = segment.base_offset - 1
        for chunk in walker:
            last = check_order(chunk, segment.base_offset, last, segment.path)
        walker.raise_if_torn()
