"""Raw snappy blocks.

The package's decoder is fast but has no C entry, and a Python call costs more than a small block; this one runs
inside the kernels (see docs/adr on codecs).
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined, kernel
from kseg.native.memory import copy_bytes, load_u8, move16, store_u8

BAD_BLOCK: Final = -1
NO_ROOM: Final = -2


@inlined
def _uncompressed_length(data: Any, at: int, end: int) -> tuple[int, int]:
    length = 0
    for i in range(5):
        if at + i >= end:
            return -1, at
        byte = load_u8(data, at + i)
        length |= (byte & 127) << (7 * i)
        if byte < 128:
            return (length, at + i + 1) if length <= 0xFFFFFFFF else (-1, at)
    return -1, at


@inlined
def _little_endian(data: Any, at: int, size: int) -> int:
    value = 0
    for i in range(size):
        value |= load_u8(data, at + i) << (8 * i)
    return value


@inlined
def _repeat(out: Any, at: int, back: int, size: int, limit: int) -> None:
    """Copy `size` bytes from `back` bytes before `at`, which may overlap: then the pattern repeats."""
    if limit - at < size + 16:  # no room to write whole steps of 16
        for i in range(size):
            store_u8(out, at + i, load_u8(out, at - back + i))
        return
    done = 0
    if back < 16:
        done = min(size, 16)
        for i in range(done):
            store_u8(out, at + i, load_u8(out, at - back + i))
        back *= 15 // back + 1  # a whole number of patterns, and no less than a step
    while done < size:
        move16(out, at + done, out, at + done - back)
        done += 16


@inlined
def uncompressed_end(data: Any, start: int, end: int, at: int, limit: int) -> int:
    """Where the block's content would end in `out[at:limit]`; NO_ROOM or BAD_BLOCK where it cannot."""
    length, _ = _uncompressed_length(data, start, end)
    if length < 0:
        return BAD_BLOCK
    if length > limit - at:
        # no block of this size can give so many bytes: it lies, and asking for room would be wrong
        return BAD_BLOCK if length > 64 * (end - start) else NO_ROOM
    return at + length


@kernel
def uncompress(data: Any, start: int, end: int, out: Any, at: int, limit: int) -> int:
    """Decompress the raw block `data[start:end]` to `out[at:limit]`; return where it ends there, or a code.

    Short pieces are copied in steps of 16 bytes that may write past their end: those bytes are written again, or are
    behind the result but inside the caller's room.
    """
    first = at
    last = uncompressed_end(data, start, end, at, limit)
    if last < 0:
        return last
    _, position = _uncompressed_length(data, start, end)
    while position < end:
        tag = load_u8(data, position)
        position += 1
        kind = tag & 3
        if kind == 0:
            size = (tag >> 2) + 1
            if size <= 16 and end - position >= 16 and limit - at >= 16 and size <= last - at:
                move16(out, at, data, position)
                position += size
                at += size
                continue
            if size > 60:
                extra = size - 60
                if extra > end - position:
                    return BAD_BLOCK
                size = _little_endian(data, position, extra) + 1
                position += extra
            if size > end - position or size > last - at:
                return BAD_BLOCK
            copy_bytes(out, at, data, position, size)
            position += size
            at += size
            continue
        if kind == 1:
            if position >= end:
                return BAD_BLOCK
            size = ((tag >> 2) & 7) + 4
            back = (tag >> 5) << 8 | load_u8(data, position)
            position += 1
        else:
            width = 2 if kind == 2 else 4
            if width > end - position:
                return BAD_BLOCK
            size = (tag >> 2) + 1
            back = _little_endian(data, position, width)
            position += width
        if back == 0 or back > at - first or size > last - at:
            return BAD_BLOCK
        _repeat(out, at, back, size, limit)
        at += size
    return at if at == last else BAD_BLOCK
