"""Arrays that end, or begin, at a page which nobody may touch: a kernel that reads or writes past them dies at once.

Kernels run without bounds checks, and an access a few bytes behind an ordinary array goes unnoticed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
PROT_NONE = 0
_LIBC = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)


class Guarded:
    """Room for `size` bytes between two forbidden pages; arrays made from it share the room."""

    def __init__(self, size: int) -> None:
        self._room = max(size + PAGE - 1, PAGE) // PAGE * PAGE
        self._map = mmap.mmap(-1, PAGE + self._room + PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for page in (base, base + PAGE + self._room):
            if _LIBC.mprotect(ctypes.c_void_p(page), PAGE, PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def array(self, shape: int | tuple[int, ...], kind: Any = np.uint8) -> NDArray[Any]:
        """An array whose last byte is the last one that may be touched."""
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        if size > self._room:
            raise ValueError(f"{size} bytes asked, {self._room} there")
        if size == 0:
            return np.empty(shape, kind)
        raw = np.frombuffer(self._map, np.uint8, size, PAGE + self._room - size)  # keeps the map alive
        return raw.view(kind).reshape(shape)

    def holding(self, data: bytes) -> NDArray[np.uint8]:
        """The bytes, ending at the forbidden page."""
        made = self.array(len(data))
        made[:] = np.frombuffer(data, np.uint8)
        return made

    def beginning(self, data: bytes) -> NDArray[np.uint8]:
        """The bytes, right behind the forbidden page in front."""
        made = np.frombuffer(self._map, np.uint8, len(data), PAGE)
        made[:] = np.frombuffer(data, np.uint8)
        return made
