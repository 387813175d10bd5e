"""Tell a torn tail from damage in the middle: is there a sound batch behind bytes that are none?

A crash leaves half a batch or zeros at the end of a log, and a broker cuts them off. Bytes that have sound batches
behind them are damage: nobody should lose those batches without a word.
"""

from __future__ import annotations

import numpy as np

from kseg.log.walk import CHUNK_BYTES, ReadOptions
from kseg.native import table as t
from kseg.native.headers import fill_headers, scan_candidate, scan_checksums
from kseg.storage import RandomFile

CHECK_BYTES = 64 << 20  # what is read, at most, to check candidates; rubbish that looks like more is taken for damage


def find_batch(file: RandomFile, options: ReadOptions, start: int, *, base_offset: int, next_offset: int) -> int | None:
    """Find a whole batch with a fitting checksum and a possible offset from byte `start` on; None if there is none."""
    buffer = np.empty(CHUNK_BYTES + t.PREFIX_SIZE, np.uint8)
    budget = CHECK_BYTES
    for position in range(start, file.size, CHUNK_BYTES):
        data = buffer[: file.read_into(position, buffer)]
        at, size = scan_candidate(data, 0, data.size, file.size - position, base_offset, next_offset)
        while at >= 0:
            budget -= size
            if budget < 0 or (size <= options.max_batch_bytes and _is_sound(file, position + at, size)):
                return int(position + at)
            at, size = scan_candidate(data, at + 1, data.size, file.size - position, base_offset, next_offset)
    return None


def is_zero(file: RandomFile, start: int) -> bool:
    """Whether all bytes from `start` on are zero: room that was made, but never written to."""
    buffer = np.empty(CHUNK_BYTES, np.uint8)
    places = range(start, file.size, CHUNK_BYTES)
    return not any(buffer[: file.read_into(place, buffer)].any() for place in places)


def _is_sound(file: RandomFile, position: int, size: int) -> bool:
    data = np.empty(size, np.uint8)
    got = file.read_into(position, data)
    table = t.new_table(1)
    rows, _, _ = fill_headers(data, 0, got, 0, table, 0)
    return bool(rows == 1 and scan_checksums(data, 0, table, 0, 1)[0] < 0)
