"""Memory for what lies aside, which goes from one partition to the next: new pages cost more than what is put there."""

from __future__ import annotations

import mmap
import weakref
from typing import Final

import numpy as np

from kseg.native import table as t
from kseg.native.pages import map_pages, plain_pages

SLAB_BYTES: Final = 4 << 20


class Slabs:
    """Gives slabs, first those that nobody has anything in any more; any thread may call it."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def take(self, size: int) -> t.Bytes:
        """A slab of at least so many bytes; its memory is free again when neither it nor a view of it is left."""
        if size > SLAB_BYTES:
            return plain_pages(size)
        try:
            pages = self._free.pop()
        except IndexError:
            pages = map_pages(SLAB_BYTES)
        slab = np.frombuffer(pages, np.uint8)
        weakref.finalize(slab, self._free.append, pages).atexit = False
        return slab

    def clear(self) -> None:
        """Give what is free back to the system, for who needs memory for something else."""
        self._free.clear()


class Slab:
    """Copies of many small pieces of data, back to back; for one thread."""

    def __init__(self, slabs: Slabs) -> None:
        self._slabs = slabs
        self._room = np.empty(0, np.uint8)

    def store(self, data: t.Bytes) -> t.Bytes:
        """A copy."""
        if self._room.size < data.size:
            self._room = self._slabs.take(data.size)
        held, self._room = self._room[: data.size], self._room[data.size :]
        held[:] = data
        return held
