"""A byte range of an open file that kernels go through by steps (`kseg.native.steps`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.native import steps
from kseg.native import table as t

BUFFER_BYTES: Final = 2 << 20  # the largest batch that is not left to the walk
TABLE_ROWS: Final = (1 << 12) + 8  # of a step; no power of two: columns would share one set of the CPU's cache


@dataclass(slots=True)
class FileSpan:
    """Bytes `[position, end)` of an open file; a batch begins there, and `last_offset` is that of the batch before.

    Whoever goes through it moves both to where it has stopped.
    """

    descriptor: int
    position: int
    end: int
    last_offset: int
    is_over: bool = False
    """Whether all that was wanted of it was found."""

    def new_cursor(self, entries: int) -> NDArray[np.int64]:
        """What kernels keep their place in."""
        cursor = np.zeros(entries, np.int64)
        cursor[steps.FROM], cursor[steps.LAST] = self.position, self.last_offset
        return cursor

    def move(self, table: t.Table, cursor: NDArray[np.int64]) -> None:
        """Begin with the first batch that was not worked on."""
        row = int(cursor[steps.ROW])
        if row < cursor[steps.ROWS]:
            self.position = int(table[t.POSITION, row])
            self.last_offset = int(table[t.LAST_OFFSET, row - 1] if row else cursor[steps.BEFORE])
        else:
            self.position = int(cursor[steps.FROM] + cursor[steps.WALKED])
            self.last_offset = int(cursor[steps.LAST])
