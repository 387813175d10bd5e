"""Compare more keys than memory holds: write them to files by their hash, then look at one file at a time.

Every record of the range gives (hash, offset), and goes to one of many files by its hash, so that all records of a key
are in one file. Each file fits into memory; from it come the offsets of the records that a later one replaces.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg import durable
from kseg.compaction.decode import Run
from kseg.compaction.keymap import KeyMap, new_hash_key, slots_for
from kseg.errors import LogError
from kseg.native import keymap as native
from kseg.native import table as t

ENTRY_BYTES: Final = 24
BUFFERED_ENTRIES: Final = 4096
WORK_BYTES: Final = 128  # of memory that resolving one entry takes: itself, its slot at the emptiest, its answer


def files_for(records: int, budget: int, workers: int) -> int:
    """How many files so many records need, if `workers` files at a time have to fit the budget."""
    return max(-(-records * WORK_BYTES * workers // budget), 1)


def shared_offsets(directory: str) -> LogError:
    """What a log is refused with of whose records two may have the same offset."""
    return LogError(
        "records of a batch share an offset or are out of order, and files tell records apart by offset alone",
        path=directory,
        hint="compare keys in memory: --strategy memory, with a larger memory budget if need be",
    )


class SpillFiles:
    """Takes (hash, offset) from any thread into files by hash."""

    def __init__(self, directory: Path, count: int) -> None:
        self.paths = [directory / f"keys-{number:05d}" for number in range(count)]
        self._fds = [durable.create(path) for path in self.paths]
        self._buffers: list[list[NDArray[np.int64]]] = [[] for _ in range(count)]
        self._buffered = [0] * count
        self._locks = [threading.Lock() for _ in range(count)]

    def put(self, entries: NDArray[np.int64]) -> None:
        """Take keys with their offsets, rows of (low hash, high hash, offset)."""
        order, ends = by_file(entries[:, 1], len(self.paths))
        start = 0
        for number, end in enumerate(ends.tolist()):
            if start < end:
                self._put(number, entries[order[start:end]])
            start = end

    def _put(self, number: int, entries: NDArray[np.int64]) -> None:
        with self._locks[number]:
            self._buffers[number].append(entries)
            self._buffered[number] += len(entries)
            if self._buffered[number] >= BUFFERED_ENTRIES:
                self._flush(number)

    def _flush(self, number: int) -> None:
        if self._buffers[number]:
            entries = np.ascontiguousarray(np.concatenate(self._buffers[number]))
            durable.write_all(self._fds[number], entries.view(np.uint8).reshape(-1), self.paths[number])
            self._buffers[number].clear()
            self._buffered[number] = 0

    def close(self) -> None:
        """Write what is still buffered."""
        for number, fd in enumerate(self._fds):
            self._flush(number)
            durable.close(fd, self.paths[number])
        self._fds = []


def by_file(high_hashes: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort entries by the file that their hash says: their order, and where each file's part ends."""
    files = (high_hashes & 0x7FFFFFFFFFFFFFFF) % count
    return np.argsort(files, kind="stable"), np.cumsum(np.bincount(files, minlength=count))


def superseded_offsets(entries: NDArray[np.int64], first_dirty: int) -> tuple[NDArray[np.int64], int]:
    """Offsets of the records that a dirty one with the same key replaces, ascending; and how many keys are dirty.

    Args:
        entries: All records of some keys: rows of (low hash, high hash, offset), `~offset` where it replaces none.
    """
    hashes, told = np.ascontiguousarray(entries[:, :2]), entries[:, 2]
    offsets = np.where(told < 0, ~told, told)
    keys = KeyMap(slots_for(len(entries)), new_hash_key())
    keys.put(entries[told >= max(first_dirty, 0)])
    latest = keys.latest(hashes, np.ones(len(hashes), np.bool_))
    return np.sort(offsets[offsets < latest]), keys.keys


def resolve_file(path: Path, first_dirty: int) -> int:
    """Put a file of superseded offsets in the place of one of keys; return how many keys are dirty."""
    entries = np.fromfile(path, np.int64).reshape(-1, 3)
    dropped, keys = superseded_offsets(entries, first_dirty)
    write_offsets(dropped_path(path), dropped)
    durable.unlink(path)
    return keys


def dropped_path(path: Path) -> Path:
    """Where the superseded offsets of a file of keys are."""
    return path.with_name(path.name.replace("keys-", "dropped-"))


def write_offsets(path: Path, offsets: NDArray[np.int64]) -> None:
    """Write a file of offsets."""
    with durable.closing(durable.create(path, exclusive=False), path) as fd:
        durable.write_all(fd, np.ascontiguousarray(offsets).view(np.uint8), path)


class DroppedOffsets:
    """Answers pass 2 from files of superseded offsets, of which only the part that is asked for is read."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._parts = [np.memmap(path, np.int64, "r") for path in paths if path.stat().st_size]

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
