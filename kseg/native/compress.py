"""Compress the records of many encoded batches, in one call, in the framings that Kafka writes.

As in `codecs.py`, the frames are made here and the blocks by the field's libraries, through C function pointers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.codecs import GZIP, LZ4, SNAPPY, XERIAL_HEADER
from kseg.native.memory import call_pack, call_zstd, copy_bytes, store_i32, store_u8
from kseg.native.table import HEADER_SIZE, POSITION, SIZE

LEVEL: Final = 5  # entry of `functions` behind the codecs' addresses
PACK_FIELDS: Final = 6
LZ4_BLOCK: Final = 64 * 1024
XERIAL_BLOCK: Final = 32 * 1024
PACK_FAILED: Final = -1
BLOCK_SLACK: Final = 256  # more than any codec's frame and bound add to a small payload


@inlined
def packed_bound(size: int) -> int:
    """Bytes that are enough for a compressed payload of any codec."""
    return size + size // 6 + 8 * (size // XERIAL_BLOCK) + BLOCK_SLACK


@inlined
def _store_le32(out: Any, at: int, value: int) -> None:
    for i in range(4):
        store_u8(out, at + i, (value >> (8 * i)) & 255)


@inlined
def _frame_lz4(data: Any, start: int, end: int, out: Any, at: int, functions: Any) -> int:
    """One frame of independent 64 KiB blocks without checksums; a block that does not shrink is stored."""
    _store_le32(out, at, 0x184D2204)
    store_u8(out, at + 4, 0x60)
    store_u8(out, at + 5, 0x40)
    store_u8(out, at + 6, 0x82)
    at += 7
    while start < end:
        size = min(LZ4_BLOCK, end - start)
        got = call_pack(functions[LZ4], data, start, size, out, at + 4, size - 1, functions[LEVEL])
        if got > 0:
            _store_le32(out, at, got)
        else:
            got = size
            _store_le32(out, at, size | 0x80000000)
            copy_bytes(out, at + 4, data, start, size)
        at += 4 + got
        start += size
    _store_le32(out, at, 0)
    return at + 4


@inlined
def _frame_snappy(data: Any, start: int, end: int, out: Any, at: int, functions: Any) -> int:
    """The stream of xerial: a header, then chunks of 32 KiB, each a length and a raw block."""
    store_i32(out, at, 0x82534E41)
    store_i32(out, at + 4, 0x50505900)
    store_i32(out, at + 8, 1)
    store_i32(out, at + 12, 1)
    at += XERIAL_HEADER
    while start < end:
        size = min(XERIAL_BLOCK, end - start)
        got = call_pack(functions[SNAPPY], data, start, size, out, at + 4, packed_bound(size), 0)
        if got <= 0:
            return PACK_FAILED
        store_i32(out, at, got)
        at += 4 + got
        start += size
    return at


@inlined
def _pack(codec: int, data: Any, start: int, end: int, out: Any, at: int, functions: Any) -> Any:
    if codec == LZ4:
        return _frame_lz4(data, start, end, out, at, functions)
    if codec == SNAPPY:
        return _frame_snappy(data, start, end, out, at, functions)
    room = packed_bound(end - start)
    if codec == GZIP:
        got = call_pack(functions[GZIP], data, start, end - start, out, at, room, functions[LEVEL])
    else:
        got = call_zstd(functions[codec], functions[0], data, start, end - start, out, at, room)
    return at + got if got > 0 else PACK_FAILED


@kernel
def pack_payload(codec: int, data: Any, start: int, end: int, out: Any, at: int, functions: Any) -> Any:
    """Compress `data[start:end]` to `out[at:]`, with room for `packed_bound`; return its end, or PACK_FAILED."""
    return _pack(codec, data, start, end, out, at, functions)


@kernel
def pack_batches(codec: int, data: Any, table: Any, rows: int, out: Any, functions: Any) -> tuple[int, int]:
    """Compress each row's records into `out`, behind room for its header; POSITION and SIZE follow.

    Return (row where it stopped, end of what was written): all rows unless a library failed. `functions` holds the zstd
    context, the addresses of the block encoders by codec number, and the level.
    """
    at: Any = np.int64(0)  # typed: numba would compile what it is handed to once more for the literal 0
    for row in range(rows):
        start = table[POSITION, row]
        end = _pack(codec, data, start + HEADER_SIZE, start + table[SIZE, row], out, at + HEADER_SIZE, functions)
        if end < 0:
            return row, at
        table[POSITION, row] = at
        table[SIZE, row] = end - at
        at = end
    return rows, at
