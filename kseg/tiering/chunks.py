"""What is done to a segment's bytes on the way to the tier and back: cut into chunks, compressed, encrypted.

On the way there each chunk is compressed (one zstd frame that states its content's size), then encrypted; on the way
back decrypted, then decompressed. Indexes are never compressed; each is encrypted as one unit, and an empty one stays
empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import zstandard

from kseg.errors import CorruptRecordError, OptionError, TruncatedError
from kseg.storage import RandomFile
from kseg.tiering.chunk_index import ChunkIndex, ChunkPlace, FixedChunkIndex, VariableChunkIndex
from kseg.tiering.crypto import OVERHEAD, SegmentCipher
from kseg.tiering.manifest import SegmentIndexes, Slice

MAX_CHUNK_SIZE: Final = 1_073_741_823

ChunkOrError = bytes | memoryview | CorruptRecordError


@dataclass(frozen=True, slots=True)
class Transform:
    """How a segment's chunks are stored."""

    compression: bool = False
    cipher: SegmentCipher | None = None

    def store_chunk(self, data: bytes | memoryview) -> bytes:
        """A chunk's bytes as they are stored."""
        stored = zstandard.ZstdCompressor(write_content_size=True).compress(data) if self.compression else bytes(data)
        return stored if self.cipher is None else self.cipher.encrypt(stored)

    def restore_chunk(self, stored: bytes | memoryview, size: int) -> bytes | memoryview:
        """A chunk's own bytes, of which there must be `size`.

        Raises:
            CorruptRecordError: They cannot be had of what is stored.
        """
        data = stored if self.cipher is None else self.cipher.decrypt(stored)
        if self.compression:
            data = _decompress(data, size)
        if len(data) != size:
            raise CorruptRecordError(f"a chunk has {len(data)} bytes, the manifest says {size}")
        return data

    def store_index(self, data: bytes) -> bytes:
        """An index's bytes as they are stored."""
        return self.cipher.encrypt(data) if self.cipher is not None and data else data

    def restore_index(self, stored: bytes | memoryview) -> bytes:
        """An index's own bytes."""
        return self.cipher.decrypt(stored) if self.cipher is not None and len(stored) else bytes(stored)

    def index_of(self, chunk_size: int, file_size: int, stored_sizes: Sequence[int]) -> ChunkIndex:
        """The chunk index of a log of `file_size` bytes whose chunks were stored in `stored_sizes` bytes."""
        if self.compression:
            return VariableChunkIndex(chunk_size, file_size, tuple(stored_sizes))
        whole = chunk_size + (OVERHEAD if self.cipher is not None else 0)
        return FixedChunkIndex(chunk_size, file_size, whole, stored_sizes[-1] if stored_sizes else 0)


def _decompress(data: bytes | memoryview, size: int) -> bytes:
    try:
        stated = zstandard.frame_content_size(data)
        if stated != size:
            raise CorruptRecordError(f"a compressed chunk says that it has {stated} bytes, the manifest says {size}")
        # with a size in the frame the output is allocated as the frame says: it was checked above
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1))
    except zstandard.ZstdError as error:
        raise CorruptRecordError(f"a compressed chunk cannot be read: {error}") from None


def iter_chunks(pieces: Iterable[bytes | bytearray | memoryview], chunk_size: int, size: int) -> Iterator[memoryview]:
    """The `size` bytes that come in pieces, cut into chunks; all in the same memory, one after the other."""
    if not 1 <= chunk_size <= MAX_CHUNK_SIZE:
        raise OptionError(f"the chunk size must be from 1 to {MAX_CHUNK_SIZE}, got {chunk_size}")
    room = np.empty(max(min(chunk_size, size), 1), np.uint8).data
    held = 0
    for piece in pieces:
        rest = memoryview(piece)
        while rest.nbytes:
            taken = min(len(room) - held, rest.nbytes)
            room[held : held + taken] = rest[:taken]
            rest, held = rest[taken:], held + taken
            if held == len(room):
                yield room
                held = 0
    if held:
        yield room[:held]


def store_chunks(chunks: Iterable[bytes | memoryview], transform: Transform) -> Iterator[bytes]:
    """Chunks as they are stored."""
    return (transform.store_chunk(chunk) for chunk in chunks)


def store_indexes(
    transform: Transform,
    *,
    offset: bytes,
    timestamp: bytes,
    producer_snapshot: bytes,
    leader_epoch: bytes,
    transaction: bytes | None = None,
) -> tuple[bytes, SegmentIndexes]:
    """The `.indexes` object and where each index is in it."""
    parts = [offset, timestamp, producer_snapshot, leader_epoch, *([] if transaction is None else [transaction])]
    stored = [transform.store_index(part) for part in parts]
    slices, position = [], 0
    for part in stored:
        slices.append(Slice(position, len(part)))
        position += len(part)
    return b"".join(stored), SegmentIndexes(*slices)


def read_chunk(file: RandomFile, place: ChunkPlace, transform: Transform) -> bytes | memoryview:
    """Read one chunk of a `.log` object.

    Raises:
        TruncatedError: The object is too short.
        CorruptRecordError: The chunk was changed.
    """
    chunk = read_chunks(file, [place], transform)[0]
    if isinstance(chunk, CorruptRecordError):
        raise chunk
    return chunk


def read_chunks(file: RandomFile, places: Sequence[ChunkPlace], transform: Transform) -> list[ChunkOrError]:
    """Read chunks that follow one another, in one ranged read of the object; one that was changed is an error there."""
    first, last = places[0], places[-1]
    begin, end = first.stored_position, last.stored_position + last.stored_size
    view = np.empty(max(min(end, file.size) - begin, 0), np.uint8).data
    got = file.read_into(begin, view)
    if begin + got < end:
        raise TruncatedError(
            f"the object ends at byte {begin + got}, the manifest says that a chunk ends at {end}",
            path=file.path,
            position=begin,
        )
    chunks: list[ChunkOrError] = []
    for place in places:
        at = place.stored_position - begin
        try:
            chunks.append(transform.restore_chunk(view[at : at + place.stored_size], place.size))
        except CorruptRecordError as error:
            chunks.append(error.with_context(path=file.path, position=place.stored_position).with_traceback(None))
    return chunks
