"""One segment: a run of batches with its sidecar files, found by offset and by time.

Indexes are hints. A place that an index gives is used only when a sound batch is there that begins at or before what is
looked for; otherwise the segment is walked from its start. So a lost, old or damaged index costs time, never records.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from kseg.errors import (
    ChecksumError,
    FormatError,
    IndexFileError,
    LogError,
    StorageError,
    TruncatedError,
    UnsupportedError,
)
from kseg.format.batch import torn_error
from kseg.index.offset import ENTRY_SIZE, OffsetIndex
from kseg.index.time import TimeIndex
from kseg.index.txn import TxnIndex
from kseg.log.damage import Damage
from kseg.log.files import MAX_SIDECAR_BYTES, check_sidecar_size
from kseg.log.holes import HoledFile
from kseg.log.names import FileKind
from kseg.log.sound import claimed_offsets, find_batch_behind, is_zero
from kseg.log.sound_walk import SoundWalker
from kseg.log.walk import CHUNK_BYTES, BatchWalker, ReadOptions, Walk, WalkRoom, check_order
from kseg.native import table as t
from kseg.storage import Entry, LocalFile, RandomFile, RateLimiter, Store
from kseg.types import NO_TIMESTAMP

PROBE_ENTRIES = 512  # of an index block read while searching on disk
MAX_SEGMENT_BYTES = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment of a partition; files are opened when they are needed.

    Attributes:
        files: What is there, by kind; the name on disk can still be a `.swap` one that a start-up would rename.
        is_last: Whether this is the segment that is appended to; only there may bytes at the end be torn.
        ceiling: The base offset of the segment behind, None where there is none.
    """

    store: Store
    directory: str
    base_offset: int
    files: Mapping[FileKind, Entry]
    is_last: bool = False
    options: ReadOptions = field(default_factory=ReadOptions)
    limiter: RateLimiter | None = None
    ceiling: int | None = None

    @property
    def path(self) -> str:
        """The log file."""
        return self._path_of(self.files[FileKind.LOG])

    @property
    def tier(self) -> Literal["local", "remote"]:
        """Whether the files are in the partition's directory or in a tier behind it."""
        return "local" if self.files[FileKind.LOG].remote is None else "remote"

    def _path_of(self, entry: Entry) -> str:
        return self.store.join(self.directory, entry.name) if entry.remote is None else entry.remote.path

    @property
    def size(self) -> int:
        """Bytes of the log file when it was listed."""
        return self.files[FileKind.LOG].size

    @property
    def mtime_ms(self) -> int:
        """When the log file was last changed."""
        return self.files[FileKind.LOG].mtime_ms

    def open(self) -> RandomFile:
        """Open the log file."""
        file = self.store.open(self.path)
        if file.size > MAX_SEGMENT_BYTES:
            file.close()
            raise too_large_error(file.size, self.path)
        if self.options.drop_page_cache and isinstance(file, LocalFile):
            file.read_nothing_ahead()
        return HoledFile(file) if self.options.skip_damage else file

    @property
    def next_offset(self) -> int:
        """The offset behind the last batch; the base offset of an empty segment."""
        return self._end[0]

    @property
    def sound_size(self) -> int:
        """Bytes up to where the batches end; what is behind, in the segment that is appended to, is a torn tail."""
        return self._end[1]

    @property
    def tail_problem(self) -> FormatError | None:
        """What is wrong behind the sound bytes, where that is no batch cut short and no zeros; readers tell it last."""
        return self._end[2]

    @property
    def tail_damage(self) -> Damage | None:
        """The same for a reader that passes over damage."""
        next_offset, size, problem = self._end
        if problem is None:
            return None
        damage = Damage(self.path, size, self.size - size, next_offset, next_offset, problem.message)
        with self.open() as file:
            claimed = claimed_offsets(file, size)
        # what the first bytes say of themselves is the best that is known of what is missing
        return damage if claimed is None or claimed[0] != next_offset else damage.until(claimed[1] + 1)

    @functools.cached_property
    def _end(self) -> tuple[int, int, FormatError | None]:
        """Next offset, sound size and tail problem, by a walk from the last index entry on.

        Raises:
            FormatError: There is damage that a crash while appending does not explain, and no way to see behind it.
        """
        remote = self.files[FileKind.LOG].remote
        if remote is not None and remote.next_offset is not None:
            return remote.next_offset, self.size, None  # it was closed before it was copied
        with self.open() as file:
            start = self.checked_position(file, *self._last_entry())
            if self.options.skip_damage:
                return self._find_sound_end(file, start)
            next_offset, size, problem = self._walk_to_end(file, start, check=self.is_last)
            if self.is_last and (size == file.size or is_zero(file, size)):
                return next_offset, size, None
            ends = {"base_offset": self.base_offset, "next_offset": next_offset}
            if self.is_last and find_batch_behind(file, self.options, size, **ends) is None:
                return next_offset, size, problem
            if self.is_last and problem is None:
                raise torn_error(size, file.size - size).with_context(path=self.path)
            if isinstance(problem, ChecksumError):  # whoever reads finds it, after what is sound before it
                next_offset, size, problem = self._walk_to_end(file, start, check=False)
            if problem is not None:
                raise problem
            return next_offset, size, None

    def _find_sound_end(self, file: RandomFile, start: int) -> tuple[int, int, FormatError | None]:
        """The same where damage is passed over: behind the last sound batch there is none."""
        last, size = self.base_offset - 1, start
        walker = self.sound_walk(file, start=start)
        for chunk in walker:
            last = int(chunk.table[t.LAST_OFFSET, chunk.rows - 1])
            size = int(chunk.table[t.POSITION, chunk.rows - 1] + chunk.table[t.SIZE, chunk.rows - 1])
        is_tail = self.is_last and (isinstance(walker.tail_problem, TruncatedError) or is_zero(file, size))
        return last + 1, size, None if is_tail else walker.tail_problem

    def _walk_to_end(self, file: RandomFile, start: int, *, check: bool) -> tuple[int, int, FormatError | None]:
        """Next offset and byte behind the last batch of a walk, and the damage that ended it, if any."""
        last, size = self.base_offset - 1, start
        chunks = iter(self.walk(file, start=start, check=check))
        while True:
            try:
                chunk = next(chunks, None)
            except UnsupportedError:  # sound perhaps, but not for us
                raise
            except FormatError as problem:
                # kept with the segment: its traceback would keep the walk's buffers too
                return last + 1, size, problem.with_traceback(None)
            if chunk is None:
                return last + 1, size, None
            last = check_order(chunk, self.base_offset, last, self.path)
            size = int(chunk.table[t.POSITION, chunk.rows - 1] + chunk.table[t.SIZE, chunk.rows - 1])

    @functools.cached_property
    def max_timestamp(self) -> int:
        """The greatest timestamp of the segment, -1 where it has none.

        What the time index says; and of the segment that is appended to, whose index lags behind, also what the
        batches behind its last entry say.
        """
        remote = self.files[FileKind.LOG].remote
        if remote is not None and remote.max_timestamp is not None:
            return remote.max_timestamp
        timestamp, offset = self.time_index.last_entry
        if timestamp >= 0 and not self.is_last:
            return timestamp
        with self.open() as file:
            position = self.find_position(file, offset) if timestamp >= 0 else 0
            for chunk in self.walk(file, start=position, end=self.sound_size):
                timestamp = max(timestamp, int(chunk.table[t.MAX_TIMESTAMP, : chunk.rows].max()))
        return timestamp

    @property
    def largest_timestamp(self) -> int:
        """As Kafka's retention and time lookups take it: the file's mtime where no record has a timestamp."""
        return self.max_timestamp if self.max_timestamp > NO_TIMESTAMP else self.mtime_ms

    @functools.cached_property
    def offset_index(self) -> OffsetIndex:
        """The offset index as it is on disk; empty where there is none."""
        data, path = self._read_hint(FileKind.OFFSET_INDEX)
        return OffsetIndex.parse(data, self.base_offset, path)

    @functools.cached_property
    def time_index(self) -> TimeIndex:
        """The time index as it is on disk; empty where there is none."""
        data, path = self._read_hint(FileKind.TIME_INDEX)
        return TimeIndex.parse(data, self.base_offset, path)

    @functools.cached_property
    def txn_index(self) -> TxnIndex:
        """The transaction index as it is on disk; empty where there is none.

        Raises:
            IndexFileError: An entry cannot be understood; a broker rebuilds the segment's indexes then.
        """
        data, path = self._read(FileKind.TXN_INDEX)
        return TxnIndex.parse(data, path)

    @property
    def needs_rebuild(self) -> bool:
        """Whether a broker would rebuild the indexes at start-up: no offset index, or a bad transaction index."""
        if not self.size:
            return False
        try:
            if FileKind.OFFSET_INDEX not in self.files or self.tier == "remote":  # a copy is not fetched to be checked
                return FileKind.OFFSET_INDEX not in self.files
            return bool(self.txn_index.check(self.base_offset))
        except IndexFileError:
            return True

    def walk(
        self,
        file: RandomFile,
        *,
        start: int = 0,
        end: int | None = None,
        hint: int = 0,
        check: bool = False,
        chunk_bytes: int = CHUNK_BYTES,
        room: WalkRoom | None = None,
    ) -> Walk:
        """Walk the batches of an open log file; where damage is passed over, checksums are always checked."""
        if self.options.skip_damage:
            return self.sound_walk(file, start=start, end=end, hint=hint, chunk_bytes=chunk_bytes)
        return BatchWalker(
            file,
            self.options,
            start=start,
            end=end,
            hint=hint,
            check=check,
            chunk_bytes=chunk_bytes,
            limiter=self.limiter,
            room=room,
        )

    def sound_walk(
        self,
        file: RandomFile,
        *,
        start: int = 0,
        end: int | None = None,
        missing_from: int | None = None,
        hint: int = 0,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> SoundWalker:
        """Walk the sound batches of an open log file; `missing_from` as in `SoundWalker`."""
        return SoundWalker(
            file,
            self.options,
            base_offset=self.base_offset,
            start=start,
            end=end,
            ceiling=self.ceiling,
            missing_from=missing_from,
            look_back=self.place_before(start),
            hint=hint,
            chunk_bytes=chunk_bytes,
            limiter=self.limiter,
        )

    def find_position(self, file: RandomFile, offset: int, room: WalkRoom | None = None) -> int:
        """Where to start reading for `offset`: at a batch at or before the one that holds it."""
        return self.checked_position(file, *self._lookup(offset, wanted_after=False)[0], room)

    def find_span(self, file: RandomFile, start: int, end: int) -> tuple[int, int]:
        """Where to start reading for offsets `[start, end)`, and how many bytes will do if the index is right."""
        position = self.find_position(file, start)
        if end - self.base_offset > 0x7FFFFFFF:
            return position, 0
        after = self._lookup(end - 1, wanted_after=True)[1]
        return position, max(after - position, 0) if after is not None else 0

    def place_before(self, position: int) -> int:
        """Where the index names the last batch but one before a position, or an earlier one."""
        slot = int(np.searchsorted(self.offset_index.positions, position)) - 2 if position else -1
        return int(self.offset_index.positions[slot]) if slot >= 0 else 0

    def is_behind(self, file: RandomFile, offset: int, position: int) -> bool:
        """Whether a sound batch is at `position` that begins at or behind `offset`."""
        try:
            for chunk in BatchWalker(file, self.options, start=position, hint=t.HEADER_SIZE, check=True):
                return bool(chunk.table[t.BASE_OFFSET, 0] >= offset)  # not known of a legacy wrapper: it has -1
        except FormatError:
            return False
        return False

    def _read(self, kind: FileKind) -> tuple[bytes, str]:
        entry = self.files.get(kind)
        if entry is None:
            return b"", self.store.join(self.directory, f"{self.base_offset:020d}{kind.value}")
        path = self._path_of(entry)
        check_sidecar_size(entry.size, path)
        return self.store.read(path, MAX_SIDECAR_BYTES), path

    def _read_hint(self, kind: FileKind) -> tuple[bytes, str]:
        """A file that only saves time: one that is gone, or cannot be an index, counts as empty."""
        try:
            return self._read(kind)
        except FormatError as error:  # in a tier it can be damaged as a chunk can
            if not self.options.skip_damage:
                raise
            return b"", error.path or ""
        except (StorageError, IndexFileError) as error:
            if isinstance(error, StorageError) and not error.missing:
                raise
            return b"", error.path or ""

    def checked_position(self, file: RandomFile, offset: int, position: int, room: WalkRoom | None = None) -> int:
        """The position if a sound batch is there that begins at or before the entry's offset, else 0."""
        if position <= 0 or position >= file.size:
            return 0
        try:
            for chunk in BatchWalker(file, self.options, start=position, hint=t.HEADER_SIZE, check=True, room=room):
                first = chunk.table[t.BASE_OFFSET, 0] if chunk.table[t.MAGIC, 0] == 2 else chunk.table[t.LAST_OFFSET, 0]
                return position if self.base_offset <= first <= offset else 0
        except FormatError:
            return 0
        return 0

    def _last_entry(self) -> tuple[int, int]:
        return self._lookup(self.base_offset + 0x7FFFFFFF, wanted_after=False)[0]

    def _lookup(self, offset: int, *, wanted_after: bool) -> tuple[tuple[int, int], int | None]:
        """Search the offset index on disk, reading a few blocks of it.

        Returns the last entry at or below `offset`, and the position of the entry behind the first one at or above it:
        batches that hold `offset` end before that. An index that is in memory already is searched there.
        """
        if FileKind.OFFSET_INDEX not in self.files:
            return (self.base_offset, 0), None
        size = self.files[FileKind.OFFSET_INDEX].size
        if "offset_index" in self.__dict__ or self.tier != "local" or size <= PROBE_ENTRIES * ENTRY_SIZE:
            return _search(self.offset_index, offset)
        path = self._path_of(self.files[FileKind.OFFSET_INDEX])
        try:
            file = self.store.open(path)
        except StorageError as error:
            if not error.missing:
                raise
            return (self.base_offset, 0), None
        with file:
            low, high = 0, size // ENTRY_SIZE  # the wanted entry is in a block that begins in [low, high)
            while high - low > PROBE_ENTRIES:
                middle = (low + high) // 2
                relative = int.from_bytes(_read_at(file, middle * ENTRY_SIZE, 4), "big", signed=True)
                if relative <= 0 or self.base_offset + relative > offset:  # zeros are padding: behind the data
                    high = middle
                else:
                    low = middle
            span = (high - low) + (2 if wanted_after else 0)
            block = OffsetIndex.parse(_read_at(file, low * ENTRY_SIZE, span * ENTRY_SIZE), self.base_offset, path)
        return _search(block, offset)


def too_large_error(size: int, path: str) -> LogError:
    """A segment that FileRecords.open refuses; to find out where its batches end could take hours."""
    message = f"a broker cannot load this log: a segment of {size} bytes is above {MAX_SEGMENT_BYTES}"
    hint = "positions in a segment are 32-bit; cut zeros off its end if that is all it has there"
    return LogError(message, path=path, hint=hint)


def _search(index: OffsetIndex, offset: int) -> tuple[tuple[int, int], int | None]:
    slot = int(np.searchsorted(index.offsets, offset, side="left")) + 1
    after = int(index.positions[slot]) if slot < len(index.positions) else None
    return index.lookup(offset), after


def _read_at(file: RandomFile, position: int, size: int) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: file.read_into(position, buffer)])
