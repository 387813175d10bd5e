"""What two cores can give on this machine: two processes that share nothing work at the same time.

Memory, the page cache and the disk are shared all the same, so even they are not twice as fast as one. What threads
gain from a second core is to be held against that.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self, TypeAlias

from benchmarks import keyed_data
from benchmarks.keyed_data import KeyedCase

PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Share:
    """What one of the processes does: `prepare` before the clock starts, then `run`, which tells how many records."""

    prepare: Callable[[], object]
    run: Callable[[], int]


MakeShare: TypeAlias = Callable[[KeyedCase, Path, int], Share]
"""A function of a module: gets the case, a folder of its own and the number of the process."""


def _serve(link: Connection, make: MakeShare, case: KeyedCase, number: int) -> None:
    with tempfile.TemporaryDirectory(dir=keyed_data.cache_home()) as folder:
        share = make(case, Path(folder), number)
        while link.recv():
            share.prepare()
            link.send(0)
            link.recv()
            began = time.perf_counter()
            records = share.run()
            link.send((records, time.perf_counter() - began))


class Apart:
    """The two processes; a context that ends them."""

    def __init__(self, make: MakeShare, case: KeyedCase) -> None:
        self._make = make
        self._case = case
        self._links: list[Connection] = []
        self._stack = ExitStack()
        self.seconds = 0.0

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        for number in range(PROCESSES):
            link, other = context.Pipe()
            process = context.Process(target=_serve, args=(other, self._make, self._case, number), daemon=True)
            process.start()
            self._stack.callback(process.join)
            self._stack.callback(link.send, False)
            self._links.append(link)
        self.run()  # once, so that kernels are loaded and memory is warm
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
