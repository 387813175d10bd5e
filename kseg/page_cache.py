"""The kernel's page cache: how much of a file is in it.

`preadv2` with RWF_NOWAIT cannot be asked for that: since Linux 5.9 it has the missing pages read, so that on a busy
machine they are there before it answers. `cachestat` (Linux 6.5) only looks.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from typing import Final

_CACHESTAT: Final = 451  # its number on all processors but Alpha
_FIELDS: Final = 5  # of the answer; the first is the number of cached pages
_PAGE: Final = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096


@functools.cache
def _syscall() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        call: Callable[..., int] = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return None
    return call


def is_mostly_cached(fd: int, start: int, end: int) -> bool | None:
    """Whether most pages of `[start, end)` are cached; None where the kernel does not tell, or not this user."""
    call = _syscall()
    if call is None or end <= start:
        return None
    asked = (ctypes.c_uint64 * 2)(start, end - start)
    told = (ctypes.c_uint64 * _FIELDS)()
    if call(ctypes.c_long(_CACHESTAT), ctypes.c_uint(fd), asked, told, ctypes.c_uint(0)) != 0:
        return None
    pages = (end - 1) // _PAGE - start // _PAGE + 1
    return 2 * int(told[0]) > pages
