"""Threads that several take turns to use: a task of a lower rank goes before those of a higher one.

Partitions that are worked on side by side would else reach their ends together, and wait for the disk together. So the
first one gets the threads as long as it has something for them, and the next one fills the gaps.
"""

from __future__ import annotations

import heapq
import itertools
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
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, int, Future[Any], Callable[[], Any]]] = []

    def submit(self, rank: int, work: Callable[[], Result]) -> Future[Result]:
        """Do some work when a thread is free and nobody of a lower rank, or earlier of the same, is waiting."""
        future: Future[Result] = Future()
        with self._lock:
            heapq.heappush(self._waiting, (rank, next(self._numbers), future, work))
        self._pool.submit(self._run_first)  # for each task one that takes the first of them, whichever it is then
        return future

    def _run_first(self) -> None:
        with self._lock:
            _, _, future, work = heapq.heappop(self._waiting)
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            del future, work  # an error's traceback leads to this frame: all that they hold would be in a cycle
