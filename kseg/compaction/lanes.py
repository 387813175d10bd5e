"""Two partitions at a time: while one is planned, or forced to disk and put in its place, threads work on the other.

Both together have the threads and the memory for keys of one, and what they tell of their progress does not overlap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from kseg.compaction.decode import RunDecoder
from kseg.progress import Progress

LANES: Final = 2

Task = TypeVar("Task")
Result = TypeVar("Result")


class Means:
    """What partitions share: memory for keys, in as many shares as there are of them at a time, and threads.

    Attributes:
        pool: The threads; None where each pass has its own.
    """

    def __init__(self, shares: int = 1, pool: ThreadPoolExecutor | None = None) -> None:
        self.shares = shares
        self.pool = pool
        self._free = shares
        self._changed = threading.Condition()
        self._next = threading.Lock()  # who wants all of it is not passed by who wants less
        self._local = threading.local()

    def decoder(self) -> RunDecoder:
        """The one of this thread: its memory is used by one piece after the other, whatever it is of."""
        if not hasattr(self._local, "decoder"):
            self._local.decoder = RunDecoder()
        decoder: RunDecoder = self._local.decoder
        return decoder

    @contextmanager
    def take(self, shares: int) -> Iterator[None]:
        """Wait for some shares of the memory."""
        with self._next, self._changed:
            self._changed.wait_for(lambda: self._free >= shares)
            self._free -= shares
        try:
            yield
        finally:
            with self._changed:
                self._free += shares
                self._changed.notify_all()


class StoppedError(KeyboardInterrupt):
    """Another partition ended the job."""


@dataclass(slots=True)
class _Phase:
    name: str
    total: int
    unit: str
    done: int = 0


class Relay:
    """Shows the progress of one lane at a time, that of another when its phase is over."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.is_stopped = False
        self.lock = threading.Lock()
        self._phases: dict[_Lane, _Phase] = {}
        self._shown: _Lane | None = None

    def lane(self) -> Progress:
        """For one of those that work side by side."""
        return _Lane(self)

    def check(self) -> None:
        """Leave, where another lane has ended the job."""
        if self.is_stopped:
            raise StoppedError

    def begin(self, lane: _Lane, phase: _Phase) -> None:
        """A phase of a lane starts."""
        self._phases[lane] = phase
        self._show_one()

    def advance(self, lane: _Lane, amount: int) -> None:
        """A lane did something."""
        self._phases[lane].done += amount
        if self._shown is lane:
            self.progress.advance(amount)

    def end(self, lane: _Lane) -> None:
        """A phase of a lane is over."""
        self._phases.pop(lane, None)
        if self._shown is lane:
            self._shown = None
            self.progress.end()
            self._show_one()

    def _show_one(self) -> None:
        if self._shown is None and self._phases:
            self._shown, phase = next(iter(self._phases.items()))
            self.progress.begin(phase.name, phase.total, phase.unit)
            if phase.done:
                self.progress.advance(phase.done)


class _Lane(Progress):
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def begin(self, phase: str, total: int, unit: str = "B") -> None:
        self._relay.check()
        with self._relay.lock:
            self._relay.begin(self, _Phase(phase, total, unit))

    def advance(self, amount: int) -> None:
        self._relay.check()
        with self._relay.lock:
            self._relay.advance(self, amount)

    def end(self) -> None:
        with self._relay.lock:
            self._relay.end(self)


def run_lanes(
    work: Callable[[Task, Progress, Means], Result], tasks: Sequence[Task], progress: Progress, lanes: int, threads: int
) -> list[Result]:
    """Do `work` for every task, so many at a time; an error of one ends all at their next step.

    Args:
        work: Gets a task, what it tells its progress to, and what it takes memory and threads from.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="kseg") as workers:
        means = Means(lanes, workers)
        if lanes <= 1:
            return [work(task, progress, means) for task in tasks]
        return _run_side_by_side(work, tasks, progress, means)


def _run_side_by_side(
    work: Callable[[Task, Progress, Means], Result], tasks: Sequence[Task], progress: Progress, means: Means
) -> list[Result]:
    relay = Relay(progress)
    with ThreadPoolExecutor(means.shares, thread_name_prefix="kseg-lane") as pool:
        made = [pool.submit(work, task, relay.lane(), means) for task in tasks]
        try:
            wait(made, return_when=FIRST_EXCEPTION)
            for future in made:
                if future.done():
                    future.result()  # raises what ended the job
            return [future.result() for future in made]
        except BaseException:
            relay.is_stopped = True
            pool.shutdown(wait=False, cancel_futures=True)
            raise
