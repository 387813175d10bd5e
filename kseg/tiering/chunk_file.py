"""A log in the tier as a file that is read at positions: only the chunks that a read touches are fetched."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Self

from kseg.storage import RandomFile, Writable, byte_view
from kseg.tiering.chunk_index import ChunkIndex
from kseg.tiering.chunks import Transform, read_chunks

KEPT_BYTES: Final = 8 << 20  # of chunks that a later read may want: a walk's reads do not end where chunks do
FETCH_BYTES: Final = 16 << 20  # of chunks that one request fetches


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
        self._kept: OrderedDict[int, bytes | memoryview] = OrderedDict()
        self._lock = threading.Lock()

    def refresh(self) -> int:
        """See RandomFile; what is in the tier does not grow."""
        return self.size

    def read_into(self, position: int, view: Writable) -> int:
        """See RandomFile."""
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
        begin = position - number * self._index.original_chunk_size
        size = min(len(chunk) - begin, target.nbytes)
        target[:size] = memoryview(chunk)[begin : begin + size]
        return size

    def _fetch(self, first: int, last: int) -> None:
        most = max(FETCH_BYTES // self._index.original_chunk_size, 1)
        numbers = [first]
        while numbers[-1] < last and len(numbers) < most and numbers[-1] + 1 not in self._kept:
            numbers.append(numbers[-1] + 1)
        chunks = read_chunks(self._file, [self._index.chunk(number) for number in numbers], self._transform)
        room = max(KEPT_BYTES // self._index.original_chunk_size, 1) + len(numbers)
        while self._kept and len(self._kept) + len(numbers) > room:
            self._kept.popitem(last=False)
        self._kept.update(zip(numbers, chunks, strict=True))

    def is_cached(self, start: int, end: int) -> bool:
        """See RandomFile; a tier's caches are its own business."""
        return True

    def drop_cache(self, start: int, end: int) -> None:
        """See RandomFile; there is no page cache to spare."""

    def close(self) -> None:
        """See RandomFile."""
        self._kept.clear()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
