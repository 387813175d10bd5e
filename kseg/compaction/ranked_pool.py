"""Threads that several use side by side: each has one of them before anybody has two.

Where one thread works on a partition, nothing that it has written waits for others, and no lock is asked for twice.
Where there are more partitions than threads those of a lower rank go first, and the others fill the gaps: else all of
them would reach their ends together, and wait for the disk together.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class RankedPool:
    """Runs tasks in the threads of a pool."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._waiting: dict[int, collections.deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._running: collections.Counter[int] = collections.Counter()

    def submit(self, rank: int, work: Callable[[], Result]) -> Future[Result]:
        """Do some work when a thread is free: for whom fewest work then, and of these for the lowest rank."""
        future: Future[Result] = Future()
        with self._lock:
            self._waiting.setdefault(rank, collections.deque()).append((future, work))
        self._pool.submit(self._run_first)  # for each task one that takes the first of them, whichever it is then
        return future

    def _run_first(self) -> None:
        with self._lock:
            rank = min(self._waiting, key=lambda rank: (self._running[rank], rank))
            future, work = self._waiting[rank].popleft()
            if not self._waiting[rank]:
                del self._waiting[rank]
            self._running[rank] += 1
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        finally:
            del future, work  # an error's traceback leads to this frame: all that they hold would be in a cycle
            with self._lock:
                self._running[rank] -= 1
