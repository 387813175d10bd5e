"""The lock of a log directory, taken as a broker takes it: a POSIX write lock on the whole of `.lock`.

POSIX locks belong to a process, not to a descriptor: a second lock in the same process succeeds, and closing ANY
descriptor of the file drops the lock. So a process holds one descriptor per directory, counted, and nothing else of
kseg opens `.lock`. The file is left behind when the lock is released, as a broker leaves it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Self

from kseg import durable
from kseg.errors import KsegError, LockedError
from kseg.log.names import LOCK_FILE
from kseg.os_errors import storage_errors

_FLOCK = struct.Struct("@hhqqi0q")  # struct flock of Linux: type, whence, start, length, process


class _Held:
    """A lock of this process; `count` DirLocks share it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.count = 1


_held: dict[tuple[int, int], _Held] = {}
_guard = threading.Lock()


def _forget_in_child() -> None:
    """A forked child holds none of its parent's locks; closing its copies of the descriptors is harmless there."""
    global _guard
    _guard = threading.Lock()
    for held in _held.values():
        os.close(held.fd)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def is_free() -> bool:
    """Whether no thread, this one included, is just taking or giving back a lock: a finalizer may run in the midst."""
    if _guard.acquire(blocking=False):
        _guard.release()
        return True
    return False


class DirLock:
    """Holds a log directory's lock from `acquire` to `release`; a context manager too.

    Within a process the lock is shared: the directory is released with the last of its DirLocks.
    """

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        self.path = Path(log_dir, LOCK_FILE)
        self._key: tuple[int, int] | None = None

    @property
    def is_held(self) -> bool:
        """True between `acquire` and `release`."""
        return self._key is not None and self._key in _held

    def acquire(self) -> Self:
        """Take the lock, or fail at once.

        Raises:
            LockedError: A broker or another process holds it.
            StorageError: `.lock` cannot be made or opened.
        """
        with _guard:
            if self.is_held:
                return self
            key = self._file_key()
            held = _held.get(key) if key is not None else None
            if held is not None:
                held.count += 1
                self._key = key
                return self
            self._key = self._take()
        return self

    def _file_key(self) -> tuple[int, int] | None:
        with storage_errors(self.path):
            try:
                status = self.path.stat()
            except FileNotFoundError:
                return None
        return status.st_dev, status.st_ino

    def _take(self) -> tuple[int, int]:
        fd = durable.open_append(self.path)
        try:
            with storage_errors(self.path):
                status = os.fstat(fd)
                try:
                    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    if error.errno not in (errno.EACCES, errno.EAGAIN):
                        raise
                    raise LockedError(
                        f"the log directory is in use{_describe_holder(fd)}",
                        path=str(self.path),
                        hint="stop the broker or the other job first",
                    ) from None
        except KsegError:
            os.close(fd)
            raise
        key = (status.st_dev, status.st_ino)
        _held[key] = _Held(fd)
        return key

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        with _guard:
            if self._key is None:
                return
            held = _held.get(self._key)
            if held is not None:
                held.count -= 1
                if not held.count:
                    del _held[self._key]
                    os.close(held.fd)
            self._key = None

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


def _describe_holder(fd: int) -> str:
    """Which process holds the lock, where the system tells."""
    if sys.platform != "linux":
        return ""
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    except OSError:
        return ""
    if kind == fcntl.F_UNLCK or pid <= 0:  # gone meanwhile, or held on another machine
        return ""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return f": process {pid} holds its lock"
    return f": process {pid} ({name}) holds its lock"
