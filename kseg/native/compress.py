"""Compress the records of many encoded batches, in one call, in the framings that Kafka writes.

As in `codecs.py`, the frames are made here and the blocks by the field's libraries, through C function pointers; those
of snappy by a kernel.

Two arrays belong to whoever compresses, one pair per thread: `functions`, with the zstd context, the addresses of the
block encoders by codec number, the level and a gzip compressor, and `scratch`, the table of the snappy encoder.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined, kernel
from kseg.native.codecs import GZIP, LZ4, SNAPPY, XERIAL_HEADER
from kseg.native.deflate import deflate_member
from kseg.native.memory import call_pack, call_zstd, copy_bytes, store_i32, store_u8
from kseg.native.snappy_compress import TABLE_BYTES, compress_block
from kseg.native.table import HEADER_SIZE, POSITION, SIZE

LEVEL: Final = 5  # entry of `functions` behind the codecs' addresses
COMPRESSOR: Final = 6  # libdeflate's; where it is 0, gzip's entry is a function of LZ4's shape
PACK_FIELDS: Final = 7
SCRATCH_BYTES: Final = TABLE_BYTES
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
def _frame_snappy(data: Any, start: int, end: int, out: Any, at: int, scratch: Any) -> int:
    """The stream of xerial: a header, then chunks of 32 KiB, each a length and a raw block."""
    store_i32(out, at, 0x82534E41)
    store_i32(out, at + 4, 0x50505900)
    store_i32(out, at + 8, 1)
    store_i32(out, at + 12, 1)
    at += XERIAL_HEADER
    while start < end:
        chunk_end = min(start + XERIAL_BLOCK, end)
        block_end = compress_block(data, start, chunk_end, out, at + 4, scratch)
        store_i32(out, at, block_end - at - 4)
        at = block_end
        start = chunk_end
    return at


@inlined
def _pack(codec: int, data: Any, start: int, end: int, out: Any, at: int, functions: Any, scratch: Any) -> Any:
    if codec == LZ4:
        return _frame_lz4(data, start, end, out, at, functions)
    if codec == SNAPPY:
        return _frame_snappy(data, start, end, out, at, scratch)
    room = packed_bound(end - start)
    if codec == GZIP and functions[COMPRESSOR]:
        got = deflate_member(data, start, end, out, at, room, functions[COMPRESSOR], functions[GZIP])
    elif codec == GZIP:
        got = call_pack(functions[GZIP], data, start, end - start, out, at, room, functions[LEVEL])
    else:
        got = call_zstd(functions[codec], functions[0], data, start, end - start, out, at, room)
    return at + got if got > 0 else PACK_FAILED


@kernel
def pack_payload(codec: int, data: Any, start: int, end: int, out: Any, at: int, functions: Any, scratch: Any) -> Any:
    """Compress `data[start:end]` to `out[at:]`, with room for `packed_bound`; return its end, or PACK_FAILED."""
    return _pack(codec, data, start, end, out, at, functions, scratch)


@kernel
def pack_batches(
    codec: int, data: Any, table: Any, first_row: int, end_row: int, out: Any, at: int, functions: Any, scratch: Any
) -> tuple[int, int]:
    """Compress each row's records to `out[at:]`, behind room for its header; POSITION and SIZE follow.

    Return (row where it stopped, end of what was written): `end_row` unless a library failed.
    """
    for row in range(first_row, end_row):
        start = table[POSITION, row]
        end = _pack(
            codec, data, start + HEADER_SIZE, start + table[SIZE, row], out, at + HEADER_SIZE, functions, scratch
        )
        if end < 0:
            return row, at
        table[POSITION, row] = at
        table[SIZE, row] = end - at
        at = end
    return end_row, at
