"""Memory straight from the system."""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
from numpy.typing import NDArray

_NOTHING: Final = np.empty(0, np.uint8)


def map_pages(size: int) -> mmap.mmap:
    """Zeros in pages of their own, which are small unless the system makes all of them huge.

    An array of numpy asks for huge ones where it is large. Those are quicker to use, but take some machines a
    millisecond each to get, and more where threads ask for them at the same time.
    """
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def plain_pages(size: int) -> NDArray[np.uint8]:
    """The same as an array."""
    return np.frombuffer(map_pages(size), np.uint8) if size else _NOTHING
