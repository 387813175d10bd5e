"""How much a second core can give on this machine: two processes that share nothing compact a log each, at once.

Memory, the page cache and the disk are shared all the same, so even they are not twice as fast as one. What threads
gain from a second core is to be held against that.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from benchmarks import keyed_data
from benchmarks.compact_work import Work
from benchmarks.keyed_data import KeyedCase

PROCESSES = 2


def _serve(link: Connection, case: KeyedCase) -> None:
    """Make fresh copies, say so, and compact them when told to; again and again."""
    with tempfile.TemporaryDirectory(dir=keyed_data.cache_home()) as folder:
        work = Work(case, Path(folder))
        while link.recv():
            copies = work.fresh()
            link.send(0)
            link.recv()
            records = work.compact(copies, 1, time.perf_counter)
            link.send((records, work.seconds))


class Apart:
    """The two processes; a context that ends them."""

    def __init__(self, case: KeyedCase) -> None:
        self._case = case
        self._links: list[Connection] = []
        self._stack = ExitStack()
        self.seconds = 0.0

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        for _ in range(PROCESSES):
            link, other = context.Pipe()
            process = context.Process(target=_serve, args=(other, self._case), daemon=True)
            process.start()
            self._stack.callback(process.join)
            self._stack.callback(link.send, False)
            self._links.append(link)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def run(self) -> int:
        """One round of both; the slower one's seconds count."""
        for link in self._links:  # one after the other, so that both begin when nothing else is going on
            link.send(True)
            link.recv()
        for link in self._links:
            link.send(True)
        found = [link.recv() for link in self._links]
        self.seconds = max(seconds for _, seconds in found)
        return sum(records for records, _ in found)

    def last_seconds(self) -> float:
        """Of the last round."""
        return self.seconds
