"""The end of a log as an appender finds it: how much of it is sound, and whether the rest may be cut off.

A broker that starts after a crash cuts a segment at its first bad batch. That is right for a tail that was being
written, and destroys data where one bad batch in the middle is followed by thousands of sound ones. So the bytes behind
the cut are searched for a batch whose checksum fits; if there is one, this is damage and no torn tail: nothing is cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kseg.errors import CorruptRecordError, FormatError
from kseg.index.build import IndexBuilder
from kseg.index.epoch import LeaderEpochs
from kseg.log.producers import ProducerState
from kseg.log.segment import Segment
from kseg.log.walk import CHUNK_BYTES, BatchWalker, check_order
from kseg.native import table as t
from kseg.storage import RandomFile

DAMAGE_HINT = "nothing was changed; 'kseg dump' shows what is sound"


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
    """
    builder = IndexBuilder(segment.base_offset, interval_bytes)
    last = segment.base_offset - 1
    problem: FormatError | None = None
    with segment.open() as file:
        chunks = iter(segment.walk(file, check=True))
        while True:
            try:
                chunk = next(chunks)
            except StopIteration:
                break
            except FormatError as error:
                problem = error
                break
            last = check_order(chunk, segment.base_offset, last, segment.path)
            builder.add(chunk.table, chunk.rows)
            producers.add(chunk.table, chunk.rows, strict=False)
            epochs = epochs.assign_batches(chunk.table, chunk.rows)
        if builder.size < file.size:
            sound = find_batch(segment, file, builder.size + 1, last + 1)
            if sound is not None:
                reason = "bytes that are no batch" if problem is None else problem.message
                raise CorruptRecordError(
                    f"{reason}, but a sound batch follows at byte {sound}: this is no torn tail, so it is not cut off",
                    path=segment.path,
                    position=builder.size,
                    offset=last + 1,
                    hint=DAMAGE_HINT,
                )
        return Tail(builder, last + 1, file.size - builder.size, epochs)


def find_batch(segment: Segment, file: RandomFile, start: int, next_offset: int) -> int | None:
    """Find a whole batch with a fitting checksum and a possible offset from byte `start` on; None if there is none."""
    buffer = np.empty(CHUNK_BYTES + t.PREFIX_SIZE, np.uint8)
    for position in range(start, file.size, CHUNK_BYTES):
        data = buffer[: file.read_into(position, buffer)]
        for at in _candidates(data, file.size - position, segment.base_offset, next_offset):
            if _is_sound(segment, file, position + int(at)):
                return position + int(at)
    return None


def _candidates(data: t.Bytes, left: int, base_offset: int, next_offset: int) -> NDArray[np.int64]:
    """Where the first 17 bytes of a batch could be: magic, length and offset are possible."""
    places = np.flatnonzero(data[t.PREFIX_SIZE - 1 :] <= 2)
    lengths = _big_endian(data, places + 8, 4)
    places = places[(lengths >= t.LEGACY_MIN_LENGTH) & (lengths + t.LOG_OVERHEAD <= left - places)]
    offsets = _big_endian(data, places, 8)
    return places[(offsets >= next_offset) & (offsets - base_offset <= 0x7FFFFFFF)]


def _big_endian(data: t.Bytes, places: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    value = np.zeros(len(places), np.int64)
    for i in range(width):
        value = (value << 8) | data[places + i]
    return value


def _is_sound(segment: Segment, file: RandomFile, position: int) -> bool:
    try:
        return next(iter(BatchWalker(file, segment.options, start=position, hint=t.HEADER_SIZE)), None) is not None
    except FormatError:
        return False


def check_flushed(segment: Segment) -> None:
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
