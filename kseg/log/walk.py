"""Read byte ranges of a segment into one reused buffer and walk their batches.

Every pass over a log (reading, seeking, replaying producers, rebuilding indexes) is this loop; what differs is what is
done with each chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kseg.errors import CorruptRecordError, FormatError, UnreadableError, UnsupportedError
from kseg.format.arrow import MAX_BATCH_BYTES
from kseg.format.batch import checksum_error, torn_error, walk_error
from kseg.format.file_span import FileSpan
from kseg.index.offset import MAX_RELATIVE_OFFSET
from kseg.native import headers
from kseg.native import table as t
from kseg.native.header_reads import pread_address
from kseg.native.headers import fill_checked, fill_headers, find_disorder, scan_checksums
from kseg.native.memory import pooled
from kseg.storage import LocalFile, RandomFile, RateLimiter
from kseg.types import MAX_OFFSET

FIRST_CHUNK_BYTES = 128 << 10
CHUNK_BYTES = 4 << 20
LEAST_STRAIGHT_BYTES = 1 << 20  # fewer are read all at once, and no byte more
READS_A_BUFFER = 2  # what is left of a batch stays where it is until the buffer is full
FIRST_ROWS = (1 << 9) + 8  # a walk of a few batches should not pay for pages that it hardly uses
ROWS_PER_CHUNK = (1 << 15) + 8  # no power of two: the table's columns would share one set of the CPU's cache


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How bytes are read from a log.

    Args:
        max_batch_bytes: The largest batch that is taken into memory, compressed or not.
        max_bytes_per_second: A limit on what is read from disk or store.
        drop_page_cache: Tell the kernel to forget pages that only this read brought in, so that a live broker's
            survive.
        skip_damage: Go on behind damage (`kseg.log.sound_walk`), instead of raising.
    """

    max_batch_bytes: int = MAX_BATCH_BYTES
    max_bytes_per_second: float | None = None
    drop_page_cache: bool = False
    skip_damage: bool = False


@dataclass(slots=True)
class Chunk:
    """Whole batches of a byte range; the arrays are overwritten when the next chunk is asked for."""

    data: t.Bytes
    file_position: int
    table: t.Table
    rows: int


class WalkRoom:
    """Memory that one walk after the other uses, so that its pages are there already; for one walk at a time."""

    __slots__ = ("buffer", "table")

    def __init__(self) -> None:
        self.buffer: t.Bytes = np.empty(0, np.uint8)
        self.table = t.new_table(FIRST_ROWS)


class Walk(Protocol):
    """A walk through the batches of a file, chunk by chunk."""

    torn_position: int | None

    def __iter__(self) -> Iterator[Chunk]: ...

    @property
    def path(self) -> str:
        """The file that is walked."""

    def stop(self) -> None:
        """What lies behind is not of interest: it is not torn either."""

    def raise_if_torn(self) -> None:
        """Make an error of bytes at the end that are no whole batch."""


class BatchWalker:
    """Iterate over the chunks of `[start, end)` of a file; `start` is where a batch begins.

    Args:
        hint: Bytes that will probably do; read first, in one go, before chunks grow as usual.
        check: Verify the checksum of every batch.
        chunk_bytes: The most that is read at a time, unless one batch is larger.
        limiter: Shared by all walks of one reader.
        room: Used instead of new memory.

    Damage raises a `FormatError` that names the file after everything before it was given. Bytes at the end that are no
    whole batch end the walk: `torn_position` tells where they begin, `raise_if_torn` makes an error of them.
    """

    def __init__(
        self,
        file: RandomFile,
        options: ReadOptions,
        *,
        start: int = 0,
        end: int | None = None,
        hint: int = 0,
        check: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
        limiter: RateLimiter | None = None,
        room: WalkRoom | None = None,
    ) -> None:
        self._file = file
        self._options = options
        self._position = start
        self._end = file.size if end is None else end
        self._chunk_bytes = max(chunk_bytes, 4096)
        self._hint = hint
        self._next_read = min(hint or FIRST_CHUNK_BYTES, self._chunk_bytes)
        self._check = check
        self._limiter = limiter or RateLimiter(options.max_bytes_per_second)
        self._room = room or WalkRoom()
        self._begin = 0
        self.torn_position: int | None = None

    def __iter__(self) -> Iterator[Chunk]:
        held = 0  # bytes in the buffer, from `_begin` on, that the last walk left
        while True:
            got = self._fill(held)
            held += got
            yield from self._walk(held)
            consumed = self._consumed
            self._position += consumed
            held -= consumed
            if not got or (self._position + held >= self._end and not consumed):
                break
            self._begin += consumed
            if not consumed:
                self._grow(held)
        if held:
            self.torn_position = self._position

    @property
    def path(self) -> str:
        """The file that is walked."""
        return self._file.path

    def straight_span(self, last_offset: int, *, least: int = LEAST_STRAIGHT_BYTES) -> FileSpan | None:
        """What is to be walked, if kernels may go through the file themselves instead (`kseg.native.steps`).

        They may not where somebody watches how much is read: then each read is one of this walk.

        Args:
            least: Where fewer bytes will do, they are read all at once.
        """
        is_watched = self._options.drop_page_cache or self._options.max_bytes_per_second is not None
        is_short = 0 < self._hint < least
        if is_watched or is_short or not self._check or not isinstance(self._file, LocalFile) or not pread_address():
            return None
        return FileSpan(self._file.fileno(), self._position, self._end, last_offset)

    def go_to(self, position: int) -> None:
        """Begin with another batch; the walk has not begun yet."""
        self._position = position

    def stop(self) -> None:
        """What lies behind is not of interest: it is not torn either."""
        self.torn_position = None

    def raise_if_torn(self) -> None:
        """Make an error of bytes at the end that are no whole batch: damage, unless the segment is still written to."""
        if self.torn_position is not None:
            raise torn_error(self.torn_position, self._end - self.torn_position).with_context(path=self._file.path)

    def check_behind(self, chunk: Chunk, base_offset: int, last_offset: int) -> None:
        """Check that the batch behind a chunk follows it; the chunk holds the end of what is wanted.

        Offsets are under no checksum: that of its last batch, which ends a range, may be a flipped bit's.

        Raises:
            CorruptRecordError: It is sound, and its offsets do not follow.
        """
        if not isinstance(self._file, LocalFile):  # a store would be asked once more for each range
            return
        last = chunk.rows - 1
        position = int(chunk.table[t.POSITION, last] + chunk.table[t.SIZE, last])
        found = self._next_chunk(position)
        if found is not None:
            check_order(found, base_offset, last_offset, self._file.path)

    def _next_chunk(self, position: int) -> Chunk | None:
        """The batch at a position, None where there is no sound one; others behind it may be in the chunk's bytes."""
        walker = BatchWalker(
            self._file, self._options, start=position, end=self._end, hint=t.HEADER_SIZE, limiter=self._limiter
        )
        try:
            found = next(iter(walker), None)
        except FormatError:
            return None
        return None if found is None else replace(found, rows=1)

    def _fill(self, held: int) -> int:
        """Read on behind the bytes that are held; return how many bytes came."""
        start = self._position + held
        size = min(self._next_read, self._end - start)
        if size <= 0:
            return 0
        buffer = self._room.buffer
        if buffer.size - self._begin < held + size:
            grown = buffer
            if buffer.size < held + size:
                # a second read means that more will follow: room for them all, whose pages come with their first use
                later = READS_A_BUFFER * min(self._chunk_bytes, self._end - start) if buffer.size else 0
                grown = pooled(held + max(size, later))
            grown[:held] = buffer[self._begin : self._begin + held]
            self._room.buffer, self._begin = grown, 0
        target = self._begin + held
        self._limiter.take(size)
        drop = self._options.drop_page_cache and not self._file.is_cached(start, start + size)
        try:
            got = self._file.read_into(start, self._room.buffer[target : target + size])
        except UnreadableError as error:
            got = error.start - start
            if got <= 0:  # else what lies before is given first
                raise
        if drop:
            self._file.drop_cache(start, start + got)
        self._next_read = min(max(2 * self._next_read, FIRST_CHUNK_BYTES), self._chunk_bytes)
        return got

    def _grow(self, held: int) -> None:
        """A batch is larger than what was read: read as much as it says it has, if that is allowed."""
        if held < t.LOG_OVERHEAD:
            return
        length = self._room.buffer[self._begin + 8 : self._begin + 12]
        size = int.from_bytes(length.tobytes(), "big", signed=True) + t.LOG_OVERHEAD
        if size > self._options.max_batch_bytes:
            left = self._end - self._position
            if size > left:  # it would be torn anyway, so there is no need to read it
                self._end = self._position + held
                return
            raise UnsupportedError(
                f"a batch of {size} bytes is above the limit of {self._options.max_batch_bytes}",
                path=self._file.path,
                position=self._position,
                hint="raise max_batch_bytes to read it",
            )
        self._next_read = max(self._next_read, size - held)

    def _walk(self, held: int) -> Iterator[Chunk]:
        """Walk the buffer's bytes, as often as the table fills up; `_consumed` says how far it came."""
        self._consumed = 0
        data = self._room.buffer[self._begin : self._begin + held]
        fill = fill_checked if self._check else fill_headers
        while self._consumed < held:
            table = self._room.table
            rows, after, status = fill(data, self._consumed, held, self._position, table, 0)
            if rows:
                yield Chunk(data, self._position, table, rows)
            self._consumed = after
            if status == headers.BAD_CHECKSUM:
                _, computed = scan_checksums(data, self._position, table, rows, 1)
                raise checksum_error(table, rows, computed).with_context(path=self._file.path)
            if status < 0:
                raise walk_error(status, self._position + after).with_context(path=self._file.path)
            if status == headers.INCOMPLETE:
                return
            if status == headers.TABLE_FULL and table.shape[1] < ROWS_PER_CHUNK:
                self._room.table = t.new_table(ROWS_PER_CHUNK)


def batch_offsets(chunk: Chunk) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last offset of each batch; of a legacy wrapper only the last is known, and stands for both."""
    lasts = chunk.table[t.LAST_OFFSET, : chunk.rows]
    bases = chunk.table[t.BASE_OFFSET, : chunk.rows]
    is_wrapper = (bases < 0) & (chunk.table[t.MAGIC, : chunk.rows] < 2)
    return np.where(is_wrapper, lasts, bases), lasts


def rows_in_order(chunk: Chunk, base_offset: int, last_offset: int) -> tuple[int, int]:
    """How many batches follow each other and fit their segment, and the last offset of those.

    The base offset is not under the checksum: a flipped bit there is found only so.
    """
    row, last = find_disorder(chunk.table, chunk.rows, base_offset, last_offset)
    return chunk.rows if row < 0 else int(row), int(last)


def order_error(chunk: Chunk, row: int, before: int, base_offset: int, path: str) -> CorruptRecordError:
    """What is wrong with a batch that does not follow the offset before it."""
    first, last = int(chunk.table[t.BASE_OFFSET, row]), int(chunk.table[t.LAST_OFFSET, row])
    if first < 0 and chunk.table[t.MAGIC, row] < 2:
        first = last
    what, hint = f"do not follow {before} in the segment of base {base_offset}", "'kseg verify' shows what is sound"
    if last == MAX_OFFSET:
        what = "reach the last number that an offset can have, behind which no log goes on"
    elif last - base_offset > MAX_RELATIVE_OFFSET and before < first <= last:
        what = f"are too far from {base_offset}, the base of their segment, for its indexes"
        hint = "if the offsets are right, run 'kseg recover --all': it splits the segment, as a broker that recovers it"
    return CorruptRecordError(
        f"offsets {first} to {last} {what}",
        path=path,
        position=int(chunk.table[t.POSITION, row]),
        offset=first,
        hint=hint,
    )


def check_order(chunk: Chunk, base_offset: int, last_offset: int, path: str) -> int:
    """Check that offsets rise from batch to batch and fit their segment; return the last one."""
    rows, last = rows_in_order(chunk, base_offset, last_offset)
    if rows < chunk.rows:
        raise order_error(chunk, rows, last, base_offset, path)
    return last
