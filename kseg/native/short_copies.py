"""Copies of short fields without a call: whole steps, which may touch what lies behind the field."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined
from kseg.native.memory import copy_bytes, move32

BEYOND: Final = 128  # bytes behind a field that may be copied with it
_LONG: Final = 512  # from here on a call costs less than the steps


@inlined
def copy_beyond(target: Any, at: int, source: Any, start: int, length: int) -> None:
    """Copy a field, and up to BEYOND bytes that lie behind it: a call, and its look at the length, cost more."""
    move32(target, at, source, start)
    if length > 32:
        move32(target, at + 32, source, start + 32)
        move32(target, at + 64, source, start + 64)
        move32(target, at + 96, source, start + 96)
        done: Any = np.int64(128)
        while done < length:
            move32(target, at + done, source, start + done)
            move32(target, at + done + 32, source, start + done + 32)
            done += 64


@inlined
def copy_field(target: Any, at: int, source: Any, start: int, length: int) -> None:
    """Copy a field of at least one byte; what is written behind it, where there is room, has no meaning."""
    has_room = at + length + BEYOND <= target.shape[0] and start + length + BEYOND <= source.shape[0]
    if length < _LONG and has_room:
        copy_beyond(target, at, source, start, length)
    else:
        copy_bytes(target, at, source, start, length)
