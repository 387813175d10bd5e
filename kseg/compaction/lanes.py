"""Several partitions at a time: while one is planned, or forced to disk and put in its place, threads work on others.

There is one more than threads, and some have these before others, so that not all come to these steps at once.

All together have the threads and the memory for keys of one, and what they tell of their progress does not overlap.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kseg.compaction.decode import RunDecoder
from kseg.compaction.keymap import clear_slots, new_slots
from kseg.compaction.ranked_pool import RankedPool
from kseg.compaction.rewrite import LatestOffsets, Rewriter, RewriteRoom, Rules
from kseg.compaction.slabs import Slabs
from kseg.native import table as t
from kseg.progress import Progress
from kseg.runner import Submit

MOST_LANES: Final = 4

Task = TypeVar("Task")
Result = TypeVar("Result")


class _Memory:
    def __init__(self, shares: int) -> None:
        self.free = shares
        self.tables: list[NDArray[np.int64]] = []
        self.changed = threading.Condition()
        self.next = threading.Lock()  # who wants all of it is not passed by who wants less


class _Disk:
    def __init__(self) -> None:
        self.writers = 0
        self.needed = 0
        self.is_alone = False
        self.changed = threading.Condition()
        self.next = threading.Lock()  # who waits until nobody writes is not passed by who need not


class Means:
    """What partitions share: memory for keys, in as many shares as there are of them at a time, threads and the disk.

    Attributes:
        submit: Has a thread do some work; None where each pass has threads of its own.
        rooms: Memory for what is written later.
        slabs: Memory for what lies aside.
    """

    def __init__(self, shares: int = 1) -> None:
        self.shares = shares
        self.submit: Submit | None = None
        self.rooms: list[t.Bytes] = []
        self.slabs = Slabs()
        self._memory = _Memory(shares)
        self._disk = _Disk()
        self._local = threading.local()

    def ranked(self, pool: RankedPool, rank: int) -> Means:
        """The same means, with the threads of a pool, in which those of a lower rank go first."""
        means = copy.copy(self)
        means.submit = partial(pool.submit, rank)
        return means

    def decoder(self) -> RunDecoder:
        """The one of this thread: its memory is used by one piece after the other, whatever it is of."""
        if not hasattr(self._local, "decoder"):
            self._local.decoder = RunDecoder()
        decoder: RunDecoder = self._local.decoder
        return decoder

    def rewriter(self, rules: Rules, latest: LatestOffsets) -> Rewriter:
        """One with the memory of this thread."""
        if not hasattr(self._local, "room"):
            self._local.room = RewriteRoom()
        return Rewriter(rules, latest, self.decoder(), self._local.room)

    def slots(self, count: int, clear: Callable[[NDArray[np.int64]], None] = clear_slots) -> NDArray[np.int64]:
        """The table of an empty map of keys, cleared: one that a partition before has given back, or a new one."""
        with self._memory.changed:
            same = [table for table in self._memory.tables if len(table) == count]
            found = same.pop() if same else None
            self._memory.tables = same  # there is room for one of another size only where none of these is kept
        if found is None:
            self.slabs.clear()  # beside a map of another size there may be less room for what lies aside
            return new_slots(count, clear)
        clear(found)
        return found

    def give_back(self, slots: NDArray[np.int64]) -> None:
        """Take a table that nobody uses any more."""
        with self._memory.changed:
            self._memory.tables.append(slots)

    @contextmanager
    def take(self, shares: int, *, is_all: bool = False) -> Iterator[None]:
        """Wait for some shares of the memory.

        Args:
            is_all: Nothing is kept then, for who needs all of the memory.
        """
        memory = self._memory
        with memory.next, memory.changed:
            memory.changed.wait_for(lambda: memory.free >= shares)
            memory.free -= shares
            if is_all:
                memory.tables.clear()
                self.slabs.clear()
        try:
            yield
        finally:
            with memory.changed:
                memory.free += shares
                memory.changed.notify_all()

    @contextmanager
    def take_disk(self, needed: int, free: Callable[[], int]) -> Iterator[bool]:
        """Tell whether there is room for so many bytes, beside what others need; where there is not, wait for them.

        Nobody else begins to write then before this one has ended.

        Args:
            free: Says how many bytes are free now.
        """
        disk = self._disk
        with disk.next, disk.changed:
            disk.changed.wait_for(lambda: not disk.is_alone)
            fits = disk.needed + needed <= free()
            if not fits and disk.writers:
                disk.changed.wait_for(lambda: not disk.writers)
                fits = needed <= free()
            disk.is_alone = not fits
            disk.writers += 1
            disk.needed += needed
        try:
            yield fits
        finally:
            with disk.changed:
                disk.is_alone = False
                disk.writers -= 1
                disk.needed -= needed
                disk.changed.notify_all()


def lanes_for(partitions: int, threads: int) -> int:
    """How many partitions are worked on at a time: one for each thread, and one more to fill the gaps."""
    return min(partitions, threads + 1, MOST_LANES)


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
        self.has_begun = threading.Event()  # some phase has, so that there is work for threads
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
        self.has_begun.set()
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
        shared, threads_of_all = Means(lanes), RankedPool(workers)
        means = [shared.ranked(threads_of_all, rank) for rank in range(len(tasks))]
        if lanes <= 1:
            return [work(task, progress, its) for task, its in zip(tasks, means, strict=True)]
        return _run_side_by_side(work, tasks, progress, means, lanes)


def _run_side_by_side(
    work: Callable[[Task, Progress, Means], Result],
    tasks: Sequence[Task],
    progress: Progress,
    means: Sequence[Means],
    lanes: int,
) -> list[Result]:
    relay = Relay(progress)

    def run(number: int, task: Task, its: Means) -> Result:
        if 0 < number < lanes:  # planned at the same time, all of them would keep the threads waiting twice as long
            relay.has_begun.wait()
        try:
            return work(task, relay.lane(), its)
        finally:
            relay.has_begun.set()

    with ThreadPoolExecutor(lanes, thread_name_prefix="kseg-lane") as pool:
        made = [
            pool.submit(run, number, task, its) for number, (task, its) in enumerate(zip(tasks, means, strict=True))
        ]
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
