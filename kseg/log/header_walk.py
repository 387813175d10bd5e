"""Walk the headers of a segment without reading what lies between them, where that saves time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kseg.errors import StorageError
from kseg.format.batch import torn_error, walk_error
from kseg.log.walk import ROWS_PER_CHUNK, BatchWalker, ReadOptions
from kseg.native import header_reads, headers
from kseg.native import table as t
from kseg.storage import LocalFile, RandomFile, RateLimiter

SAMPLE_BYTES: Final = 256 << 10
SPARSE_BYTES: Final = 4096  # from this size on a read of a header is cheaper than a copy of its batch


class HeaderWalker:
    """Gives tables of headers, whose rows are overwritten by the next; `raise_if_torn` as that of BatchWalker.

    The first bytes are read as they are: they tell how large batches are. Headers alone are read from a local file
    that is in the page cache; a disk is faster read in one go.
    """

    def __init__(self, file: RandomFile, options: ReadOptions, *, end: int, limiter: RateLimiter) -> None:
        self._file = file
        self._options = options
        self._end = end
        self._limiter = limiter
        self._torn: int | None = None

    def __iter__(self) -> Iterator[t.Table]:
        position, rows = 0, 0
        for chunk in self._walker(0, min(SAMPLE_BYTES, self._end)):
            yield chunk.table[:, : chunk.rows]
            position = int(chunk.table[t.POSITION, chunk.rows - 1] + chunk.table[t.SIZE, chunk.rows - 1])
            rows += chunk.rows
        address = header_reads.pread_address()
        is_sparse = rows == 0 or position // rows >= SPARSE_BYTES
        file = self._file
        if is_sparse and address and isinstance(file, LocalFile) and file.is_cached(position, self._end):
            yield from self._read_headers(file, address, position)
            return
        walker = self._walker(position, self._end)
        for chunk in walker:
            yield chunk.table[:, : chunk.rows]
        self._torn = walker.torn_position

    def _walker(self, start: int, end: int) -> BatchWalker:
        return BatchWalker(self._file, self._options, start=start, end=end, check=False, limiter=self._limiter)

    def _read_headers(self, file: LocalFile, address: int, start: int) -> Iterator[t.Table]:
        table, probe = t.new_table(ROWS_PER_CHUNK), np.empty(header_reads.PROBE_BYTES, np.uint8)
        status = headers.TABLE_FULL
        while status == headers.TABLE_FULL:
            rows, after, status = header_reads.read_headers(address, file.fileno(), start, self._end, probe, table)
            self._limiter.take(rows * header_reads.PROBE_BYTES)
            if rows:
                yield table[:, :rows]
            start = after
        if status == header_reads.READ_FAILED:
            raise StorageError("the file cannot be read", path=self._file.path)
        if status < 0:
            raise walk_error(status, start).with_context(path=self._file.path)
        if status == headers.INCOMPLETE:
            self._torn = start

    def raise_if_torn(self) -> None:
        """Make an error of bytes at the end that are no whole batch."""
        if self._torn is not None:
            raise torn_error(self._torn, self._end - self._torn).with_context(path=self._file.path)
