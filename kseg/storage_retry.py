"""Calls to stores that are tried again: one policy for who reads and who writes.

An error says itself whether another try can help (`StorageError.retryable`): whoever turns a store's answer into an
error knows. One that was tried to the end is not retryable any more, so that no outer loop multiplies the waiting.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from kseg.errors import StorageError
from kseg.storage import Entries, Entry, RandomFile, Store, Writable

Result = TypeVar("Result")

GIVE_UP_AFTER_S: Final = 90.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is tried, and how long the pauses between are: they double, up to a limit, with some chance.

    Attributes:
        give_up_after_s: No try begins later than this: each may wait for a server that says nothing.
    """

    attempts: int = 5
    first_pause_s: float = 0.2
    longest_pause_s: float = 10.0
    sleep: Callable[[float], None] = time.sleep
    give_up_after_s: float = GIVE_UP_AFTER_S

    def run(self, call: Callable[[], Result]) -> Result:
        """Call until it succeeds; what cannot be helped by another try is raised at once.

        Raises:
            StorageError: As the last try failed, with how often it was tried.
        """
        began, pause, attempt = time.monotonic(), self.first_pause_s, 1
        while True:
            try:
                return call()
            except StorageError as error:
                elapsed = time.monotonic() - began
                if not error.retryable:
                    raise
                if attempt >= self.attempts or elapsed >= self.give_up_after_s:
                    error.retryable = False
                    if attempt > 1:
                        error.message += f" (tried {attempt} times in {elapsed:.0f} s)"
                    raise
            self.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, self.longest_pause_s)
            attempt += 1


class RetryingFile:
    """An open file whose reads are tried again, on a file that is opened anew: some clients break with their first."""

    def __init__(self, raw_store: Store, file: RandomFile, retry: RetryPolicy) -> None:
        self.path = file.path
        self.size = file.size
        self.identity = file.identity
        self._raw_store = raw_store
        self._retry = retry
        self._files = [file]
        self._lock = threading.Lock()

    def refresh(self) -> int:
        """See RandomFile."""
        self.size = self._retry.run(self._files[-1].refresh)
        self.identity = self._files[-1].identity
        return self.size

    def read_into(self, position: int, view: Writable) -> int:
        """See RandomFile."""
        failed: RandomFile | None = None

        def read_once() -> int:
            nonlocal failed
            file = self._file_after(failed)
            try:
                return file.read_into(position, view)
            except StorageError:
                failed = file
                raise

        return self._retry.run(read_once)

    def _file_after(self, failed: RandomFile | None) -> RandomFile:
        """The file to read from; another one than that which has failed."""
        with self._lock:
            if self._files[-1] is failed:
                file = self._raw_store.open(self.path)
                if file.identity != self.identity:
                    file.close()
                    raise StorageError("it was replaced while it was read", path=self.path)
                self._files.append(file)  # others may still read from the one before
            return self._files[-1]

    def is_cached(self, start: int, end: int) -> bool:
        """See RandomFile."""
        return self._files[-1].is_cached(start, end)

    def drop_cache(self, start: int, end: int) -> None:
        """See RandomFile."""
        self._files[-1].drop_cache(start, end)

    def close(self) -> None:
        """See RandomFile."""
        for broken in self._files[:-1]:
            with contextlib.suppress(StorageError):
                broken.close()
        self._files[-1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class RetryingStore:
    """A store whose calls are tried again; `raw` is the store itself."""

    def __init__(self, raw: Store, retry: RetryPolicy | None = None) -> None:
        self.raw = raw_store(raw)
        self.retry = retry or RetryPolicy()

    def __repr__(self) -> str:
        return f"RetryingStore({self.raw!r})"

    def list(self, path: str) -> Entries:
        """See Store."""
        return self.retry.run(lambda: self.raw.list(path))

    def stat(self, path: str) -> Entry | None:
        """See Store."""
        return self.retry.run(lambda: self.raw.stat(path))

    def read(self, path: str, limit: int | None = None) -> bytes:
        """See Store."""
        return self.retry.run(lambda: self.raw.read(path, limit))

    def open(self, path: str) -> RetryingFile:
        """See Store."""
        return RetryingFile(self.raw, self.retry.run(lambda: self.raw.open(path)), self.retry)

    def join(self, path: str, *names: str) -> str:
        """See Store."""
        return self.raw.join(path, *names)


def raw_store(store: Store) -> Store:
    """The store itself, whose calls are tried once."""
    return store.raw if isinstance(store, RetryingStore) else store
