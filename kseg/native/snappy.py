"""Raw snappy blocks.

The package's decoder is fast but has no C entry, and a Python call costs more than a small block; this one runs inside the
kernels (see docs/adr on codecs).
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined, kernel
from kseg.native.memory import copy_bytes, load_u8, store_u8

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


@kernel
def uncompress(data: Any, start: int, end: int, out: Any, at: int, limit: int) -> int:
    """Decompress the raw block `data[start:end]` to `out[at:limit]`; return the end of what was written, or a code."""
    length, position = _uncompressed_length(data, start, end)
    if length < 0:
        return BAD_BLOCK
    if length > limit - at:
        # no block of this size can give so many bytes: it lies, and asking for room would be wrong
        return BAD_BLOCK if length > 64 * (end - start) else NO_ROOM
    first = at
    last = at + length
    while position < end:
        tag = load_u8(data, position)
        position += 1
        kind = tag & 3
        if kind == 0:
            size = (tag >> 2) + 1
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
        if back >= size:
            copy_bytes(out, at, out, at - back, size)
        else:
            for i in range(size):
                store_u8(out, at + i, load_u8(out, at - back + i))
        at += size
    return at if at == last else BAD_BLOCK
