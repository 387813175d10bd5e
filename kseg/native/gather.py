"""Fill Arrow's buffers with what `rows.py` leaves to do: headers, and offsets that need no look at the records.

Buffers come from the caller, sized by the totals that the decoder counted: int32 offsets with one more entry than
rows, the bytes themselves, and a validity bitmap where there are nulls.
"""

from __future__ import annotations

from typing import Any

from kseg.native._jit import inlined, kernel
from kseg.native.memory import copy_bytes, load_u8, store_u8
from kseg.native.varint import read_varint


@inlined
def _set_bit(bitmap: Any, row: int) -> None:
    bitmap[row >> 3] |= 1 << (row & 7)


@kernel
def gather_headers(
    data: Any, arena: Any, places: Any, rows: int, list_offsets: Any, list_bitmap: Any,
    key_offsets: Any, keys: Any, value_offsets: Any, values: Any, value_bitmap: Any,
) -> bool:  # fmt: skip
    """Copy the headers of all rows, already checked; return whether every header key is ASCII.

    `places` has two rows: where a record's first header lies, and how many there are. A record
    without headers is a null list. An empty `value_bitmap` says that no header value is null.
    """
    shift = data.shape[0]
    has_nulls = value_bitmap.shape[0] > 0
    ascii_only = True
    header = 0
    key_at = 0
    value_at = 0
    for row in range(rows):
        list_offsets[row] = header
        count = places[1, row]
        if count == 0:
            continue
        if list_bitmap.shape[0] > 0:
            _set_bit(list_bitmap, row)
        start = places[0, row]
        source = data if start < shift else arena
        p = start if start < shift else start - shift
        for _ in range(count):
            length, p = read_varint(source, p, source.shape[0])
            key_offsets[header] = key_at
            for i in range(length):
                byte = load_u8(source, p + i)
                ascii_only = ascii_only and byte < 128
                store_u8(keys, key_at + i, byte)
            key_at += length
            length, p = read_varint(source, p + length, source.shape[0])
            value_offsets[header] = value_at
            if length >= 0:
                copy_bytes(values, value_at, source, p, length)
                value_at += length
                p += length
                if has_nulls:
                    _set_bit(value_bitmap, header)
            header += 1
    list_offsets[rows] = header
    key_offsets[header] = key_at
    value_offsets[header] = value_at
    return ascii_only


@kernel
def fill_offsets(bases: Any, counts: Any, skip: Any, range_start: int, range_end: int, out: Any) -> int:
    """Write the offsets of batches that hold every offset from their base on; return how many."""
    filled = 0
    for row in range(bases.shape[0]):
        if skip[row]:
            continue
        for offset in range(max(bases[row], range_start), min(bases[row] + counts[row], range_end)):
            out[filled] = offset
            filled += 1
    return filled
