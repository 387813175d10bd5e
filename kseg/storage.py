"""Files by path or URI, for reading: list, stat, read, and random access into buffers that the caller owns.

Two stores satisfy one Protocol: `LocalStore` reads plain paths with `preadv`; `ArrowStore` (in `storage_arrow`,
imported when first needed) reads whatever `pyarrow.fs` knows by URI, such as s3://, gs:// and abfs://, and through
fsspec what pyarrow does not know; its calls are tried again (`storage_retry`). Changing local files is the business of
`kseg.durable`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from kseg.errors import OptionError, StorageError
from kseg.os_errors import storage_errors
from kseg.page_cache import is_mostly_cached

Writable = memoryview | bytearray | NDArray[np.uint8]

_SECRETS = re.compile(r"key|secret|token|password|signature|credential|\bsig\b", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_JAVA_FILE = re.compile(r"file:/(?!/)")  # Java writes file:/data where others write file:///data


@dataclass(frozen=True, slots=True)
class RemoteCopy:
    """Where a segment's file is in a tier behind the local log, and what is known of the segment without reading it."""

    path: str
    next_offset: int | None = None
    max_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory of a store; `remote` is set where a listing shows a file that a tier holds."""

    name: str
    size: int
    mtime_ms: int
    is_dir: bool
    remote: RemoteCopy | None = None


Entries = list[Entry]


class RandomFile(Protocol):
    """An open file that is read at positions; calls from several threads are safe."""

    path: str
    size: int
    """Bytes when the file was opened or last refreshed."""
    identity: str
    """Changes when another file takes this name: device and inode, ETag, or time and size."""

    def refresh(self) -> int:
        """Look again how long the file is (a broker may be appending) and return its size."""

    def read_into(self, position: int, view: Writable) -> int:
        """Fill a writable buffer from `position`; return the bytes got, fewer only at the end of the file."""

    def is_cached(self, start: int, end: int) -> bool:
        """Whether `[start, end)` seems to be in the page cache already; True where there is none to spare."""

    def drop_cache(self, start: int, end: int) -> None:
        """Tell the kernel that the pages of `[start, end)` are not needed again; a no-op where that means nothing."""

    def close(self) -> None:
        """Close the file; a second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class Store(Protocol):
    """Where files live; paths are the store's own, as `open_store` and `join` give them."""

    def list(self, path: str) -> Entries:
        """Entries of a directory, sorted by name; a directory that is not there is a StorageError."""

    def stat(self, path: str) -> Entry | None:
        """What is at `path`, or None."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        """The file's bytes, at most `limit`."""

    def open(self, path: str) -> RandomFile:
        """Open for random access."""

    def join(self, path: str, *names: str) -> str:
        """Append names to a path."""


class RateLimiter:
    """Holds a reader to so many bytes a second on average; shared by threads."""

    def __init__(
        self,
        bytes_per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if bytes_per_second is not None and not (
            isinstance(bytes_per_second, float | int | np.number) and bytes_per_second >= 1
        ):
            raise OptionError(f"bytes per second must be a number, 1 or more, not {bytes_per_second!r}")
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = float("-inf")
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Wait until what was taken before is paid for, then book `count` bytes."""
        if self._rate is None or count <= 0:
            return
        with self._lock:
            now = self._clock()
            start = max(self._free_at, now)
            self._free_at = start + count / self._rate
        if start > now:
            self._sleep(start - now)


def byte_view(view: Writable) -> memoryview:
    """The bytes of a writable buffer, whatever its item type."""
    raw = view.data if isinstance(view, np.ndarray) else memoryview(view)
    return raw.cast("B") if raw.nbytes else memoryview(bytearray())


class LocalFile:
    """A local file, read with `preadv`."""

    def __init__(self, path: str) -> None:
        self.path = path
        with storage_errors(path):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # who opens a pipe waits for a writer
        try:
            with storage_errors(path):
                status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
                raise StorageError(f"is {what}", path=path)
        except StorageError:
            self.close()
            raise
        self.size = status.st_size
        self.identity = f"{status.st_dev}:{status.st_ino}"

    def fileno(self) -> int:
        """The descriptor, which this object closes."""
        return self._fd

    def refresh(self) -> int:
        """See RandomFile."""
        with storage_errors(self.path):
            self.size = os.fstat(self._fd).st_size
        return self.size

    def read_into(self, position: int, view: Writable) -> int:
        """See RandomFile."""
        target = byte_view(view)
        done = 0
        with storage_errors(self.path):
            while done < target.nbytes:
                got = os.preadv(self._fd, [target[done:]], position + done)
                if not got:
                    break
                done += got
        return done

    def read_nothing_ahead(self) -> None:
        """Have the kernel read what is asked for alone.

        What it reads ahead for a reader that drops its pages is there when the reader asks whether the next bytes are
        cached, looks like somebody else's, and stays.
        """
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def is_cached(self, start: int, end: int) -> bool:
        """See RandomFile; where the kernel does not count pages, the first and the last one stand for all."""
        counted = is_mostly_cached(self._fd, start, end)
        if counted is not None:
            return counted
        probe = bytearray(1)
        try:
            return all(os.preadv(self._fd, [probe], at, os.RWF_NOWAIT) for at in (start, max(end - 1, start)))
        except (OSError, AttributeError):  # not cached; or a file system or platform that cannot tell
            return False

    def drop_cache(self, start: int, end: int) -> None:
        """See RandomFile; a file system that does not know the advice is no error."""
        if end > start and hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """See RandomFile."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _local_entry(name: str, status: os.stat_result) -> Entry:
    is_dir = stat.S_ISDIR(status.st_mode)
    return Entry(name, 0 if is_dir else status.st_size, status.st_mtime_ns // 1_000_000, is_dir)


def _is_listed(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)  # a pipe would block its reader


class LocalStore:
    """Plain paths of this machine."""

    def list(self, path: str) -> Entries:
        """See Store; what vanishes while we look (a live broker deletes) and links to nowhere are left out."""
        found = []
        with storage_errors(path), os.scandir(path) as entries:
            for entry in entries:
                try:
                    status = entry.stat()
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.ELOOP):
                        continue
                    raise
                if _is_listed(status):
                    found.append(_local_entry(entry.name, status))
        return sorted(found, key=lambda entry: entry.name)

    def stat(self, path: str) -> Entry | None:
        """See Store; as in listings, there are files and directories only."""
        with storage_errors(path):
            try:
                status = os.stat(path)  # noqa: PTH116
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _local_entry(os.path.basename(path), status) if _is_listed(status) else None  # noqa: PTH119

    def read(self, path: str, limit: int | None = None) -> bytes:
        """See Store."""
        with storage_errors(path), Path(path).open("rb") as file:
            return file.read(-1 if limit is None else limit)

    def open(self, path: str) -> LocalFile:
        """See Store."""
        return LocalFile(path)

    def join(self, path: str, *names: str) -> str:
        """See Store."""
        return os.path.join(path, *filter(None, names))  # noqa: PTH118  (of the calls to open a log, half were Path's)


def check_remote(uri: str) -> str:
    """Refuse a URI with a user name or password in it: reports, journals, errors and Spark's pages would show it."""
    parts = urllib.parse.urlsplit(uri) if "://" in uri else urllib.parse.SplitResult("", "", uri, "", "")
    user, at, _ = parts.netloc.rpartition("@")
    is_secret = any(_SECRETS.search(name) for name in urllib.parse.parse_qs(parts.query, keep_blank_values=True))
    if is_secret or (at and (":" in user or parts.scheme.startswith("s3"))):  # abfs://container@account is none
        raise OptionError(
            f"the {parts.scheme}:// URI holds credentials, which plans and logs would show",
            hint="give them by the environment or a profile of the store",
        )
    return uri


def checked_path(path_or_uri: str | os.PathLike[str]) -> str:
    """A path or URI as text.

    Raises:
        OptionError: It is empty, holds a NUL, or is no text.
    """
    text = os.fspath(path_or_uri) if isinstance(path_or_uri, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise OptionError(f"a path or URI is wanted, got {path_or_uri!r}")
    return text


def open_store(path_or_uri: str | os.PathLike[str]) -> tuple[Store, str]:
    """Choose the store for a path or URI; return it with the path to give it."""
    text = checked_path(path_or_uri)
    text = _JAVA_FILE.sub("file:///", text) if _JAVA_FILE.match(text) else text
    scheme = _SCHEME.match(text)
    if scheme is None:
        return LocalStore(), os.path.abspath(text)  # noqa: PTH100  (Path.resolve would follow links and lose the name)
    if scheme.group(1).lower() == "file":
        parts = urllib.parse.urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise OptionError(f"{text}: a file URI names no host; write file:///path")
        return LocalStore(), urllib.parse.unquote(parts.path)
    check_remote(text)
    from kseg.storage_arrow import open_arrow_store
    from kseg.storage_retry import RetryingStore

    store, path = open_arrow_store(text, scheme.group(1))
    return RetryingStore(store), path
