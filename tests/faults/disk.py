"""Disks that fail: every change of a job in turn fails, or is the last before the power goes.

All changes of kseg go through `kseg.durable`; here something stands in front of its functions. A job is a function
that changes a folder; it may promise something (`promise(value)`) once that has to survive whatever follows:

    def job(folder, promise):
        with kseg.append_to(folder / "orders-0") as writer:
            writer.append(rows)
            writer.flush()
            promise(writer.next_offset)

    def check(folder, end):
        log = kseg.open_log(folder / "orders-0")
        assert log.end_offset >= max(end.promised, default=0), end

    each_fault(start, job, check, folder=tmp_path)     # a folder as the job finds it: it is copied for each fault
    each_crash(start, job, check, folder=tmp_path)     # in tests/faults/forgetful.py: a disk that forgets

Faults of a change: the power goes before it, or in the middle of a write; the disk says EIO once; the disk is full from
there on, a write half done. With `FaultyDisk(number, "interrupt")` somebody presses Ctrl-C there.
"""

from __future__ import annotations

import errno
import functools
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg import durable
from kseg.errors import KsegError
from kseg.log import lock, writer_session
from kseg.os_errors import storage_error
from tests.scale import FACTOR, JIT_DISABLED

Promise = Callable[[Any], None]
Job = Callable[[Path, Promise], object]

WRITES = ("write_all", "write_at")
OPENS = ("create", "open_append", "open_write")
SYNCS = ("fsync_file", "fsync_dir")
NAMES = ("rename", "link", "unlink", "make_dir", "remove_dir")
OPERATIONS = (*OPENS, "close", *WRITES, *SYNCS, *NAMES, "truncate", "set_mtime_ms")
NEED_SPACE = ("create", *WRITES, "make_dir")


class PowerCutError(BaseException):
    """No handler for errors sees this one."""


@dataclass(frozen=True)
class End:
    """How a job ended: what was done to it, what it had promised, and the error that it raised, if any."""

    fault: str
    promised: tuple[Any, ...] = ()
    error: BaseException | None = None

    @property
    def power_was_cut(self) -> bool:
        return isinstance(self.error, PowerCutError)

    def __str__(self) -> str:
        return f"{self.fault}; promised {list(self.promised)}; error {self.error!r}"


@contextmanager
def in_front_of_durable(perform: Callable[..., Any]) -> Iterator[None]:
    """Let `perform(name, function, *args, **kwargs)` do what the functions of `kseg.durable` would."""
    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(durable, name, functools.partial(perform, name, getattr(durable, name)))
        yield


def forget_process() -> None:
    """What a killed process leaves in memory: nothing. Its locks are gone too."""
    writer_session._forget_in_child()
    lock._forget_in_child()


def path_of(name: str, args: tuple[Any, ...]) -> str:
    """Which file an operation is about, for messages."""
    paths = [str(arg) for arg in args if isinstance(arg, str | Path)]
    return " -> ".join(Path(path).name for path in paths) or f"descriptor {args[0]}"


TRIES = 5


class FaultyDisk:
    """Counts the operations, and has a fault at one of them."""

    def __init__(self, number: int | None = None, kind: str = "") -> None:
        self.number = number
        self.kind = kind
        self.seen: list[tuple[str, str]] = []
        self._dead = False
        self._full = False
        self._guard = threading.RLock()

    def perform(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do an operation, or not."""
        with self._guard:
            self.seen.append((name, path_of(name, args)))
            if name == "close":  # whatever happens, the descriptor is gone
                function(*args, **kwargs)
                function = _nothing
            if self._dead:
                raise PowerCutError
            if self._full and name in NEED_SPACE:
                self._fail(errno.ENOSPC, args)
            if len(self.seen) - 1 != self.number:
                return function(*args, **kwargs)
            return self._fault(name, function, args, kwargs)

    def _fault(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> None:
        if name in WRITES and self.kind in ("half", "full"):
            data_at = 2 if name == "write_at" else 1
            half = memoryview(args[data_at])[: len(memoryview(args[data_at])) // 2]
            function(*args[:data_at], half, *args[data_at + 1 :], **kwargs)
        if self.kind in ("cut", "half"):
            self._dead = True
            raise PowerCutError
        if self.kind == "interrupt":
            raise KeyboardInterrupt
        self._full = self.kind == "full"
        self._fail(errno.ENOSPC if self._full else errno.EIO, args)

    def _fail(self, number: int, args: tuple[Any, ...]) -> None:
        path = next((arg for arg in args if isinstance(arg, str | Path)), "")
        raise storage_error(OSError(number, "injected"), path)


class SmallDisk:
    """Has room for so many bytes beside what is in a folder; of a write for which there is too little, a part is done.

    What is deleted makes room again, and `kseg.durable.free_bytes` tells how much there is.
    """

    def __init__(self, folder: Path, room: int) -> None:
        self._folder = folder
        self._size = self._used() + room
        self._guard = threading.RLock()

    def _used(self) -> int:
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def free_bytes(self, directory: Path) -> int:
        """What may be written still."""
        return self._size - self._used()

    def perform(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do an operation, as far as there is room."""
        with self._guard:
            if name != "write_all":
                return function(*args, **kwargs)
            fd, data, *path = args
            free = self.free_bytes(self._folder)
            if memoryview(data).nbytes <= free:
                return function(*args, **kwargs)
            function(fd, memoryview(data).cast("B")[:free], *path)
            raise storage_error(OSError(errno.ENOSPC, "injected"), path[0])

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Let this be the disk of all that kseg does."""
        with pytest.MonkeyPatch.context() as patch, in_front_of_durable(self.perform):
            patch.setattr(durable, "free_bytes", self.free_bytes)
            yield


def _nothing(*_: Any, **__: Any) -> None:
    """Stands for what was done already."""


def kinds_of(name: str) -> tuple[str, ...]:
    """The faults that an operation can have."""
    if name == "close":
        return ("error",)
    if name in WRITES:
        return ("cut", "half", "error", "full")
    return ("cut", "error", "full") if name in NEED_SPACE else ("cut", "error")


def run_with(disk: FaultyDisk, job: Job, folder: Path) -> End:
    """Run a job on a disk; any error but kseg's own, and the power cut, is the test's."""
    promised: list[Any] = []
    error: BaseException | None = None
    try:
        with in_front_of_durable(disk.perform):
            job(folder, promised.append)
    except (KsegError, PowerCutError, KeyboardInterrupt) as raised:
        error = raised
    finally:
        forget_process()
    if disk.number is None or disk.number >= len(disk.seen):
        return End(f"nothing at operation {disk.number} of {len(disk.seen)}", tuple(promised), error)
    name, path = disk.seen[disk.number]
    return End(f"{disk.kind} at operation {disk.number}, {name} {path}", tuple(promised), error)


def each_fault(start: Path, job: Job, check: Callable[[Path, End], object], *, folder: Path, every: int = 1) -> int:
    """Run a job with every fault of every operation in turn, and check what is left; return how many faults there are.

    A run may have an operation less than the first: one that ends before its fault has to end well, and is repeated.
    Where kernels run without the JIT every fifth fault is enough: none of this is about them.

    Args:
        start: The folder as the job finds it; it is copied.
        every: Only one of so many faults, where a job has many and its check is slow; a soak has them all.
    """
    whole = FaultyDisk()
    end = run_with(whole, job, _copied(start, folder / "whole"))
    assert end.error is None, end
    check(folder / "whole", end)
    faults = [(number, kind) for number, (name, _) in enumerate(whole.seen) for kind in kinds_of(name)]
    every = max(every if FACTOR == 1 else 1, 5 if JIT_DISABLED else 1)
    for number, kind in faults[::every]:
        for attempt in range(TRIES):
            place = _copied(start, folder / f"{kind}-{number}-{attempt}")
            disk = FaultyDisk(number, kind)
            end = run_with(disk, job, place)
            with noted(end):
                assert end.error is None or number < len(disk.seen)
                check(place, end)
            shutil.rmtree(place, ignore_errors=True)  # Kafka's loader may still be deleting there
            if number < len(disk.seen):
                break
        else:
            raise AssertionError(f"no run had the fault {kind} at operation {number}")
    return len(faults)


@contextmanager
def noted(what: object) -> Iterator[None]:
    """Say in a failure what was being checked."""
    try:
        yield
    except Exception as error:
        error.add_note(str(what))
        raise


def _copied(start: Path, place: Path) -> Path:
    shutil.copytree(start, place)
    return place
