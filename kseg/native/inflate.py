"""Gzip members out of zlib's own stream, which is set up once and reset for each member (see `deflate.py`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined
from kseg.native.deflate import (
    AVAILABLE_IN,
    AVAILABLE_OUT,
    FINISH,
    LARGEST,
    NEXT_IN,
    NEXT_OUT,
    STREAM_END,
    address_of,
    call_deflate,
    call_reset,
)
from kseg.native.memory import load_u8
from kseg.native.snappy import BAD_BLOCK, NO_ROOM

NOTHING_TO_DO: Final = -5  # Z_BUF_ERROR: the input or the room has come to its end


@inlined
def _member_begins(data: Any, at: int, end: int) -> bool:
    return (
        end - at >= 3 and load_u8(data, at) == 0x1F and load_u8(data, at + 1) == 0x8B and load_u8(data, at + 2) == 0x08
    )


@inlined
def inflate_members(
    data: Any, start: int, end: int, out: Any, at: int, limit: int, state: Any, first: int, reset: int, inflate: int
) -> Any:
    """Decompress all gzip members of `data[start:end]` to `out[at:limit]`; return where it ends there, or a code.

    What follows the last member is ignored, as Java's GZIPInputStream ignores it. `state[first:]` is a z_stream that
    was set up for gzip; `reset` and `inflate` are the addresses of zlib's functions.
    """
    stream = address_of(state, np.int64(first))
    position = start
    written: Any = np.int64(at)
    while True:
        if end - position > LARGEST or call_reset(reset, stream) != 0:
            return BAD_BLOCK
        room = min(limit - written, LARGEST)
        state[first + NEXT_IN] = address_of(data, position)
        state[first + AVAILABLE_IN] = end - position
        state[first + NEXT_OUT] = address_of(out, written)
        state[first + AVAILABLE_OUT] = room
        status = call_deflate(inflate, stream, FINISH)
        position = end - state[first + AVAILABLE_IN]
        written += room - state[first + AVAILABLE_OUT]
        if status != STREAM_END:
            full = state[first + AVAILABLE_OUT] == 0 and (status == NOTHING_TO_DO or status == 0)
            return NO_ROOM if full else BAD_BLOCK
        if not _member_begins(data, position, end):
            return written
