"""Columns to whole batches, in one call: encoded, compressed and sealed a group at a time, while it is in the cache."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.compress import pack_batches
from kseg.native.encode import fill_batches, write_header
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CODEC_MASK,
    COORDINATOR_EPOCH,
    LAST_OFFSET,
    LEADER_EPOCH,
    LOG_OVERHEAD,
    MARKER_TIMESTAMP,
    MARKER_TYPE,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
)

BUILT: Final = 0
NOT_COMPRESSED: Final = 1  # the codec's library failed
TOO_LARGE: Final = 2  # for the 32 bits of a batch's length
NOT_SHARED: Final = -(2**63)  # in `shared`: each batch has its own last offset, or its own largest timestamp

_MAX_INT: Final = 0x7FFFFFFF


@inlined
def _share(table: Any, batch: int, shared: Any, sequence: int) -> Any:
    """Fill what all batches have in common; return the sequence number that the next one begins with."""
    for column in (
        LEADER_EPOCH, ATTRIBUTES, PRODUCER_ID, PRODUCER_EPOCH, MARKER_TYPE, COORDINATOR_EPOCH, MARKER_TIMESTAMP
    ):  # fmt: skip
        table[column, batch] = shared[column, 0]
    if shared[LAST_OFFSET, 0] != NOT_SHARED:
        table[LAST_OFFSET, batch] = shared[LAST_OFFSET, 0]
    if shared[MAX_TIMESTAMP, 0] != NOT_SHARED:
        table[MAX_TIMESTAMP, batch] = shared[MAX_TIMESTAMP, 0]
    table[BASE_SEQUENCE, batch] = sequence
    if sequence < 0:
        return sequence
    return (sequence + table[LAST_OFFSET, batch] - table[BASE_OFFSET, batch] + 1) & _MAX_INT


@kernel
def build_batches(
    columns: Any, rows: int, keys: Any, values: Any, header_columns: Any, header_keys: Any, header_values: Any,
    limits: Any, shared: Any, plain: Any, functions: Any, scratch: Any, out: Any, table: Any,
) -> tuple[int, int]:  # fmt: skip
    """Build batches of all records in `out`; return (BUILT or what went wrong, batches in `table`).

    `shared` is a table of one row: what every batch has, the codec among its attributes. `plain` is where records
    are encoded before they are compressed, `out` itself where they are not; `functions` and `scratch` are those of
    `compress.py`. Both have room for everything (`fill_batches`, `packed_bound`). Where it went wrong, the last batch
    is the one that could not be built.
    """
    codec = shared[ATTRIBUTES, 0] & CODEC_MASK
    sequence = shared[BASE_SEQUENCE, 0]
    if sequence > _MAX_INT:
        sequence &= _MAX_INT
    row: Any = np.int64(0)
    batch: Any = np.int64(0)
    end: Any = np.int64(0)
    while row < rows:
        start: Any = np.int64(0) if codec else end
        row, filled = fill_batches(
            columns, rows, keys, values, header_columns, header_keys, header_values, limits, plain, start, table, row,
            batch,
        )  # fmt: skip
        if codec:
            done, end = pack_batches(codec, plain, table, batch, filled, out, end, functions, scratch)
            if done < filled:
                return NOT_COMPRESSED, done + 1
        else:
            end = table[POSITION, filled - 1] + table[SIZE, filled - 1]
        for i in range(batch, filled):
            if table[SIZE, i] - LOG_OVERHEAD > _MAX_INT:
                return TOO_LARGE, i + 1
            sequence = _share(table, i, shared, sequence)
            write_header(out, table, i)
        batch = filled
    return BUILT, batch
