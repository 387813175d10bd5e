"""Threads that work on pieces side by side write into one segment, in the order of the pieces.

Who works on the piece whose turn it is writes what it has, straight from its own memory. What others have by then
waits: in the memory that it lies in, where that stays as it is or is exchanged for other memory, else in a copy. It is
written as soon as its turn comes, by whoever ended the turn before.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Final

from kseg.compaction.rewrite import Append, Rewritten
from kseg.native import table as t
from kseg.native.memory import pooled

MOST_ROOMS: Final = 16  # of a megabyte or two each


@dataclass(frozen=True, slots=True)
class _Part:
    """Batches that wait; when they are written, `room`, the memory that they lie in, is one of `rooms` again."""

    data: t.Bytes
    table: t.Table
    room: t.Bytes
    rooms: list[t.Bytes]

    @property
    def size(self) -> int:
        return self.data.nbytes + self.table.nbytes


class Turns:
    """The pieces of one segment, by number; any thread may call it.

    Calls of `append` do not overlap. Where one fails, its error is that of the call that wrote, and no more is written.

    Args:
        most_waiting: Where more bytes would wait, who has them waits for its turn instead. Pieces are then begun in
            their order, and who cannot end one calls `stop`.
        rooms: Memory to exchange that of what waits for, and where that goes then; segments of one job share it.
    """

    def __init__(self, most_waiting: int = 2**62, rooms: list[t.Bytes] | None = None) -> None:
        self._lock = threading.Condition(threading.Lock())
        self._most_waiting = most_waiting
        self._waiting_bytes = 0
        self._is_stopped = False
        self._append: Append | None = None
        self._writing = threading.Lock()
        self._turn = 0
        self._ended: set[int] = set()
        self._waiting: defaultdict[int, list[_Part]] = defaultdict(list)
        # memory of what has waited, for what will: pages that were used cost nothing
        self._exchanged: list[t.Bytes] = [] if rooms is None else rooms
        self._copies: list[t.Bytes] = []
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

    def put(self, number: int, data: t.Bytes, table: t.Table, *, stays: bool = False) -> None:
        """Take batches of a piece that lie back to back in `data`, which may change afterwards unless it `stays`."""
        if self._writes_at_once(number, data, table):
            return
        self._let_wait(number, _Part(data, table, data, []) if stays else self._copied(data, table))

    def exchange(self, number: int, room: t.Bytes, filled: int, table: t.Table) -> t.Bytes:
        """Take batches of a piece that lie in the first bytes of a room; give it back, or another that is as large."""
        data = room[:filled]
        if self._writes_at_once(number, data, table):
            return room
        if 2 * filled < room.size:  # what waits for long is not to take much more memory than it needs
            self._let_wait(number, self._copied(data, table))
            return room
        another = self._room(self._exchanged, room.size, 0)
        self._let_wait(number, _Part(data, table, room, self._exchanged))
        return another

    def _copied(self, data: t.Bytes, table: t.Table) -> _Part:
        room = self._room(self._copies, data.size, data.size // 4)
        room[: data.size] = data
        return _Part(room[: data.size], table, room, self._copies)

    def _room(self, rooms: list[t.Bytes], size: int, more: int) -> t.Bytes:
        """One that was used before, where it is large enough, else a new one."""
        try:
            room = rooms.pop()
        except IndexError:
            room = pooled(0)
        return room if room.size >= size else pooled(size + more)

    def _writes_at_once(self, number: int, data: t.Bytes, table: t.Table) -> bool:
        """Write, where a piece has its turn; tell whether nothing is left to do."""
        if not self._takes_turn(number, data.nbytes + table.nbytes):
            return self._is_stopped
        self._write(data, table)
        self._write_waiting()
        return True

    def _let_wait(self, number: int, part: _Part) -> None:
        with self._lock:
            self._waiting[number].append(part)
        if self._may_write(number):  # its turn came meanwhile
            self._write_waiting()

    def end(self, number: int) -> None:
        """A piece is over."""
        with self._lock:
            self._ended.add(number)
        if self._may_write(number):
            self._write_waiting()

    def stop(self) -> None:
        """A piece will not be ended: nobody waits for it any more, and nothing behind it is written."""
        with self._lock:
            self._is_stopped = True
            self._lock.notify_all()

    def _takes_turn(self, number: int, size: int) -> bool:
        """Wait until a piece has its turn, or its bytes may wait; tell which of them it is."""
        while not self._may_write(number):
            with self._lock:
                if self._waiting_bytes + size <= self._most_waiting or self._is_stopped:
                    self._waiting_bytes += size
                    return False
                if self._is_busy or number != self._turn:
                    self._lock.wait()
        return True

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
                        self._lock.notify_all()
                        return
                    self._turn += 1
            for part in parts:
                self._write(part.data, part.table)
            with self._lock:
                self._waiting_bytes -= sum(part.size for part in parts)
                for part in parts:
                    if len(part.rooms) < MOST_ROOMS:
                        part.rooms.append(part.room)
                self._lock.notify_all()

    def _write(self, data: t.Bytes, table: t.Table) -> None:
        with self._writing:
            if self._append is not None:
                self._append(data, table)
