"""What a second core can gain for a round over uncompressed logs: the steps that no cleaner can leave out, alone.

Everything is read and checked twice, in one kernel call for each table of batches, and as many bytes as are left are
written and forced to the disk. Each thread has segments and a file of its own, so that none waits for another; what
keeps two of them from being twice as fast as one is the machine: memory, page cache and disk.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np

from kseg.native import table as t
from kseg.native.header_reads import pread_address, read_checked

PIECE = 1 << 20
ROWS = 1 << 16


class BareRound:
    """Reads the sealed segments of some partitions twice and writes `left` bytes into a folder."""

    def __init__(self, partitions: list[Path], left: int, folder: Path) -> None:
        self._segments = [file for path in partitions for file in sorted(path.glob("*.log"))[:-1]]
        self._left = left
        self._folder = folder
        self.seconds = 0.0

    def run(self, threads: int) -> float:
        """Do it, and return the seconds by the clock on the wall."""
        work = [threading.Thread(target=self._work, args=(number, threads)) for number in range(threads)]
        began = time.perf_counter()
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        self.seconds = time.perf_counter() - began
        return self.seconds

    def _work(self, number: int, threads: int) -> None:
        buffer, table = np.empty(PIECE, np.uint8), t.new_table(ROWS)
        for _ in range(2):
            for file in self._segments[number::threads]:
                _walk(file, buffer, table)
        target = self._folder / f"bare-{number}"
        with target.open("wb", buffering=0) as out:
            for _ in range(0, self._left // threads, PIECE):
                out.write(buffer.data)
            os.fsync(out.fileno())
        target.unlink()


def _walk(file: Path, buffer: t.Bytes, table: t.Table) -> None:
    with file.open("rb", buffering=0) as opened:
        size, position = file.stat().st_size, 0
        while position < size:
            before = position
            _, position, _ = read_checked(pread_address(), opened.fileno(), position, size, buffer, table, 0)
            if position == before:
                raise ValueError(f"bad batch at {position} of {file}")
