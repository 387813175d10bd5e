"""Decompress the payloads of many batches into one arena, in one call.

The framings (xerial, LZ4 frame) are walked here, as Kafka's own streams walk them; the blocks inside are handed to
the field's libraries through C function pointers that the caller gives (`format/codec.py` finds them), so that no
Python runs per batch.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined, kernel
from kseg.native.deflate import INFLATE_WORDS, inflate_members
from kseg.native.legacy import scan_wrapper, wrapper_payload
from kseg.native.memory import call_block, call_zstd, copy_bytes, load_i32, load_u8
from kseg.native.snappy import NO_ROOM, uncompress, uncompressed_end
from kseg.native.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    COUNT,
    HEADER_SIZE,
    LAST_OFFSET,
    MAGIC,
    POSITION,
    SIZE,
)

DONE: Final = 0
ARENA_FULL: Final = 1
BAD_PAYLOAD: Final = -1
BAD_CODEC: Final = -2
BAD_WRAPPER: Final = -3

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

GZIP_STATE: Final = 5  # entries of `functions` behind the zstd context and the block decoders by codec number
FUNCTIONS: Final = GZIP_STATE + INFLATE_WORDS

XERIAL_HEADER: Final = 16
LARGE_SNAPPY_BLOCK: Final = 4096
XERIAL_MAGIC: Final = 0x82534E41 - (1 << 32)  # the first four bytes as a signed number
XERIAL_MAX_CHUNK: Final = 512 << 20
ZSTD_NO_ROOM: Final = -70  # ZSTD_error_dstSize_tooSmall
PRIME1: Final = 2654435761
PRIME2: Final = 2246822519
PRIME3: Final = 3266489917
PRIME4: Final = 668265263
PRIME5: Final = 374761393
MASK: Final = 0xFFFFFFFF


@inlined
def _load_le32(data: Any, at: int) -> Any:
    return load_u8(data, at) | load_u8(data, at + 1) << 8 | load_u8(data, at + 2) << 16 | load_u8(data, at + 3) << 24


@inlined
def _times(a: int, b: int) -> int:
    """32-bit product, without leaving 63 bits: the plain twin has no wrap-around to rely on."""
    return ((a & 0xFFFF) * b + (((a >> 16) * b & 0xFFFF) << 16)) & MASK


@inlined
def _rotate(value: int, count: int) -> int:
    return ((value << count) | (value >> (32 - count))) & MASK


@kernel
def xxhash32(data: Any, start: int, end: int) -> int:
    """xxHash32 with seed 0: what LZ4 frames use for their descriptor and block checksums."""
    at = start
    if end - start >= 16:
        a = (PRIME1 + PRIME2) & MASK
        b = PRIME2
        c = 0
        d = (-PRIME1) & MASK
        while at + 16 <= end:
            a = _times(_rotate((a + _times(_load_le32(data, at), PRIME2)) & MASK, 13), PRIME1)
            b = _times(_rotate((b + _times(_load_le32(data, at + 4), PRIME2)) & MASK, 13), PRIME1)
            c = _times(_rotate((c + _times(_load_le32(data, at + 8), PRIME2)) & MASK, 13), PRIME1)
            d = _times(_rotate((d + _times(_load_le32(data, at + 12), PRIME2)) & MASK, 13), PRIME1)
            at += 16
        value = (_rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)) & MASK
    else:
        value = PRIME5
    value = (value + (end - start)) & MASK
    while at + 4 <= end:
        value = _times(_rotate((value + _times(_load_le32(data, at), PRIME3)) & MASK, 17), PRIME4)
        at += 4
    while at < end:
        value = _times(_rotate((value + load_u8(data, at) * PRIME5) & MASK, 11), PRIME1)
        at += 1
    value = _times(value ^ (value >> 15), PRIME2)
    value = _times(value ^ (value >> 13), PRIME3)
    return value ^ (value >> 16)


@inlined
def _lz4_header(data: Any, start: int, end: int, check_descriptor: bool) -> tuple[int, int, int]:
    """Read a frame descriptor; return (first block's position, largest block, flags), position -1 where it is bad."""
    if end - start < 7 or _load_le32(data, start) != 0x184D2204:
        return -1, 0, 0
    flags = load_u8(data, start + 4)
    block = load_u8(data, start + 5)
    # version 1, independent blocks, reserved bits clear; what Kafka's stream refuses is refused
    if flags & 0xE3 != 0x60 or block & 0x8F or block >> 4 < 4:
        return -1, 0, 0
    at = start + 6
    if flags & 0x08:
        at += 8
    if at >= end:
        return -1, 0, 0
    if check_descriptor and load_u8(data, at) != (xxhash32(data, start + 4, at) >> 8) & 0xFF:
        return -1, 0, 0
    return at + 1, 1 << (2 * (block >> 4) + 8), flags


@kernel
def unframe_lz4(
    data: Any, start: int, end: int, check_descriptor: bool, out: Any, at: int, limit: int, function: int
) -> int:
    """Decompress the LZ4 frame `data[start:end]` to `out[at:limit]`; return where it ends there, or a negative code.

    The content checksum is not verified and bytes behind the end mark are ignored, as in Kafka.
    """
    position, largest, flags = _lz4_header(data, start, end, check_descriptor)
    if position < 0:
        return BAD_PAYLOAD
    while True:
        if end - position < 4:
            return BAD_PAYLOAD
        size = _load_le32(data, position)
        position += 4
        stored = size >> 31
        size &= 0x7FFFFFFF
        if size == 0:  # the end mark; a content checksum behind it must be there, but is not looked at
            return at if not flags & 0x04 or end - position >= 4 else BAD_PAYLOAD
        trailer = 4 if flags & 0x10 else 0
        if size > largest or size + trailer > end - position:
            return BAD_PAYLOAD
        if trailer and _load_le32(data, position + size) != xxhash32(data, position, position + size):
            return BAD_PAYLOAD
        if stored:
            if size > limit - at:
                return NO_ROOM
            copy_bytes(out, at, data, position, size)
            at += size
        else:
            got = call_block(function, data, position, size, out, at, min(largest, limit - at))
            if got < 0:
                return BAD_PAYLOAD if limit - at >= largest else NO_ROOM
            at += got
        position += size + trailer


@inlined
def _uncompress_block(data: Any, start: int, end: int, out: Any, at: int, limit: int, function: int) -> int:
    """A raw block: by the kernel where it is small, by the package where its speed is worth a call."""
    if end - start < LARGE_SNAPPY_BLOCK or not function:
        return uncompress(data, start, end, out, at, limit)
    last = uncompressed_end(data, start, end, at, limit)
    if last < 0:
        return last
    got = call_block(function, data, start, end - start, out, at, last - at)
    return last if got == last - at else BAD_PAYLOAD


@kernel
def unframe_snappy(data: Any, start: int, end: int, out: Any, at: int, limit: int, function: int) -> int:
    """Decompress xerial-framed or raw snappy to `out[at:limit]`; return where it ends there, or a negative code."""
    if end - start < XERIAL_HEADER or load_i32(data, start) != XERIAL_MAGIC or load_i32(data, start + 4) != 0x50505900:
        return _uncompress_block(data, start, end, out, at, limit, function)
    position = start
    while end - position >= 4:  # fewer bytes than a chunk's length: the end, to xerial's reader too
        size = load_i32(data, position)
        if size == XERIAL_MAGIC:
            # a version is looked at, by xerial's reader too, only where a second stream follows the first
            if end - position < XERIAL_HEADER or (position > start and load_i32(data, position + 8) < 1):
                return BAD_PAYLOAD
            position += XERIAL_HEADER
            continue
        position += 4
        if size < 0 or size > XERIAL_MAX_CHUNK or size > end - position:
            return BAD_PAYLOAD
        at = _uncompress_block(data, position, position + size, out, at, limit, function)
        if at < 0:
            return at
        position += size
    return at


@inlined
def decompress(
    codec: int, magic: int, data: Any, start: int, end: int, out: Any, at: int, limit: Any, functions: Any
) -> Any:
    """Decompress a payload of one of the four codecs to `out[at:limit]`; return where it ends, or a negative code."""
    if codec == LZ4:
        return unframe_lz4(data, start, end, magic > 0, out, at, limit, functions[LZ4])
    if codec == SNAPPY:
        return unframe_snappy(data, start, end, out, at, limit, functions[SNAPPY])
    if codec == ZSTD:
        got = call_zstd(functions[ZSTD], functions[0], data, start, end - start, out, at, limit - at)
        if got == ZSTD_NO_ROOM:
            return NO_ROOM
        return at + got if got >= 0 else BAD_PAYLOAD
    return inflate_members(data, start, end, out, at, limit, functions, GZIP_STATE, functions[GZIP])


@kernel
def fill_payloads(
    data: Any, file_position: int, table: Any, first_row: int, end_row: int, skip: Any, arena: Any, limit: int,
    functions: Any, starts: Any, ends: Any,
) -> tuple[int, int]:  # fmt: skip
    """Find or make the payload of each row; return (row where it stopped, status).

    An uncompressed payload stays where it is: `[starts[row], ends[row])` is in `data`. A compressed one goes into the
    arena, and its range is shifted by `len(data)`, which is how the record kernels tell the two apart. A legacy
    wrapper's COUNT and BASE_OFFSET become known here. Rows with `skip[row]` are passed over. No payload may be larger
    than `limit`. `functions` holds the zstd context, the addresses of the block decoders by codec number, and the
    state of libdeflate.
    """
    filled: Any = np.int64(0)  # typed: numba would compile what it is handed to once more for the literal 0
    shift = data.shape[0]
    for row in range(first_row, end_row):
        starts[row] = 0
        ends[row] = 0
        if skip[row]:
            continue
        at = table[POSITION, row] - file_position
        start = at
        end = at + table[SIZE, row]
        magic = table[MAGIC, row]
        codec = table[ATTRIBUTES, row] & CODEC_MASK
        if codec > ZSTD or (codec == ZSTD and magic < 2):
            return row, BAD_CODEC
        if codec == 0:
            starts[row] = at + HEADER_SIZE if magic == 2 else at
            ends[row] = end
            continue
        if magic == 2:
            if table[COUNT, row] == 0:
                continue
            start = at + HEADER_SIZE
        else:
            start, end = wrapper_payload(data, at, end, magic)
            if start < 0:
                return row, BAD_WRAPPER
        room: Any = min(np.int64(arena.shape[0]), filled + limit)
        got = decompress(codec, magic, data, start, end, arena, filled, room, functions)
        if got == NO_ROOM:
            return row, ARENA_FULL
        if got < 0:
            return row, BAD_PAYLOAD
        starts[row] = shift + filled
        ends[row] = shift + got
        if magic < 2:
            count, base = scan_wrapper(arena, filled, got, magic, table[LAST_OFFSET, row])
            if count <= 0:
                return row, BAD_WRAPPER
            table[COUNT, row] = count
            table[BASE_OFFSET, row] = base
        filled = got
    return end_row, DONE
