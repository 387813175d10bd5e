"""Compress the records of batches anew, with another codec or level, and change nothing else."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import kernel
from kseg.native.compress import pack_payload
from kseg.native.memory import copy_bytes
from kseg.native.table import (
    ATTRIBUTES,
    CODEC_MASK,
    CONTROL_BIT,
    COUNT,
    HEADER_SIZE,
    MAGIC,
    POSITION,
    SIZE,
)

KNOWN_BITS: Final = 0x7F  # of the attributes; the others are unused


@kernel
def repack_batches(
    data: Any, arena: Any, file_position: int, table: Any, first_row: int, end_row: int, starts: Any, ends: Any,
    codec: int, functions: Any, packing: Any, out: Any, written: Any, rebuilt: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Write rows `[first_row, end_row)` with `codec`; return (row, headers to write, bytes).

    The row is `end_row`, or the one that the codec's library could not compress. Batches of magic 0 and 1, control
    batches and empty ones are copied as they are. `out` has room for everything; `written` gets a row for each batch,
    `rebuilt` one for each whose header the caller has to write.
    """
    shift = data.shape[0]
    at: Any = np.int64(0)
    n: Any = np.int64(0)
    for row in range(first_row, end_row):
        target = row - first_row
        for column in range(table.shape[0]):
            written[column, target] = table[column, row]
        written[POSITION, target] = at
        attributes = table[ATTRIBUTES, row]
        if table[MAGIC, row] < 2 or attributes & CONTROL_BIT or table[COUNT, row] == 0:
            copy_bytes(out, at, data, table[POSITION, row] - file_position, table[SIZE, row])
            at += table[SIZE, row]
            continue
        start = starts[row]
        size = ends[row] - start
        source = arena if start >= shift else data
        if start >= shift:
            start -= shift
        if codec == 0:
            copy_bytes(out, at + HEADER_SIZE, source, start, size)
            end = at + HEADER_SIZE + size
        else:
            end = pack_payload(codec, source, start, start + size, out, at + HEADER_SIZE, functions, packing)
            if end < 0:
                return row, n, at
        written[SIZE, target] = end - at
        written[ATTRIBUTES, target] = (attributes & KNOWN_BITS & ~CODEC_MASK) | codec
        for column in range(table.shape[0]):
            rebuilt[column, n] = written[column, target]
        n += 1
        at = end
    return end_row, n, at
