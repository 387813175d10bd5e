"""One segment of a folder, looked at as Kafka's loader looks at it: by its index as it is, without checksums.

What a healthy index would answer the same way is answered here as a broker answers it with a damaged one too: a log
that was cut below its last index entry, for instance, ends at its base offset after a clean shutdown.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kseg.errors import CorruptRecordError, FormatError, LogError
from kseg.index.offset import ENTRY_SIZE
from kseg.log.names import MAX_OFFSET, FileKind, FileState, segment_file_name
from kseg.log.walk import BatchWalker, Chunk, ReadOptions
from kseg.native import table as t
from kseg.native.headers import fill_headers, scan_checksums
from kseg.recovery.folder import Folder, FolderFile

OPTIONS = ReadOptions(max_batch_bytes=0x7FFFFFFF)  # whatever a broker took, recovery has to take
_WARM_ENTRIES = 8192 // ENTRY_SIZE
_ENTRY = np.dtype([("relative", ">i4"), ("position", ">i4")])
_CHUNK_BYTES = 2 << 20  # stays in the CPU's cache between reading and checking
_NEWEST_MAGIC = 2
_LARGEST_MAGIC = 127


class LoadedSegment:
    """A segment by its base offset; its files are looked up in the folder at each use."""

    def __init__(self, folder: Folder, base_offset: int, state: FileState = FileState.LIVE) -> None:
        self.folder = folder
        self.base_offset = base_offset
        self._state = state

    @property
    def log_name(self) -> str:
        """Name of the log file."""
        return segment_file_name(self.base_offset, FileKind.LOG, self._state)

    @property
    def path(self) -> str:
        """The log file."""
        return f"{self.folder.directory}/{self.log_name}"

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        return self.folder.files[self.log_name].size

    def open(self) -> FolderFile:
        """Open the log file."""
        return self.folder.open(self.log_name)

    def index_entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Offsets and positions of the offset index, padding included: a broker takes a file that is there for full."""
        name = segment_file_name(self.base_offset, FileKind.OFFSET_INDEX, self._state)
        data = self.folder.read_bytes(name) if name in self.folder.files else b""
        entries = np.frombuffer(data, _ENTRY, len(data) // ENTRY_SIZE)
        return entries["relative"].astype(np.int64) + self.base_offset, entries["position"].astype(np.int64)

    def translate(self, offset: int) -> int | None:
        """Where the first batch is that reaches `offset`, by the index; None where there is none."""
        offsets, positions = self.index_entries()
        slot = _lookup(offsets, offset)
        start = int(positions[slot]) if slot >= 0 else 0
        for chunk in self.walk(start):
            reached = chunk.table[t.LAST_OFFSET, : chunk.rows] >= offset
            if reached.any():
                return int(chunk.table[t.POSITION, int(reached.argmax())])
        return None

    def next_offset(self) -> int:
        """The offset behind the last batch, as Kafka's `readNextOffset` finds it."""
        offsets, _ = self.index_entries()
        start = self.translate(int(offsets[-1]) if len(offsets) else self.base_offset)
        if start is None:
            return self.base_offset
        last = self.base_offset - 1
        for chunk in self.walk(start):
            check_last_offset(chunk.table, chunk.rows, self.path)
            last = int(chunk.table[t.LAST_OFFSET, chunk.rows - 1])
        return last + 1

    def walk(self, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
        """Batches without checksums.

        Raises:
            LogError: The bytes cannot be walked; a broker that has to read them does not start.
        """
        if not 0 <= start < self.size:
            return
        with self.open() as file:
            try:
                yield from walk_chunks(file, start=start, end=end, check=False)
            except FormatError as error:
                raise LogError(
                    f"a broker cannot load this log: {error.message}",
                    path=self.path,
                    position=error.position,
                    hint="recover with --all to check every segment",
                ) from error


def check_last_offset(table: t.Table, rows: int, path: str) -> None:
    """Refuse a batch behind which no log goes on; what a broker counts from there is below zero.

    Raises:
        LogError: There is one.
    """
    found = np.flatnonzero(table[t.LAST_OFFSET, :rows] == MAX_OFFSET)
    if len(found):
        raise LogError(
            f"a broker cannot load this log: a batch ends at offset {MAX_OFFSET}, behind which no log goes on",
            path=path,
            position=int(table[t.POSITION, found[0]]),
            offset=MAX_OFFSET,
            hint="recover with --salvage --all to leave the batch out",
        )


def walk_chunks(file: FolderFile, *, start: int = 0, end: int | None = None, check: bool) -> Iterator[Chunk]:
    """Walk as Kafka's file iterator does, which takes a magic above 2 for 2; bytes at the end that are no batch end it.

    Raises:
        FormatError: No batch begins here, or with `check` its checksum is wrong; all before it was given.
    """
    position = start
    while True:
        try:
            for chunk in BatchWalker(file, OPTIONS, start=position, end=end, check=check, chunk_bytes=_CHUNK_BYTES):
                yield chunk
                position = int(chunk.table[t.POSITION, chunk.rows - 1] + chunk.table[t.SIZE, chunk.rows - 1])
            return
        except CorruptRecordError as error:
            if error.position is not None:
                position = error.position
            newer = _newer_magic(file, position, check=check)
            if newer is None:
                raise
        yield newer
        position += int(newer.table[t.SIZE, 0])


def _newer_magic(file: FolderFile, position: int, *, check: bool) -> Chunk | None:
    """The batch at `position` if all that is odd of it is a magic above 2, which its checksum does not cover."""
    prefix = np.empty(t.PREFIX_SIZE, np.uint8)
    if file.read_into(position, prefix) < t.PREFIX_SIZE or not _NEWEST_MAGIC < prefix[16] <= _LARGEST_MAGIC:
        return None
    size = int.from_bytes(prefix[8:12].tobytes(), "big", signed=True) + t.LOG_OVERHEAD
    if not t.HEADER_SIZE <= size <= file.size - position:
        return None
    data = np.empty(size, np.uint8)
    file.read_into(position, data)
    data[16] = _NEWEST_MAGIC
    table = t.new_table(1)
    rows, _, _ = fill_headers(data, 0, size, position, table, 0)
    if rows != 1 or (check and scan_checksums(data, position, table, 0, 1)[0] >= 0):
        return None
    return Chunk(data, position, table, 1)


def _lookup(offsets: NDArray[np.int64], target: int) -> int:
    """Slot of the largest entry not above `target`, found as Kafka's AbstractIndex does; -1 where there is none.

    On entries that ascend this is a plain binary search; on others the steps decide.
    """
    if not len(offsets):
        return -1
    first_warm = max(0, len(offsets) - 1 - _WARM_ENTRIES)
    if offsets[first_warm] < target:
        return _search(offsets, target, first_warm, len(offsets) - 1)
    if offsets[0] > target:
        return -1
    return _search(offsets, target, 0, first_warm)


def _search(offsets: NDArray[np.int64], target: int, low: int, high: int) -> int:
    while low < high:
        middle = (low + high + 1) // 2
        if offsets[middle] > target:
            high = middle - 1
        elif offsets[middle] < target:
            low = middle
        else:
            return middle
    return low
