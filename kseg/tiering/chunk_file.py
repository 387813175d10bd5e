"""A log in the tier as a file that is read at positions: only the chunks that a read touches are fetched."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

from kseg.errors import CorruptRecordError, UnreadableError
from kseg.storage import RandomFile, Writable, byte_view
from kseg.tiering.chunk_index import ChunkIndex
from kseg.tiering.chunks import ChunkOrError, Transform, read_chunks

KEPT_BYTES: Final = 8 << 20  # of chunks that a later read may want: a walk's reads do not end where chunks do
FETCH_BYTES: Final = 16 << 20  # of chunks that one request fetches
AHEAD_AFTER: Final = 3  # fetches in a row, before more is fetched than was asked for


class ChunkFile:
    """The detransformed bytes of a `.log` object.

    Args:
        file: The object, open; closed with this.
        index: Where its chunks are.
        transform: How they are stored.
    """

    def __init__(self, file: RandomFile, index: ChunkIndex, transform: Transform) -> None:
        self.path = file.path
        self.size = index.original_file_size
        self.identity = file.identity
        self._file = file
        self._index = index
        self._transform = transform
        self._is_plain = not transform.compression and transform.cipher is None
        self._kept: OrderedDict[int, ChunkOrError] = OrderedDict()
        self._lock = threading.Lock()
        self._following = 0
        self._in_a_row = 0
        self._reader: ThreadPoolExecutor | None = None
        self._ahead: tuple[int, Future[list[ChunkOrError]]] | None = None

    def refresh(self) -> int:
        """See RandomFile; what is in the tier does not grow."""
        return self.size

    def read_into(self, position: int, view: Writable) -> int:
        """See RandomFile.

        Raises:
            UnreadableError: A chunk was changed; what lies before it was read.
        """
        target = byte_view(view)
        target = target[: max(min(target.nbytes, self.size - position), 0)]
        if self._is_plain:
            return self._file.read_into(position, target)
        done = 0
        while done < target.nbytes:
            done += self._copy(position + done, target[done:])
        return done

    def _copy(self, position: int, target: memoryview) -> int:
        """Copy what the chunk at `position` has of the wanted bytes; fetch it, with those behind it, where needed."""
        number = self._index.at(position)
        with self._lock:
            chunk = self._kept.get(number)
            if chunk is None:
                self._fetch(number, self._index.at(position + target.nbytes - 1))
                chunk = self._kept[number]
            self._kept.move_to_end(number)
        first = number * self._index.original_chunk_size
        if isinstance(chunk, CorruptRecordError):
            error = UnreadableError(chunk.message, path=chunk.path, position=chunk.position)
            error.start, error.end = first, min(first + self._index.original_chunk_size, self.size)
            raise error
        begin = position - first
        size = min(len(chunk) - begin, target.nbytes)
        target[:size] = memoryview(chunk)[begin : begin + size]
        return size

    def _fetch(self, first: int, last: int) -> None:
        """Fetch chunks from `first` on, those up to `last` as far as one request takes, and keep them."""
        most = max(FETCH_BYTES // self._index.original_chunk_size, 1)
        count = 1
        while count < most and first + count <= last and first + count not in self._kept:
            count += 1
        chunks = self._taken_ahead(first) or self._read(first, count)
        room = max(KEPT_BYTES // self._index.original_chunk_size, 1) + len(chunks)
        while self._kept and len(self._kept) + len(chunks) > room:
            self._kept.popitem(last=False)
        self._kept.update(enumerate(chunks, first))
        self._in_a_row = self._in_a_row + 1 if first == self._following else 0
        self._following = first + len(chunks)
        if self._in_a_row >= AHEAD_AFTER and count * self._index.original_chunk_size <= FETCH_BYTES:
            self._read_ahead(min(count, self._index.count - self._following))

    def _read(self, first: int, count: int) -> list[ChunkOrError]:
        places = [self._index.chunk(number) for number in range(first, first + count)]
        return read_chunks(self._file, places, self._transform)

    def _read_ahead(self, count: int) -> None:
        """Fetch what follows while the caller works: whoever has read so far in one go will read on."""
        if count < 1:
            return
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1, thread_name_prefix="kseg-tier")
        self._ahead = self._following, self._reader.submit(self._read, self._following, count)

    def _taken_ahead(self, first: int) -> list[ChunkOrError] | None:
        """What was fetched ahead, if it begins with this chunk."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != first:
            return None
        return ahead[1].result()

    def is_cached(self, start: int, end: int) -> bool:
        """See RandomFile; a tier's caches are its own business."""
        return True

    def drop_cache(self, start: int, end: int) -> None:
        """See RandomFile; there is no page cache to spare."""

    def close(self) -> None:
        """See RandomFile."""
        if self._reader is not None:
            self._reader.shutdown(wait=True, cancel_futures=True)
        self._kept.clear()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
