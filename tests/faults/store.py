"""Stores that fail: every call to a store in turn fails once, fails for good, or is done and its answer lost.

Calls are those of `ArrowStore` and, where a tier is a directory, of `LocalStore` below `root`; they are hit below the
retries. Objects of a local tier are written and deleted as one call each; the operations on files that make it up go
through `kseg.durable`, and fail by `tests.faults.disk`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kseg.errors import StorageError
from kseg.storage import LocalFile, LocalStore
from kseg.storage_arrow import ArrowFile, ArrowStore
from kseg.tiering.objects import TierObjects

CALLS = {
    ArrowStore: ("list", "list_below", "stat", "identify", "read", "write", "delete"),
    ArrowFile: ("read_into",),
    LocalStore: ("list", "stat", "read", "open"),
    LocalFile: ("read_into",),
    TierObjects: ("_put_once", "_put_together_once", "_delete_once"),
}
WRITES = ("write", "_put_once", "_put_together_once")  # what they write may be read from elsewhere

Decide = Callable[[int, str], str | None]
"""By a call's number, from 1, and its name: None, or `once`, `denied`, `answer` (done, and its answer is lost)."""


def busy(path: str) -> StorageError:
    """What another try can help."""
    error = StorageError("the server said 503", path=path)
    error.retryable = True
    return error


class Faults:
    """Counts calls, and lets some fail; calls that a failing one makes do not count."""

    def __init__(self, decide: Decide, root: str = "") -> None:
        self.count = 0
        self.failed = 0
        self._decide = decide
        self._root = root
        self._guard = threading.Lock()
        self._inside = threading.local()

    def call(self, function: Any, *args: Any) -> Any:
        """Do a call, or fail."""
        owner = args[0]
        is_tier = isinstance(owner, TierObjects)
        path = (
            owner.path(next(iter(args[1])) if isinstance(args[1], dict) else args[1])
            if is_tier
            else getattr(owner, "path", None) or args[1]
        )
        is_counted_below = is_tier and not owner.takes_at_once
        if getattr(self._inside, "yes", False) or is_counted_below or not path.startswith(self._root):
            return function(*args)
        with self._guard:
            self.count += 1
            fault = self._decide(self.count, function.__name__)
            self.failed += fault is not None
        if fault == "denied":
            raise StorageError("AWS Error ACCESS_DENIED", path=path)
        if fault == "once":
            raise busy(path)
        self._inside.yes = function.__name__ not in WRITES
        try:
            result = function(*args)
        finally:
            self._inside.yes = False
        if fault == "answer":
            raise busy(path)
        return result


@contextmanager
def failing(decide: Decide, root: str = "") -> Iterator[Faults]:
    """Let calls to stores fail for a block."""
    faults = Faults(decide, root)
    with pytest.MonkeyPatch.context() as patch:
        for kind, names in CALLS.items():
            for name in names:
                function = getattr(kind, name)

                def call(*args: Any, _function: Any = function) -> Any:
                    return faults.call(_function, *args)

                patch.setattr(kind, name, functools.wraps(function)(call))
        yield faults


def every(number: int) -> Decide:
    """One call in so many fails."""
    return lambda count, _: None if count % number else "once"


def at(number: int, fault: str) -> Decide:
    """One call fails."""
    return lambda count, _: fault if count == number else None


def down_from(number: int) -> Decide:
    """The store is away from a call on."""
    return lambda count, _: "once" if count >= number else None
