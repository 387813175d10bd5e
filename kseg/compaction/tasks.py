"""The passes of a round as tasks that other processes can run: what they get and give back can be pickled.

A task that writes first proves that it sees the driver's folder. What it wrote has a name that no other attempt has,
and comes back with its size and checksum, which the driver compares with what it reads.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kseg import durable
from kseg.compaction.keymap import KeyMap, KeyMapFull
from kseg.compaction.markers import TransactionRows
from kseg.compaction.pieces import Piece, portable
from kseg.compaction.rewrite import Append, LatestOffsets, Rewriter, Rewritten, Rules
from kseg.compaction.scan import KeyScanner
from kseg.compaction.spill import DroppedFile, DroppedOffsets, Resolver, SpillFiles
from kseg.errors import JobError, StorageError
from kseg.log.staging import check_nonce
from kseg.log.visibility import AbortedRanges
from kseg.native import table as t
from kseg.native.crc32c import crc32c
from kseg.storage import LocalStore

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

    def new_folder(self, kind: str) -> Path:
        """A folder that nobody else has."""
        path = self.new_file(kind)
        durable.make_dir(path)
        return path


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
class PartFile:
    """A file that a task wrote part by part; `parts` are their sizes and checksums."""

    path: Path
    parts: tuple[tuple[int, int], ...]

    def load(self) -> Iterator[t.Bytes]:
        """Read one part after the other.

        Raises:
            JobError: A part is not what the task wrote.
        """
        with LocalStore().open(str(self.path)) as file:
            position = 0
            for size, checksum in self.parts:
                data = np.empty(size, np.uint8)
                if file.read_into(position, data) != size or int(crc32c(data, 0, size)) != checksum:
                    raise self._changed()
                yield data
                position += size
            if position != file.size:
                raise self._changed()

    def _changed(self) -> JobError:
        return JobError("a task's file is not what the task wrote", path=str(self.path))


class PartWriter:
    """Writes a file part by part; a context that closes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[tuple[int, int]] = []
        self._fd = durable.create(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        durable.close(self._fd, self._path)

    def append(self, part: NDArray[Any]) -> None:
        """Write an array, which may change afterwards."""
        data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        durable.write_all(self._fd, data, self._path)
        self._parts.append((len(data), int(crc32c(data, 0, len(data)))))

    def finish(self) -> PartFile:
        """Make it durable."""
        durable.fsync_file(self._fd)
        return PartFile(self._path, tuple(self._parts))


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
class ResolveTask:
    """All records of some keys to compare.

    Attributes:
        divisor: What a part of the hash was divided by to come to these keys.
        room: Bytes of memory.
    """

    place: Place
    first_dirty: int
    divisor: int
    room: int


@dataclass(frozen=True, slots=True)
class Resolved:
    """How many keys of a task are dirty, and the offsets of its superseded records: parts, each of which ascends."""

    keys: int
    dropped: PartFile


def resolve(task: ResolveTask, entries: Iterable[NDArray[np.int64]]) -> Resolved:
    """Compare keys that come with their offsets, rows of (low hash, high hash, offset), however many there are."""
    task.place.check()
    with SpillFiles(task.place.folder, 1, task.room, stem=task.place.new_file("keys").name) as files:
        for some in entries:
            files.put(some)
    with PartWriter(task.place.new_file("dropped")) as dropped:
        keys = Resolver(task.first_dirty, task.room, 1, dropped.append).resolve(files.paths[0], task.divisor)
        return Resolved(keys, dropped.finish())


@dataclass(frozen=True, slots=True)
class Answers:
    """Where pass 2 looks keys up: a map in a file, or a file of superseded offsets."""

    file: Path | DroppedFile
    hash_key: NDArray[np.uint64]

    def open(self) -> LatestOffsets:
        """Map the file into memory."""
        if isinstance(self.file, DroppedFile):
            return DroppedOffsets(self.file).latest_of
        return KeyMap.from_file(self.file, self.hash_key).latest_of


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Pass 2 over some pieces."""

    place: Place
    pieces: tuple[Piece, ...]
    rules: Rules
    answers: Answers


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """What is left of a task's pieces, in files: batches, part by part, and the tables of the parts."""

    data: PartFile
    tables: PartFile
    counts: NDArray[np.int64]
    bytes_read: int

    def load(self, append: Append) -> Rewritten:
        """Read it part by part, and take the files away.

        Raises:
            JobError: It is not what the task wrote; some of it was appended by then.
        """
        for data, table in zip(self.data.load(), self.tables.load(), strict=True):
            append(data, table.view(np.int64).reshape(t.COLUMNS, -1))
        for file in (self.data, self.tables):
            durable.unlink(file.path, missing_ok=True)
        return Rewritten(counts=self.counts, bytes_read=self.bytes_read)


def rewrite(task: RewriteTask) -> RewrittenFile:
    """Run pass 2 over a task's pieces."""
    task.place.check()
    rewriter = Rewriter(task.rules, task.answers.open())
    return store_rewritten(task.place, task.pieces, rewriter.rewrite)


def store_rewritten(
    place: Place, pieces: Sequence[Piece], rewrite_piece: Callable[[Piece, Append], Rewritten]
) -> RewrittenFile:
    """Rewrite pieces, one after the other, into files; no more than a part is held in memory."""
    with PartWriter(place.new_file("data")) as batches, PartWriter(place.new_file("table")) as tables:

        def append(data: t.Bytes, table: t.Table) -> None:
            batches.append(data)
            tables.append(table)

        parts = [rewrite_piece(piece, append) for piece in pieces]
        counts = np.sum([part.counts for part in parts], axis=0)
        return RewrittenFile(batches.finish(), tables.finish(), counts, sum(part.bytes_read for part in parts))


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
