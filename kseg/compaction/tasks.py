"""The passes of a round as tasks that other processes can run: what they get and give back can be pickled.

A task that writes first proves that it sees the driver's folder. What it wrote has a name that no other attempt has,
and comes back with its size and checksum, which the driver compares with what it reads.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kseg import durable
from kseg.compaction.keymap import KeyMap, KeyMapFull
from kseg.compaction.markers import TransactionRows
from kseg.compaction.pieces import Piece, portable
from kseg.compaction.rewrite import LatestOffsets, Rewriter, Rewritten, Rules
from kseg.compaction.scan import KeyScanner
from kseg.compaction.spill import DroppedOffsets
from kseg.errors import JobError, StorageError
from kseg.log.staging import check_nonce
from kseg.log.visibility import AbortedRanges
from kseg.native import table as t
from kseg.native.crc32c import crc32c

TASK_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """The folder that driver and tasks share, and its proof."""

    folder: Path
    nonce: bytes

    def check(self) -> None:
        """Prove that this process sees the folder."""
        check_nonce(self.folder, self.nonce)

    def new_file(self, kind: str) -> Path:
        """A name that nobody else has."""
        return self.folder / f"{kind}-{uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True)
class File:
    """A file that a task wrote, as it was when it was written."""

    path: Path
    size: int
    checksum: int

    def load(self) -> t.Bytes:
        """Read it.

        Raises:
            JobError: It is not what the task wrote.
        """
        try:
            data = np.fromfile(self.path, np.uint8)
        except OSError as error:
            raise StorageError(f"a task's file cannot be read: {error}", path=str(self.path)) from None
        if len(data) != self.size or (int(crc32c(data, 0, len(data))) if len(data) else 0) != self.checksum:
            raise JobError("a task's file is not what the task wrote", path=str(self.path))
        return data


def write_file(path: Path, parts: Sequence[NDArray[Any]]) -> File:
    """Write arrays one after the other, durably."""
    data = np.concatenate([np.empty(0, np.uint8), *(np.ascontiguousarray(p).reshape(-1).view(np.uint8) for p in parts)])
    with durable.closing(durable.create(path), path) as fd:
        durable.write_all(fd, data, path)
        durable.fsync_file(fd)
    return File(path, len(data), int(crc32c(data, 0, len(data))) if len(data) else 0)


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Pass 1 over some pieces: their keys into a map of their own; without a map, only their transactions.

    Attributes:
        slots: Of the map; where there are more keys it grows, within `budget` bytes.
    """

    place: Place
    pieces: tuple[Piece, ...]
    aborted: AbortedRanges
    first_offset: int
    hash_key: NDArray[np.uint64]
    slots: int
    budget: int = 0


@dataclass(frozen=True, slots=True)
class Scanned:
    """The keys of a task, None where there were too many for its map, and its transactional batches."""

    keys: File | None
    transactions: tuple[TransactionRows, ...]


def scan(task: ScanTask) -> Scanned:
    """Run pass 1 over a task's pieces."""
    task.place.check()
    keys = KeyMap(task.slots, task.hash_key, task.budget)
    scanner = KeyScanner(task.aborted, task.first_offset, keys, task.hash_key)
    try:
        rows = tuple(scanner(piece) for piece in task.pieces)
    except KeyMapFull:
        return Scanned(None, ())
    held = keys.slots[keys.slots[:, 2] > 0]
    return Scanned(write_file(task.place.new_file("keys"), [held]), rows)


@dataclass(frozen=True, slots=True)
class Answers:
    """Where pass 2 looks keys up: a map in a file, or files of superseded offsets."""

    map_file: Path | None
    hash_key: NDArray[np.uint64]
    dropped: tuple[Path, ...] = ()

    def open(self) -> LatestOffsets:
        """Map the files into memory."""
        if self.map_file is None:
            return DroppedOffsets(self.dropped).latest_of
        return KeyMap.from_file(self.map_file, self.hash_key).latest_of


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Pass 2 over some pieces."""

    place: Place
    pieces: tuple[Piece, ...]
    rules: Rules
    answers: Answers


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """What is left of a task's pieces, in a file; `tables` are those of its batches, one after the other."""

    data: File
    tables: File
    counts: NDArray[np.int64]
    bytes_read: int

    def load(self) -> Rewritten:
        """Read it, and take the files away."""
        tables = self.tables.load().view(np.int64).reshape(t.COLUMNS, -1)
        result = Rewritten([self.data.load()], [tables], self.counts, self.bytes_read)
        if not tables.shape[1]:
            result.data, result.tables = [], []
        for file in (self.data, self.tables):
            durable.unlink(file.path, missing_ok=True)
        return result


def rewrite(task: RewriteTask) -> RewrittenFile:
    """Run pass 2 over a task's pieces."""
    task.place.check()
    rewriter = Rewriter(task.rules, task.answers.open())
    return store_rewritten(task.place, [rewriter.rewrite(piece) for piece in task.pieces])


def store_rewritten(place: Place, parts: Sequence[Rewritten]) -> RewrittenFile:
    """Write what is left of pieces, one after the other, into files."""
    tables, position = [t.new_table(0)], 0
    for part in parts:
        for data, table in zip(part.data, part.tables, strict=True):
            table[t.POSITION] += position
            tables.append(table)
            position += len(data)
    return RewrittenFile(
        write_file(place.new_file("data"), [data for part in parts for data in part.data]),
        write_file(place.new_file("table"), [np.concatenate(tables, axis=1)]),
        np.sum([part.counts for part in parts], axis=0),
        sum(part.bytes_read for part in parts),
    )


def bundled(pieces: Sequence[Piece]) -> list[tuple[Piece, ...]]:
    """Neighbouring pieces that make a task of about TASK_BYTES."""
    bundles: list[list[Piece]] = []
    size = TASK_BYTES
    for piece in pieces:
        if size + piece.size > TASK_BYTES:
            bundles.append([])
            size = 0
        bundles[-1].append(dataclasses.replace(piece, segment=portable(piece.segment)))
        size += piece.size
    return [tuple(bundle) for bundle in bundles]
