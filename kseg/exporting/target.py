"""Where an export goes: a local directory, or a prefix of an object store. Names are relative to it, with slashes."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import crc32c
import pyarrow as pa

from kseg import durable
from kseg.errors import ConflictError, LockedError, OptionError, StorageError
from kseg.log.lock import DirLock
from kseg.log.writer_place import make_log_dir
from kseg.storage import Entry, LocalStore, RandomFile, open_store
from kseg.storage_arrow import ArrowStore, arrow_errors
from kseg.storage_retry import raw_store

SIDE_DIR: Final = "_kseg"  # readers of Parquet directories pass over names that begin with an underscore
CHECKED_BYTES: Final = 64 << 10
_WRITE_BYTES: Final = 1 << 20


class Target(Protocol):
    """What an export needs of the place that it writes to."""

    max_open_files: int

    def list(self, name: str) -> list[Entry]:
        """Entries of a directory; none where it is not there."""

    def read(self, name: str) -> bytes:
        """The bytes of a small file."""

    def check(self, name: str) -> tuple[int, int]:
        """Size of a file, and the checksum of its last bytes: those of a Parquet file tell where all others are."""

    def put(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all."""

    def make_dir(self, name: str) -> None:
        """Make a directory and those above it, where there are such things."""

    def create(self, name: str) -> pa.NativeFile:
        """Open a new file for writing; it is durable once it is closed."""

    def move(self, source: str, name: str) -> None:
        """Give a file another name."""

    def sync(self, name: str) -> None:
        """Make the names in a directory durable."""

    def remove(self, name: str) -> None:
        """Delete a file, or a directory and all below it; one that is not there is no error."""

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Keep other exports out for a block."""


def open_target(path_or_uri: str) -> Target:
    """The target for an absolute path or a URI."""
    found, path = open_store(path_or_uri)
    store = raw_store(found)
    if isinstance(store, LocalStore):
        return LocalTarget(path)
    if not isinstance(store, ArrowStore):
        raise OptionError(f"{path_or_uri}: nothing can be written there")
    return ArrowTarget(store, path)


def target_address(path_or_uri: str | os.PathLike[str]) -> str:
    """A target as every process understands it: a URI, or an absolute path."""
    text = os.fspath(path_or_uri)
    if not text.strip():
        raise OptionError("target is empty; it must be a directory or a URI")
    return text if "://" in text else os.path.abspath(text)  # noqa: PTH100  (links stay as they are written)


def _checksum(file: RandomFile) -> tuple[int, int]:
    with file:
        tail = bytearray(min(CHECKED_BYTES, file.size))
        file.read_into(file.size - len(tail), tail)
        return file.size, int(crc32c.crc32c(bytes(tail)))


class LocalTarget:
    """A directory of this machine, or one that all machines mount."""

    max_open_files = 100
    _in_use: set[str] = set()  # noqa: RUF012  (of this process: its own lock would not keep it out)
    _guard = threading.Lock()

    def __init__(self, path: str) -> None:
        self._root = Path(path)
        self._store = LocalStore()

    def list(self, name: str) -> list[Entry]:
        """See Target."""
        path = str(self._root / name)
        found = self._store.stat(path)
        if found is not None and not found.is_dir:
            raise StorageError("not a directory", path=path)
        return [] if found is None else self._store.list(path)

    def read(self, name: str) -> bytes:
        """See Target."""
        return self._store.read(str(self._root / name))

    def check(self, name: str) -> tuple[int, int]:
        """See Target."""
        return _checksum(self._store.open(str(self._root / name)))

    def put(self, name: str, data: bytes) -> None:
        """See Target."""
        durable.publish(self._root / name, data)

    def make_dir(self, name: str) -> None:
        """See Target."""
        make_log_dir(self._root / name)

    def create(self, name: str) -> pa.NativeFile:
        """See Target."""
        file = pa.PythonFile(_DurableFile(self._root / name), mode="w")
        return pa.BufferedOutputStream(file, _WRITE_BYTES)

    def move(self, source: str, name: str) -> None:
        """See Target."""
        durable.rename(self._root / source, self._root / name)

    def sync(self, name: str) -> None:
        """See Target."""
        durable.fsync_dir(self._root / name)

    def remove(self, name: str) -> None:
        """See Target."""
        path = self._root / name
        if not path.is_dir() or path.is_symlink():
            durable.unlink(path, missing_ok=True)
            return
        for entry in self._store.list(str(path)):
            self.remove(f"{name}/{entry.name}")
        durable.remove_dir(path)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """See Target."""
        self.make_dir(SIDE_DIR)
        place = str((self._root / SIDE_DIR).resolve())
        with self._guard:
            if place in self._in_use:
                raise _busy(self._root)
            self._in_use.add(place)
        try:
            lock = DirLock(place)
            try:
                lock.acquire()
            except LockedError:
                raise _busy(self._root) from None
            with lock:
                yield
        finally:
            self._in_use.discard(place)


def _busy(root: Path) -> LockedError:
    return LockedError("another export writes there", path=str(root), hint="wait until it has ended")


class _DurableFile:
    """A new local file as pyarrow wants one: written in order, on the disk once it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = durable.create(path)
        self._size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write all of the bytes."""
        durable.write_all(self._fd, data, self._path)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """How much was written."""
        return self._size

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Force the bytes to the disk and close."""
        if not self.closed:
            self.closed = True
            with durable.closing(self._fd, self._path):
                durable.fsync_file(self._fd)


class ArrowTarget:
    """A prefix of an object store: what is put is there at once and whole; a move is a copy inside the store."""

    max_open_files = 16  # each holds a part of an upload in memory

    def __init__(self, store: ArrowStore, path: str) -> None:
        self._store = store
        self._root = path.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def list(self, name: str) -> list[Entry]:
        """See Target."""
        return self._store.list(self._path(name)) if self._store.stat(self._path(name)) is not None else []

    def read(self, name: str) -> bytes:
        """See Target."""
        return self._store.read(self._path(name))

    def check(self, name: str) -> tuple[int, int]:
        """See Target."""
        return _checksum(self._store.open(self._path(name)))

    def put(self, name: str, data: bytes) -> None:
        """See Target; what is there already is another export's, and stays."""
        if self._store.stat(self._path(name)) is not None:
            raise ConflictError("another export has written this meanwhile", path=self._path(name))
        with self.create(name) as file, arrow_errors(self._path(name)):
            file.write(data)

    def make_dir(self, name: str) -> None:
        """See Target; where stores have none, pyarrow would put empty objects in their place."""
        if self._store.filesystem.type_name in ("s3", "gcs"):
            return
        with arrow_errors(self._path(name)):
            self._store.filesystem.create_dir(self._path(name), recursive=True)

    def create(self, name: str) -> pa.NativeFile:
        """See Target."""
        with arrow_errors(self._path(name)):
            return self._store.filesystem.open_output_stream(self._path(name))

    def move(self, source: str, name: str) -> None:
        """See Target."""
        with arrow_errors(self._path(source)):
            self._store.filesystem.move(self._path(source), self._path(name))

    def sync(self, name: str) -> None:
        """See Target: nothing to do."""

    def remove(self, name: str) -> None:
        """See Target."""
        found = self._store.stat(self._path(name))
        with arrow_errors(self._path(name)):
            if found is not None and found.is_dir:
                self._store.filesystem.delete_dir(self._path(name))
            elif found is not None:
                self._store.filesystem.delete_file(self._path(name))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """See Target; stores know no locks: `put` finds out late that another export was there."""
        self.make_dir(f"{SIDE_DIR}/runs")
        yield
