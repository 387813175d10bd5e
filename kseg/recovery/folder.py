"""A partition directory as it will be: the files on disk, and what a plan has made of them so far, without any change.

A plan runs Kafka's loader on a `Folder`. Files are pieces of files on disk, or bytes that the plan made. In the end the
difference between the two is what has to be done.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from kseg.log.names import FileKind, FileState, SegmentFile, parse_segment_file, segment_file_name
from kseg.storage import Entry, LocalFile, LocalStore, Writable, byte_view


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `[start, end)` of a file that is on disk; `source` is its name once interrupted swaps are settled."""

    source: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds: pieces of files on disk, or bytes; a file that is as it was is one whole piece of itself."""

    pieces: tuple[Piece, ...] = ()
    data: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.data) if self.data is not None else sum(piece.end - piece.start for piece in self.pieces)

    def cut(self, size: int) -> Content:
        """The first `size` bytes."""
        if self.data is not None:
            return Content(data=self.data[:size])
        return Content(tuple(self._between(0, size)))

    def slice(self, start: int, end: int) -> Content:
        """Bytes `[start, end)` of a file that is made of pieces."""
        return Content(tuple(self._between(start, end)))

    def _between(self, start: int, end: int) -> Iterable[Piece]:
        at = 0
        for piece in self.pieces:
            size = piece.end - piece.start
            first, last = max(start - at, 0), min(end - at, size)
            if first < last:
                yield Piece(piece.source, piece.start + first, piece.start + last)
            at += size


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A file as it is on disk now; `name` is the one it has there."""

    name: str
    size: int
    mtime_ms: int


class Folder:
    """The files of a partition directory; subfolders are not looked at, as a broker does not."""

    def __init__(self, directory: str, disk: dict[str, DiskFile]) -> None:
        self.directory = directory
        self.disk = disk
        self.files = {name: whole(name, file.size) for name, file in disk.items()}

    @classmethod
    def read(cls, directory: str) -> Self:
        """List a directory."""
        return cls.of(directory, LocalStore().list(directory))

    @classmethod
    def of(cls, directory: str, entries: Iterable[Entry]) -> Self:
        """Take a listing."""
        files = [entry for entry in entries if not entry.is_dir]
        return cls(directory, {entry.name: DiskFile(entry.name, entry.size, entry.mtime_ms) for entry in files})

    def is_unchanged(self, name: str) -> bool:
        """Whether a file is what it was."""
        return name in self.disk and self.files.get(name) == whole(name, self.disk[name].size)

    def bases(self) -> list[int]:
        """Base offsets of the segments, ascending."""
        return self._offsets(FileKind.LOG)

    def snapshots(self) -> list[int]:
        """Offsets of the producer snapshots, ascending."""
        return self._offsets(FileKind.SNAPSHOT)

    def _offsets(self, kind: FileKind) -> list[int]:
        return sorted(name.base_offset for name in self.names() if name.kind is kind and name.state is FileState.LIVE)

    def names(self) -> list[SegmentFile]:
        """The names of segment files of any state, in order."""
        return sorted(name for text in self.files if (name := parse_segment_file(text)) is not None)

    def get(self, base: int, kind: FileKind) -> Content | None:
        """A segment's file, None where there is none."""
        return self.files.get(segment_file_name(base, kind))

    def put(self, base: int, kind: FileKind, data: bytes) -> None:
        """Give a segment's file new bytes; those that it has already leave it as it is."""
        name = segment_file_name(base, kind)
        old = self.files.get(name)
        if old is None or old.size != len(data) or self.read_bytes(name) != data:
            self.files[name] = Content(data=data)

    def remove(self, base: int, kind: FileKind) -> None:
        """Take a segment's file away if it is there."""
        self.files.pop(segment_file_name(base, kind), None)

    def read_bytes(self, name: str) -> bytes:
        """A file's bytes; for the small ones."""
        content = self.files[name]
        if content.data is not None:
            return content.data
        with self.open(name) as file:
            buffer = np.empty(file.size, np.uint8)
            return bytes(buffer[: file.read_into(0, buffer)])

    def open(self, name: str) -> FolderFile:
        """Open a file of pieces for random access."""
        return FolderFile(self, name)


class FolderFile:
    """A file of a folder, read at positions: a `RandomFile`."""

    def __init__(self, folder: Folder, name: str) -> None:
        store = LocalStore()
        self.path = store.join(folder.directory, name)
        content = folder.files[name]
        self.size = content.size
        self.identity = self.path
        self._data = content.data
        self._files: dict[str, LocalFile] = {}
        self._spans: list[tuple[int, int, Piece]] = []
        at = 0
        for piece in content.pieces:
            self._spans.append((at, at + piece.end - piece.start, piece))
            at += piece.end - piece.start
            if piece.source not in self._files:
                path = store.join(folder.directory, folder.disk[piece.source].name)
                self._files[piece.source] = store.open(path)

    def refresh(self) -> int:
        """See RandomFile."""
        return self.size

    def read_into(self, position: int, view: Writable) -> int:
        """See RandomFile."""
        target = byte_view(view)
        if self._data is not None:
            part = self._data[position : position + target.nbytes]
            target[: len(part)] = part
            return len(part)
        done = 0
        for start, end, piece in self._spans:
            at = position + done
            if done < target.nbytes and start <= at < end:
                size = min(end - at, target.nbytes - done)
                got = self._files[piece.source].read_into(piece.start + at - start, target[done : done + size])
                done += got
                if got < size:
                    break
        return done

    def descriptor(self) -> int | None:
        """The descriptor of the file on disk, where it is all that this one has; else None."""
        if self._data is None and len(self._spans) == 1 and self._spans[0][2].start == 0:
            return self._files[self._spans[0][2].source].fileno()
        return None

    def is_cached(self, start: int, end: int) -> bool:
        """See RandomFile."""
        return True

    def drop_cache(self, start: int, end: int) -> None:
        """See RandomFile."""

    def close(self) -> None:
        """See RandomFile."""
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def whole(name: str, size: int) -> Content:
    """A file as it is on disk."""
    return Content((Piece(name, 0, size),) if size else ())
