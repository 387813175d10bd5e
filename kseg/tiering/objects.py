"""A tier's objects: put, list, read and delete them by key, below a root that is a bucket's prefix or a directory.

Keys are relative to the root, with slashes. What is put counts only once its size was seen in the store: object stores
publish what a writer that died had sent so far.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import crc32c
import numpy as np

from kseg import durable
from kseg.errors import KsegError, StorageError
from kseg.log.writer_place import make_log_dir
from kseg.storage import Entry, LocalStore, RandomFile, RateLimiter, Store, check_remote, open_store
from kseg.storage_arrow import ArrowStore
from kseg.storage_retry import RetryingStore, RetryPolicy

__all__ = ["Digest", "RetryPolicy", "StoredObject", "TierObjects", "check_remote", "file_pieces", "open_tier"]

PIECE_BYTES: Final = 4 << 20

Pieces = Callable[[], Iterable[bytes | bytearray | memoryview]]
"""Gives the bytes of an object from the start, anew for each attempt."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as the store lists it; `mtime_ms` is by the store's clock."""

    key: str
    size: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class Digest:
    """Size and CRC-32C of bytes."""

    size: int = 0
    crc: int = 0

    def add(self, piece: bytes | bytearray | memoryview) -> Digest:
        """The digest with more bytes behind."""
        return Digest(self.size + len(piece), int(crc32c.crc32c(piece, self.crc)))


class Tally:
    """Pieces whose digest is known once all were taken."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self.digest = Digest()

    def __call__(self) -> Iterator[bytes | bytearray | memoryview]:
        """See Pieces; the digest begins anew."""
        self.digest = Digest()
        for piece in self._pieces():
            self.digest = self.digest.add(piece)
            yield piece


class TierObjects:
    """The objects below one root; picklable by its address (`open_tier`)."""

    def __init__(
        self,
        store: Store,
        root: str,
        *,
        retry: RetryPolicy | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.store = RetryingStore(store, retry)
        self.retry = self.store.retry
        self._raw = self.store.raw
        self.root = root.rstrip("/")
        self._limiter = limiter or RateLimiter(None)

    def below(self, path: str) -> TierObjects:
        """The objects of one folder, by the store's own path of it."""
        return TierObjects(self.store, path, retry=self.retry, limiter=self._limiter)

    @property
    def takes_at_once(self) -> bool:
        """Whether a piece that was put is done with when the next is asked for; other stores send it later."""
        return not isinstance(self._raw, ArrowStore)

    def path(self, key: str) -> str:
        """A key as the store's own path."""
        return self.store.join(self.root, *key.split("/"))

    def put(self, key: str, pieces: Pieces) -> int:
        """Write an object, in parts, with bounded memory; durable where it is local. Return its size, as stored."""
        return self.retry.run(lambda: self._put_once(key, pieces))

    def put_bytes(self, key: str, data: bytes) -> int:
        """Write a small object."""
        return self.put(key, lambda: (data,))

    def put_together(self, small: Mapping[str, bytes]) -> int:
        """Write small objects of one folder, of which the last makes the others count: it appears after them.

        On a local disk they cost little more than one: they are made durable together.

        Returns:
            Bytes, as stored.
        """
        if isinstance(self._raw, ArrowStore):
            return sum(self.put_bytes(key, data) for key, data in small.items())
        return self.retry.run(lambda: self._put_together_once(small))

    def _put_together_once(self, small: Mapping[str, bytes]) -> int:
        self._limiter.take(sum(len(data) for data in small.values()))
        self._put_local({Path(self.path(key)): (data,) for key, data in small.items()})
        return sum(self._check_size(key, len(data)) for key, data in small.items())

    def _put_once(self, key: str, pieces: Pieces) -> int:
        path = self.path(key)
        size = 0

        def counted() -> Iterator[bytes | bytearray | memoryview]:
            nonlocal size
            for piece in pieces():
                self._limiter.take(len(piece))
                size += len(piece)
                yield piece

        if isinstance(self._raw, ArrowStore):
            self._raw.write(path, counted())
        else:
            self._put_local({Path(path): counted()})
        return self._check_size(key, size)

    def _check_size(self, key: str, size: int) -> int:
        path = self.path(key)
        found = self._raw.stat(path)
        if found is None or found.size != size:
            stored = "no object" if found is None else f"{found.size} bytes"
            error = StorageError(f"{size} bytes were written, and the store has {stored}", path=path)
            error.retryable = True
            raise error
        return size

    def _put_local(self, files: Mapping[Path, Iterable[bytes | bytearray | memoryview]]) -> None:
        """Write files of one folder; the last gets its name once the others have theirs for good."""
        temporaries = {path: path.with_name(path.name + durable.TEMPORARY_SUFFIX) for path in files}
        last = next(reversed(temporaries))
        make_log_dir(last.parent)
        try:
            with ExitStack() as stack:
                fds = []
                for path, temporary in temporaries.items():
                    fd = stack.enter_context(durable.closing(durable.create(temporary, exclusive=False), temporary))
                    durable.write_pieces(fd, files[path], temporary)
                    fds.append(fd)
                for fd in fds:
                    durable.fsync_file(fd)
            for path, temporary in temporaries.items():
                if path == last and len(files) > 1:
                    durable.fsync_dir(last.parent)
                durable.rename(temporary, path)
        except KsegError:  # of the file, or of whoever gives the pieces
            for temporary in temporaries.values():
                durable.unlink(temporary, missing_ok=True)
            raise
        durable.fsync_dir(last.parent)

    def list(self, prefix: str = "") -> list[StoredObject]:
        """All objects below a prefix that is a folder, sorted by key; none where there is no such folder."""
        return self.retry.run(lambda: sorted(self._list_once(prefix), key=lambda found: found.key))

    def _list_once(self, prefix: str) -> Iterator[StoredObject]:
        base = self.path(prefix) if prefix else self.root
        if isinstance(self._raw, ArrowStore):
            found: Iterable[tuple[str, Entry]] = self._raw.list_below(base)
        else:
            found = self._list_folder(base) if self._raw.stat(base) is not None else ()
        for path, entry in found:
            yield StoredObject(path.removeprefix(self.root).lstrip("/"), entry.size, entry.mtime_ms)

    def _list_folder(self, path: str) -> Iterator[tuple[str, Entry]]:
        for entry in self._raw.list(path):
            child = self._raw.join(path, entry.name)
            if entry.is_dir:
                yield from self._list_folder(child)
            else:
                yield child, entry

    def stat(self, key: str) -> StoredObject | None:
        """What is stored under a key, or None."""
        found = self.store.stat(self.path(key))
        return None if found is None or found.is_dir else StoredObject(key, found.size, found.mtime_ms)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of an object, all or a range of it.

        Raises:
            StorageError: The object ends before the range does.
        """
        path = self.path(key)
        with self.store.open(path) as file:
            length = max(file.size - start, 0) if length is None else length
            if start + length > file.size:
                raise StorageError(f"{file.size} bytes, {start + length} were expected", path=path)
            return bytes(_read_piece(file, start, length))

    def digest(self, key: str) -> Digest:
        """Read an object from end to end."""
        digest = Digest()
        with self.store.open(self.path(key)) as file:
            room = new_room(min(PIECE_BYTES, file.size))
            while digest.size < file.size:
                digest = digest.add(_read_piece(file, digest.size, min(PIECE_BYTES, file.size - digest.size), room))
        return digest

    def delete(self, key: str) -> None:
        """Delete an object; one that is not there is no error."""
        self.retry.run(lambda: self._delete_once(key))

    def _delete_once(self, key: str) -> None:
        path = self.path(key)
        if isinstance(self._raw, ArrowStore):
            self._raw.delete(path)
        elif self._raw.stat(path) is not None:
            durable.unlink(path, missing_ok=True)
            durable.fsync_dir(Path(path).parent)

    def now_ms(self) -> int:
        """The time by the store's clock: that of an object which is written and deleted for the purpose."""
        key = f".kseg-clock-{uuid.uuid4().hex}"
        self.put_bytes(key, b"0")
        try:
            found = self.stat(key)
        finally:
            self.delete(key)
        if found is None or found.mtime_ms < 0:
            raise StorageError("the store does not tell when objects were written", path=self.root)
        return found.mtime_ms


def _read_piece(file: RandomFile, start: int, length: int, room: memoryview | None = None) -> memoryview:
    """Bytes of a file, in `room` or in memory of their own, which is not cleared first as a bytearray's is."""
    piece = np.empty(length, np.uint8).data if room is None else room[:length]
    done = file.read_into(start, piece)
    if done < length:
        raise StorageError(f"the object ends at byte {start + done}", path=file.path)
    return piece


def new_room(size: int = PIECE_BYTES) -> memoryview:
    """Memory for pieces."""
    return np.empty(size, np.uint8).data


def open_tier(uri: str, *, max_bytes_per_second: float | None = None, retry: RetryPolicy | None = None) -> TierObjects:
    """Open the tier at a URI or a local path."""
    store, root = open_store(uri)
    return TierObjects(store, root, retry=retry, limiter=RateLimiter(max_bytes_per_second))


def file_pieces(path: str, *, expected_size: int, room: memoryview | None = None) -> Iterator[memoryview]:
    """The bytes of a local file, a piece at a time.

    Args:
        room: Where all pieces are put, for who is done with one before asking for the next.

    Raises:
        StorageError: It is not as long as expected.
    """
    with LocalStore().open(path) as file:
        if file.size != expected_size:
            raise StorageError(f"{file.size} bytes, {expected_size} were expected", path=path)
        position = 0
        while position < file.size:
            piece = _read_piece(file, position, min(len(room or b"") or PIECE_BYTES, file.size - position), room)
            file.drop_cache(position, position + len(piece))
            yield piece
            position += len(piece)
