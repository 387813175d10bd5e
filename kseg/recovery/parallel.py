"""Check the batches of one segment on several cores.

A segment is divided at places where a sound batch is found by looking for one, and pieces are read and checked at once,
a few ahead of whoever takes the results in order. Behind a piece that does not end exactly where the next one begins (a
batch inside a record looked like one of the log, or there is damage), the walk begins anew: so the result is that of
one walk from the start.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from kseg.errors import FormatError
from kseg.log.walk import Chunk
from kseg.native import headers
from kseg.native import table as t
from kseg.native.header_reads import pread_address, read_checked
from kseg.native.headers import fill_headers, scan_candidate, scan_checksums
from kseg.recovery.folder import FolderFile
from kseg.recovery.segments import walk_chunks

PIECE_BYTES = 32 << 20
SMALLEST_PIECE = 4 << 20
MAX_ROWS = 200_000  # of a piece, as far as that can be foreseen: rows wait in memory
_PROBE_BYTES = 256 << 10
_PROBES = 32
_READ_BYTES = 2 << 20  # larger batches are left to the usual walk
_FIRST_ROWS = (1 << 15) + 8  # no power of two: the table's columns would share one set of the CPU's cache
_NO_DATA = np.empty(0, np.uint8)


@dataclass(slots=True)
class _Piece:
    """What was found in `[start, end)`: batches up to `reached`, and the damage there, if any."""

    reached: int
    chunks: list[Chunk] = field(default_factory=list)
    problem: FormatError | None = None


def walk_checked(file: FolderFile, base_offset: int, *, workers: int | None = None) -> Iterator[Chunk]:
    """As `walk_chunks` with checksums; the chunks have tables, but no bytes.

    Raises:
        FormatError: No batch begins here, or its checksum is wrong; all before it was given.
    """
    cores = len(os.sched_getaffinity(0)) if workers is None and hasattr(os, "sched_getaffinity") else workers or 1
    if cores < 2 or file.size < 2 * SMALLEST_PIECE:
        yield from walk_chunks(file, check=True)
        return
    submitted, piece_bytes = 0, SMALLEST_PIECE
    waiting: collections.deque[tuple[Future[_Piece], int, int]] = collections.deque()
    with ThreadPoolExecutor(cores, thread_name_prefix="kseg-check") as pool:
        while waiting or submitted < file.size:
            while len(waiting) <= cores and submitted < file.size:  # one more, so that no core waits for this thread
                end = _piece_end(file, submitted, piece_bytes, base_offset)
                waiting.append((pool.submit(_check, file, submitted, end), submitted, end))
                submitted = end
            future, start, end = waiting.popleft()
            piece = future.result()
            yield from piece.chunks
            if piece.problem is not None:
                raise piece.problem
            if piece.reached != end:
                for other, _, _ in waiting:
                    other.cancel()
                waiting.clear()
                if end == file.size:
                    return  # bytes at the end that are no whole batch
                if piece.reached == start:  # a large batch that holds what looks like one
                    yield from walk_chunks(file, start=start, check=True)
                    return
                submitted = piece.reached
            density = max(sum(chunk.rows for chunk in piece.chunks), 1) / (piece.reached - start)
            piece_bytes = max(SMALLEST_PIECE, min(PIECE_BYTES, int(MAX_ROWS / density)))


def _piece_end(file: FolderFile, start: int, piece_bytes: int, base_offset: int) -> int:
    """Where the piece at `start` ends: at a batch, or with the file."""
    wanted = start + piece_bytes
    found = _find_start(file, wanted, base_offset) if wanted < file.size else None
    return file.size if found is None else found


def _find_start(file: FolderFile, near: int, base_offset: int) -> int | None:
    """A place a little behind `near` where a sound batch begins; None where none is found at once."""
    buffer, row = np.empty(_PROBE_BYTES, np.uint8), t.new_table(1)
    data = buffer[: file.read_into(near, buffer)]
    at = -1
    for _ in range(_PROBES):
        at, size = scan_candidate(data, at + 1, data.size, data.size, base_offset, base_offset)
        if at < 0:
            return None
        filled, _, _ = fill_headers(data, at, at + size, near, row, 0)
        if filled == 1 and scan_checksums(data, near, row, 0, 1)[0] < 0:
            return near + int(at)
    return None


def _check(file: FolderFile, start: int, end: int) -> _Piece:
    """Read and check one piece: all its rows in one table, and from the first oddity on by the usual walk."""
    table, rows, reached = _check_fast(file, start, end)
    found = _Piece(reached)
    if rows:
        found.chunks.append(Chunk(_NO_DATA, start, table, rows))
    if reached == end:
        return found
    try:
        for chunk in walk_chunks(file, start=reached, end=end, check=True):
            found.chunks.append(Chunk(_NO_DATA, chunk.file_position, chunk.table[:, : chunk.rows].copy(), chunk.rows))
            found.reached = int(chunk.table[t.POSITION, chunk.rows - 1] + chunk.table[t.SIZE, chunk.rows - 1])
    except FormatError as error:
        found.problem = error.with_traceback(None)
    return found


def _check_fast(file: FolderFile, start: int, end: int) -> tuple[t.Table, int, int]:
    """Sound batches from `start` on: their table, how many, and where they end; stops at whatever is not plain."""
    table, rows, reached = t.new_table(_FIRST_ROWS), 0, start
    descriptor, address = file.descriptor(), pread_address()
    if descriptor is None or not address:
        return table, rows, reached
    buffer = np.empty(_READ_BYTES, np.uint8)
    status = headers.TABLE_FULL
    while status == headers.TABLE_FULL:
        rows, reached, status = read_checked(address, descriptor, reached, end, buffer, table, rows)
        if status == headers.TABLE_FULL:
            table = _grown(table, rows)
    return table, int(rows), int(reached)


def _grown(table: t.Table, rows: int) -> t.Table:
    grown = t.new_table(2 * table.shape[1] + 8)
    grown[:, :rows] = table[:, :rows]
    return grown
