"""Threads that work on pieces side by side write into one segment, in the order of the pieces.

Who works on the piece whose turn it is writes what it has, straight from its own memory. What others have by then is
copied, and waits; it is written as soon as its turn comes, by whoever ended the turn before.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Generator, Iterable

from kseg.compaction.rewrite import Append, Rewritten
from kseg.native import table as t
from kseg.native.memory import pooled


class Turns:
    """The pieces of one segment, by number; any thread may call it.

    Calls of `append` do not overlap. Where one fails, its error is that of the call that wrote, and no more is written.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._append: Append | None = None
        self._writing = threading.Lock()
        self._turn = 0
        self._ended: set[int] = set()
        self._waiting: defaultdict[int, list[tuple[t.Bytes, t.Table]]] = defaultdict(list)
        self._is_busy = True  # somebody writes, or nobody can yet

    def gather(self, results: Iterable[Rewritten], append: Append) -> Generator[Rewritten]:
        """Let threads write by `append` while their results are gone through; close it before `append` gets invalid."""
        self._append = append
        try:
            self._write_waiting()
            yield from results
        finally:
            with self._writing:
                self._append = None

    def put(self, number: int, data: t.Bytes, table: t.Table) -> None:
        """Take batches of a piece that lie back to back in `data`, which may change afterwards."""
        if self._may_write(number):
            self._write(data, table)
            self._write_waiting()
            return
        held = pooled(len(data))
        held[:] = data
        with self._lock:
            self._waiting[number].append((held, table))
        if self._may_write(number):  # its turn came meanwhile
            self._write_waiting()

    def end(self, number: int) -> None:
        """A piece is over."""
        with self._lock:
            self._ended.add(number)
        if self._may_write(number):
            self._write_waiting()

    def _may_write(self, number: int) -> bool:
        """Whether a piece has its turn and nobody writes; who asked is the one who writes then."""
        with self._lock:
            if self._is_busy or number != self._turn:
                return False
            self._is_busy = True
            return True

    def _write_waiting(self) -> None:
        while True:
            with self._lock:
                parts = self._waiting.pop(self._turn, [])
                if not parts:
                    if self._turn not in self._ended:
                        self._is_busy = False
                        return
                    self._turn += 1
            for data, table in parts:
                self._write(data, table)

    def _write(self, data: t.Bytes, table: t.Table) -> None:
        with self._writing:
            if self._append is not None:
                self._append(data, table)
