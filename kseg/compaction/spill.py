"""Compare more keys than memory holds: write them to files by their hash, then look at one file at a time.

Every record of the range gives (hash, offset), and goes to one of many files by its hash, so that all records of a key
are in one file. From a file come the offsets of the records that a later one replaces. A process may open so many files
only: where they are too few for each to fit into memory, those that do not are divided once more (`Resolver`).
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kseg import durable
from kseg.compaction.decode import Run
from kseg.compaction.keymap import MIN_SLOTS, KeyMap, KeyMapFull, new_hash_key, slots_for
from kseg.errors import LogError, StorageError
from kseg.native import keymap as native
from kseg.native import table as t
from kseg.os_errors import storage_errors

ENTRY_BYTES: Final = 24
BUFFERED_ENTRIES: Final = 4096
MIN_BUFFERED_ENTRIES: Final = 256
WORK_BYTES: Final = 128  # of memory that resolving one entry takes: itself, its slot at the emptiest, its answer
MIN_ROOM: Final = MIN_SLOTS * native.SLOT_BYTES  # there is no smaller map
MAX_FILES: Final = 1024
SHARE_OF_LIMIT: Final = 4  # of what a process may open, others need the most: sockets, segments, a caller's own files


def files_for(records: int, budget: int, workers: int) -> int:
    """How many files so many records need, if `workers` files at a time have to fit the budget."""
    return max(-(-records * WORK_BYTES * workers // budget), 1)


def open_at_once(wanted: int, budget: int, workers: int = 1) -> int:
    """How many files are written at a time, of those that are wanted: descriptors are limited, and each has a buffer.

    Args:
        budget: Bytes for the buffers.
        workers: How many threads write so many files each.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = MAX_FILES if limit == resource.RLIM_INFINITY else min(limit // SHARE_OF_LIMIT, MAX_FILES)
    return max(min(wanted, most // workers, budget // (MIN_BUFFERED_ENTRIES * ENTRY_BYTES)), 2)


def shared_offsets(directory: str) -> LogError:
    """What a log is refused with of whose records two may have the same offset."""
    return LogError(
        "records of a batch share an offset or are out of order, and files tell records apart by offset alone",
        path=directory,
        hint="compare keys in memory: --strategy memory, with a larger memory budget if need be",
    )


class SpillFiles:
    """Takes (hash, offset) from any thread into files by hash; a context that closes them.

    Args:
        stem: Of the files' names.
        divisor: What a part of the hash is already divided by: that of the files of which one is divided here.
        budget: Bytes of memory for what is not written yet.
    """

    def __init__(self, directory: Path, count: int, budget: int, *, stem: str = "keys", divisor: int = 1) -> None:
        self.paths = [directory / f"{stem}-{number:05d}" for number in range(count)]
        self._divisor = divisor
        self._room = min(max(budget // (count * ENTRY_BYTES), MIN_BUFFERED_ENTRIES), BUFFERED_ENTRIES)
        self._buffers: list[list[NDArray[np.int64]]] = [[] for _ in range(count)]
        self._buffered = [0] * count
        self._locks = [threading.Lock() for _ in range(count)]
        self._fds: list[int] = []
        try:
            for path in self.paths:
                self._fds.append(durable.create(path))
        except BaseException:
            with suppress(StorageError):  # what failed before is what counts
                self._close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.close()
            return
        with suppress(StorageError):  # the error that is on its way tells more
            self._close()

    def put(self, entries: NDArray[np.int64]) -> None:
        """Take keys with their offsets, rows of (low hash, high hash, offset)."""
        order, ends = by_file(entries[:, 1], len(self.paths), self._divisor)
        start = 0
        for number, end in enumerate(ends.tolist()):
            if start < end:
                self._put(number, entries[order[start:end]])
            start = end

    def _put(self, number: int, entries: NDArray[np.int64]) -> None:
        with self._locks[number]:
            self._buffers[number].append(entries)
            self._buffered[number] += len(entries)
            if self._buffered[number] >= self._room:
                self._flush(number)

    def _flush(self, number: int) -> None:
        if self._buffers[number]:
            entries = np.ascontiguousarray(np.concatenate(self._buffers[number]))
            durable.write_all(self._fds[number], entries.view(np.uint8).reshape(-1), self.paths[number])
            self._buffers[number].clear()
            self._buffered[number] = 0

    def close(self) -> None:
        """Write what is still buffered; every file is closed, even if one cannot be written."""
        try:
            for number in range(len(self._fds)):
                self._flush(number)
        except BaseException:
            with suppress(StorageError):
                self._close()
            raise
        self._close()

    def _close(self) -> None:
        fds, self._fds = self._fds, []
        with ExitStack() as stack:
            for fd, path in zip(fds, self.paths, strict=False):
                stack.callback(durable.close, fd, path)


def by_file(
    high_hashes: NDArray[np.int64], count: int, divisor: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort entries by the file that their hash says: their order, and where each file's part ends."""
    files = (high_hashes & 0x7FFFFFFFFFFFFFFF) // divisor % count
    return np.argsort(files, kind="stable"), np.cumsum(np.bincount(files, minlength=count))


def superseded_offsets(entries: NDArray[np.int64], first_dirty: int) -> tuple[NDArray[np.int64], int]:
    """Offsets of the records that a dirty one with the same key replaces, ascending; and how many keys are dirty.

    Args:
        entries: All records of some keys: rows of (low hash, high hash, offset), `~offset` where it replaces none.
    """
    keys = KeyMap(slots_for(len(entries)), new_hash_key())
    keys.put(_dirty(entries, first_dirty))
    return _superseded(entries, keys), keys.keys


def _dirty(entries: NDArray[np.int64], first_dirty: int) -> NDArray[np.int64]:
    return entries[entries[:, 2] >= max(first_dirty, 0)]


def _superseded(entries: NDArray[np.int64], keys: KeyMap) -> NDArray[np.int64]:
    hashes, told = np.ascontiguousarray(entries[:, :2]), entries[:, 2]
    offsets = np.where(told < 0, ~told, told)
    latest = keys.latest(hashes, np.ones(len(hashes), np.bool_))
    return np.sort(offsets[offsets < latest])


class Resolver:
    """Finds the superseded offsets of files of keys; any number of threads, each with a file of its own.

    A file that is too large for its share of memory is read part by part, which is enough where its keys are few, and
    divided into smaller ones where they are not.

    Args:
        room: Bytes of memory for each thread.
        workers: How many threads there are.
        put: Takes superseded offsets, some at a time, which ascend.
    """

    def __init__(self, first_dirty: int, room: int, workers: int, put: Callable[[NDArray[np.int64]], None]) -> None:
        self._first_dirty = first_dirty
        self._room = max(room, MIN_ROOM)
        self._workers = workers
        self._put = put

    def resolve(self, path: Path, divisor: int) -> int:
        """Take the superseded offsets out of a file, which is gone then; return how many keys are dirty.

        Args:
            divisor: What a part of the hash was divided by to come to this file.
        """
        with storage_errors(path):
            entries = path.stat().st_size // ENTRY_BYTES
        if entries * WORK_BYTES <= self._room:
            dropped, found = superseded_offsets(_read(path), self._first_dirty)
            self._put(dropped)
        else:
            keys = self._resolve_parts(path)
            if keys is None:
                return self._divide(path, divisor, entries)
            found = keys
        durable.unlink(path)
        return found

    def _resolve_parts(self, path: Path) -> int | None:
        """How many keys are dirty; None where they are too many."""
        keys = KeyMap(MIN_SLOTS, new_hash_key(), self._room // 2)
        try:
            for entries in self._parts(path):
                keys.put(_dirty(entries, self._first_dirty))
        except KeyMapFull:
            return None
        for entries in self._parts(path):
            self._put(_superseded(entries, keys))
        return keys.keys

    def _divide(self, path: Path, divisor: int, entries: int) -> int:
        count = open_at_once(-(-entries * WORK_BYTES // self._room), self._room // 2, self._workers)
        with SpillFiles(path.parent, count, self._room // 2, stem=path.name, divisor=divisor) as files:
            for part in self._parts(path):
                files.put(part)
        durable.unlink(path)
        return sum(self.resolve(smaller, divisor * count) for smaller in files.paths)

    def _parts(self, path: Path) -> Iterator[NDArray[np.int64]]:
        most, start = self._room // 2 // WORK_BYTES, 0
        while len(entries := _read(path, start, most)):
            yield entries
            start += len(entries)


def _read(path: Path, start: int = 0, most: int | None = None) -> NDArray[np.int64]:
    count = -1 if most is None else most * 3
    with storage_errors(path):
        return np.fromfile(path, np.int64, count, offset=start * ENTRY_BYTES).reshape(-1, 3)


@dataclass(frozen=True, slots=True)
class DroppedFile:
    """A file of superseded offsets: parts, each of which ascends; `ends` tells where they end.

    One file, because whoever has its parts mapped holds a descriptor for each file.
    """

    path: Path
    ends: tuple[int, ...]


class DroppedWriter:
    """Takes superseded offsets from any thread into one file; a context that closes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ends: list[int] = []
        self._lock = threading.Lock()
        self._fd = durable.create(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        durable.close(self._fd, self._path)

    def put(self, offsets: NDArray[np.int64]) -> None:
        """Take offsets that ascend."""
        if len(offsets):
            with self._lock:
                durable.write_all(self._fd, np.ascontiguousarray(offsets).view(np.uint8), self._path)
                self._ends.append((self._ends[-1] if self._ends else 0) + len(offsets))

    @property
    def file(self) -> DroppedFile:
        """What was written so far."""
        return DroppedFile(self._path, tuple(self._ends))


class DroppedOffsets:
    """Answers pass 2 from a file of superseded offsets, of which only the part that is asked for is read."""

    def __init__(self, file: DroppedFile) -> None:
        self._parts: list[NDArray[np.int64]] = []
        if file.ends:
            with storage_errors(file.path):
                every = np.asarray(np.memmap(file.path, np.int64, "r"))
            self._parts = np.split(every, file.ends[:-1])

    def close(self) -> None:
        """Let go of the file: as long as it is mapped, the disk does not get its space back."""
        self._parts = []

    def latest_of(self, run: Run) -> NDArray[np.int64]:
        """For each record that is superseded an offset behind its own, else -1."""
        span = slice(run.rows.start, run.rows.stop)
        bases, lasts = run.chunk.table[t.BASE_OFFSET, span], run.chunk.table[t.LAST_OFFSET, span]
        bounds = [int(np.where(bases < 0, lasts, bases).min()), int(lasts.max()) + 1]
        found = [part[slice(*np.searchsorted(part, bounds).tolist())] for part in self._parts]
        dropped = np.sort(np.concatenate([np.empty(0, np.int64), *found]))
        latest = np.empty(run.count, np.int64)
        native.fill_latest_dropped(dropped, run.columns, run.count, latest)
        return latest
