"""The limit of a decoder: read the file, check each CRC, decompress, and copy what came out once.

Everything else that a decoder does (walking headers, parsing records, laying out columns) is left out: where batches
lie and how large they get is found before the clock starts. Each step uses the plain C library through its usual Python
binding; with one record a batch that would measure the calls, so `do_bare_steps` does the same steps by kernels, which
call the C functions themselves, in pieces that stay in the processor's cache. Both copy to about as many bytes, one
after the other, as a record batch has.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cramjam
import crc32c
import deflate
import lz4.frame
import numpy as np
import zstandard

from benchmarks.data import LOG_NAME
from kseg.format.codec import BlockFunctions
from kseg.native import codecs, headers
from kseg.native import table as t
from kseg.types import Codec

CHUNK = 4 << 20
BARE_CHUNK = 256 << 10
XERIAL_HEADER = 16

Decompress = Callable[[memoryview, int, Any], Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """Batches of a file: position, size and decompressed size of each, in chunks that end at batch ends."""

    chunks: list[list[tuple[int, int, int]]]
    codec: Codec
    records: int


def _unxerial(payload: memoryview, size: int, target: np.ndarray[Any, Any]) -> memoryview:
    at, position = 0, XERIAL_HEADER
    while position < len(payload):
        end = position + 4 + int.from_bytes(payload[position : position + 4], "big")
        at += cramjam.snappy.decompress_raw_into(payload[position + 4 : end], target[at:].data)
        position = end
    return target[:at].data


def decompressor(codec: Codec) -> Decompress:
    """Decompress a payload whose decompressed size is known; the scratch array may be used for the result."""
    if codec is Codec.GZIP:
        return lambda payload, size, scratch: deflate.gzip_decompress(payload, size)
    if codec is Codec.SNAPPY:
        return _unxerial
    if codec is Codec.LZ4:
        return lambda payload, size, scratch: lz4.frame.decompress(payload)
    if codec is Codec.ZSTD:
        zstd = zstandard.ZstdDecompressor()
        return lambda payload, size, scratch: zstd.decompress(payload, max_output_size=size)
    return lambda payload, size, scratch: payload


def _walk(folder: Path) -> tuple[t.Bytes, t.Table, int]:
    """The bytes of a log's only segment, the table of its batches, and how many there are."""
    data = np.fromfile(folder / LOG_NAME, np.uint8)
    table = t.new_table(data.size // t.HEADER_SIZE)
    rows, _, _ = headers.fill_headers(data, 0, data.size, 0, table, 0)
    return data, table, int(rows)


def read_layout(folder: Path) -> Layout:
    """Find the batches of a log's only segment."""
    data, table, rows = _walk(folder)
    codec = Codec(int(table[t.ATTRIBUTES, 0]) & t.CODEC_MASK)
    decompress = decompressor(codec)
    scratch = np.empty(64 << 20, np.uint8)
    chunks: list[list[tuple[int, int, int]]] = [[]]
    for position, size in table[[t.POSITION, t.SIZE], :rows].T.tolist():
        if chunks[-1] and position + size - chunks[-1][0][0] > CHUNK:
            chunks.append([])
        payload = data[position + t.HEADER_SIZE : position + size].data
        chunks[-1].append((position, size, _raw_size(decompress, codec, payload, scratch)))
    return Layout(chunks, codec, int(table[t.COUNT, :rows].sum()))


def _raw_size(decompress: Decompress, codec: Codec, payload: memoryview, scratch: np.ndarray[Any, Any]) -> int:
    return len(decompress(payload, 2 << 20, scratch)) if codec is not Codec.NONE else len(payload)


def reach_limit(folder: Path, layout: Layout) -> Callable[[], int]:
    """A run of the limit over a log; its buffers are warm from the second run on."""
    decompress = decompressor(layout.codec)
    largest = max(chunk[-1][0] + chunk[-1][1] - chunk[0][0] for chunk in layout.chunks)
    room = max(sum(raw for _, _, raw in chunk) for chunk in layout.chunks)
    buffer = np.empty(largest, np.uint8)
    scratch = np.empty(max(raw for chunk in layout.chunks for _, _, raw in chunk), np.uint8)
    target = np.empty(room, np.uint8)

    def run() -> int:
        descriptor = os.open(folder / LOG_NAME, os.O_RDONLY)
        try:
            for chunk in layout.chunks:
                begin = chunk[0][0]
                view = buffer[: chunk[-1][0] + chunk[-1][1] - begin].data
                os.preadv(descriptor, [view], begin)
                _finish_chunk(chunk, view, decompress, scratch, target)
        finally:
            os.close(descriptor)
        return layout.records

    return run


def _finish_chunk(
    chunk: list[tuple[int, int, int]], view: memoryview, decompress: Decompress, scratch: Any, target: Any
) -> None:
    begin = chunk[0][0]
    at = 0
    for position, size, raw in chunk:
        start = position - begin
        stored = int.from_bytes(view[start + 17 : start + t.CRC_START], "big")
        if crc32c.crc32c(view[start + t.CRC_START : start + size]) != stored:
            raise ValueError(f"bad CRC at {position}")
        got = decompress(view[start + t.HEADER_SIZE : start + size], raw, scratch)
        target[at : at + raw] = np.frombuffer(got, np.uint8)
        at += raw


def do_bare_steps(folder: Path, records: int) -> Callable[[], int]:
    """A run of the same steps by kernels, for batches that are too small for a Python call each."""
    data, table, rows = _walk(folder)
    ends = table[t.POSITION, :rows] + table[t.SIZE, :rows]
    steps = [0, *np.unique(np.searchsorted(ends, np.arange(BARE_CHUNK, data.size, BARE_CHUNK))).tolist(), rows]
    functions = BlockFunctions()
    buffer, arena = np.empty(16 * BARE_CHUNK, np.uint8), np.empty(16 * BARE_CHUNK, np.uint8)
    target = np.empty(CHUNK + arena.size, np.uint8)  # what is given away is not overwritten by the next step
    skip, froms, tos = np.zeros(rows, np.bool_), np.zeros(rows, np.int64), np.zeros(rows, np.int64)

    def run() -> int:
        at = 0
        with (folder / LOG_NAME).open("rb", buffering=0) as file:
            for row, stop in itertools.pairwise(steps):
                begin = int(table[t.POSITION, row])
                size = int(ends[stop - 1]) - begin
                file.readinto(buffer[:size].data)
                bad, _ = headers.scan_checksums(buffer, begin, table, row, stop - row)
                made, status = codecs.fill_payloads(
                    buffer, begin, table, row, stop, skip, arena, arena.size, functions.addresses, froms, tos
                )
                if bad >= 0 or made < stop or status < 0:
                    raise ValueError(f"bad batch in rows {row} to {stop}")
                in_arena = int(tos[stop - 1]) - buffer.size
                source, size = (arena, in_arena) if in_arena > 0 else (buffer, size)
                target[at : at + size] = source[:size]
                at = at + size if at + size < CHUNK else 0
        return records

    return run
