"""Find sound batches behind bytes that are none.

A crash leaves half a batch or zeros at the end of a log, and a broker cuts them off. Bytes that have sound batches
behind them are damage: nobody should lose those batches without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kseg.errors import CorruptRecordError
from kseg.log.walk import CHUNK_BYTES, ReadOptions
from kseg.native import table as t
from kseg.native.headers import fill_headers, scan_candidate, scan_checksums
from kseg.storage import RandomFile

CHECK_BYTES = 64 << 20  # what is read, at most, to check candidates; rubbish that looks like more is taken for damage

MAX_OFFSET_DELTA = 2**31 - 1  # from a segment's base offset to that of a batch

INDEX_HINT = "remove the segment's .index file: reading does without it"


def find_batch(file: RandomFile, options: ReadOptions, start: int, *, base_offset: int, next_offset: int) -> int | None:
    """Find a whole batch with a fitting checksum and a possible offset from byte `start` on; None if there is none."""
    budget = CHECK_BYTES
    for at, size in _candidates(file, start, file.size, base_offset, next_offset):
        budget -= size
        if budget < 0 or (size <= options.max_batch_bytes and is_sound(file, at, size)):
            return at
    return None


def find_batch_behind(
    file: RandomFile, options: ReadOptions, damaged: int, *, base_offset: int, next_offset: int
) -> int | None:
    """The same for batches behind the damage that begins at byte `damaged`."""
    lowest = _lowest_behind(file, damaged, base_offset, next_offset)
    return find_batch(file, options, damaged + 1, base_offset=base_offset, next_offset=lowest)


def _lowest_behind(file: RandomFile, damaged: int, base_offset: int, next_offset: int) -> int:
    """The lowest offset that a batch behind damage may have, where batches before it end at `next_offset`.

    A wrapper of old messages that a crash has cut may have whole messages in it, if its codec found nothing to compress
    in them. They are no batches, and their offsets are not above that of the wrapper.
    """
    prefix = bytearray(t.PREFIX_SIZE + 1)
    if file.read_into(damaged, prefix) < len(prefix) or prefix[16] > 1 or not prefix[17] & t.CODEC_MASK:
        return next_offset
    is_cut = int.from_bytes(prefix[8:12], "big", signed=True) > file.size - damaged - t.LOG_OVERHEAD
    last = int.from_bytes(prefix[:8], "big", signed=True)
    return max(next_offset, last + 1) if is_cut and last - base_offset <= MAX_OFFSET_DELTA else next_offset


class Resync:
    """Finds where sound batches begin again behind damage.

    The search is bounded for the whole file, whatever its bytes are: rubbish that looks like very many batches ends it.
    """

    def __init__(self, file: RandomFile, options: ReadOptions, base_offset: int) -> None:
        self._file = file
        self._options = options
        self._base_offset = base_offset
        self._budget = CHECK_BYTES + 4 * file.size

    def find(self, damaged: int, end: int) -> int:
        """The position of the next sound batch behind the damage at `damaged`; `end` where there is none before it.

        The damaged batch's own length is believed where it leads to a sound batch, over other damaged ones if need be.
        Else every byte is tried. A record's value can hold a batch too: what is found so counts only if it ends where
        the file does, or where something like a batch begins.
        """
        at = damaged
        while (size := frame(self._file, at, end)) is not None:
            at += size
            if at == end or self.is_batch(at, end):
                return at
        lowest = _lowest_behind(self._file, damaged, self._base_offset, self._base_offset)
        for found, size in _candidates(self._file, damaged + 1, end, self._base_offset, lowest):
            self._budget -= size
            if self._budget < 0:
                break
            behind = found + size
            if (behind == end or frame(self._file, behind, self._file.size) is not None) and self.is_batch(found, end):
                return found
        return end

    def is_batch(self, at: int, end: int | None = None) -> bool:
        """Whether a sound batch is at `at` that ends by `end`, or by the end of the file."""
        size = frame(self._file, at, self._file.size if end is None else end)
        return size is not None and size <= self._options.max_batch_bytes and is_sound(self._file, at, size)


def frame(file: RandomFile, at: int, end: int) -> int | None:
    """The size of the batch at `at` by its prefix; None where there is no prefix of a batch that ends by `end`."""
    prefix = np.zeros(t.PREFIX_SIZE, np.uint8)
    if end - at < prefix.size or file.read_into(at, prefix) < prefix.size:
        return None
    length = int.from_bytes(prefix[8:12].tobytes(), "big", signed=True)
    smallest = t.HEADER_SIZE - t.LOG_OVERHEAD if prefix[16] == 2 else t.LEGACY_MIN_LENGTH
    if prefix[16] > 2 or length < smallest or length > end - at - t.LOG_OVERHEAD:
        return None
    return length + t.LOG_OVERHEAD


def claimed_offsets(file: RandomFile, at: int) -> tuple[int, int] | None:
    """First and last offset that the batch at `at` claims, sound or not; None where nothing like a batch is there."""
    size = frame(file, at, file.size)
    if size is None:
        return None
    header = bytearray(min(size, t.HEADER_SIZE))
    file.read_into(at, header)
    first = int.from_bytes(header[:8], "big", signed=True)
    delta = int.from_bytes(header[23:27], "big", signed=True) if header[16] == 2 else 0
    return (first, first + delta) if delta >= 0 and first + delta < 1 << 63 else None


def check_cut(file: RandomFile, options: ReadOptions, position: int, cut: int) -> None:
    """Raise where a sound batch begins at `position` and runs past `cut`: who reads on from there starts inside of it.

    Raises:
        CorruptRecordError: So it is; the index that named the place is wrong.
    """
    size = frame(file, position, file.size)
    if cut < file.size and size is not None and size <= options.max_batch_bytes and is_sound(file, position, size):
        raise CorruptRecordError("no batch begins where the index says", path=file.path, position=cut, hint=INDEX_HINT)


def is_zero(file: RandomFile, start: int) -> bool:
    """Whether all bytes from `start` on are zero: room that was made, but never written to."""
    buffer = np.empty(CHUNK_BYTES, np.uint8)
    places = range(start, file.size, CHUNK_BYTES)
    return not any(buffer[: file.read_into(place, buffer)].any() for place in places)


def is_sound(file: RandomFile, position: int, size: int) -> bool:
    """Whether a batch of `size` bytes is at `position`, with a fitting checksum."""
    data = np.empty(size, np.uint8)
    got = file.read_into(position, data)
    table = t.new_table(1)
    rows, _, _ = fill_headers(data, 0, got, 0, table, 0)
    return bool(rows == 1 and scan_checksums(data, 0, table, 0, 1)[0] < 0)


def _candidates(
    file: RandomFile, start: int, end: int, base_offset: int, next_offset: int
) -> Iterator[tuple[int, int]]:
    """Positions and sizes of what could be batches by their first bytes, in `[start, end)`."""
    buffer = np.empty(min(CHUNK_BYTES + t.PREFIX_SIZE, max(end - start, 0)), np.uint8)
    for position in range(start, end, CHUNK_BYTES):
        data = buffer[: min(file.read_into(position, buffer), end - position)]
        at, size = scan_candidate(data, 0, data.size, end - position, base_offset, next_offset)
        while at >= 0:
            yield int(position + at), int(size)
            at, size = scan_candidate(data, at + 1, data.size, end - position, base_offset, next_offset)
