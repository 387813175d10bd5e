"""Where the chunks of a log are, before and after they were compressed and encrypted.

A log is cut into chunks of one size, the last one shorter. Chunks that keep one size when they are transformed have a
fixed index: two sizes say it all. Compressed ones have a variable index, which the manifest holds as base64 of one zstd
frame around

| field           | bytes    |                                                                     |
|-----------------|----------|---------------------------------------------------------------------|
| count           | 4        | of chunks; nothing follows where it is 0                            |
| base            | 4        | the least of all sizes but the last; left out where count is 1      |
| bytes per value | 1        | 1 to 4; left out where count is 1                                   |
| values          | each n   | size less base, of all but the last                                 |
| last            | 4        | the last size                                                       |

All numbers are big-endian.
"""

from __future__ import annotations

import abc
import base64
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import zstandard
from numpy.typing import NDArray

from kseg.errors import CorruptRecordError, OptionError

MAX_ENCODED_BYTES: Final = 10 << 20


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """One chunk: its bytes in the log, and those in the object."""

    number: int
    position: int
    size: int
    stored_position: int
    stored_size: int


class _Chunks(abc.ABC):
    """What both kinds of index can tell."""

    original_chunk_size: int
    original_file_size: int

    @abc.abstractmethod
    def stored_place(self, number: int) -> tuple[int, int]:
        """Position and size of a chunk in the object."""

    @property
    def count(self) -> int:
        """How many chunks."""
        return -(-self.original_file_size // self.original_chunk_size)

    def chunk(self, number: int) -> ChunkPlace:
        """The chunk of a number, from 0 on."""
        if not 0 <= number < self.count:
            raise IndexError(number)
        position = number * self.original_chunk_size
        size = min(self.original_chunk_size, self.original_file_size - position)
        return ChunkPlace(number, position, size, *self.stored_place(number))

    def __iter__(self) -> Iterator[ChunkPlace]:
        return (self.chunk(number) for number in range(self.count))

    def at(self, position: int) -> int:
        """The number of the chunk that holds a byte of the log."""
        return position // self.original_chunk_size

    @property
    def stored_size(self) -> int:
        """Bytes of the object."""
        return sum(self.stored_place(self.count - 1)) if self.count else 0


@dataclass(frozen=True)
class FixedChunkIndex(_Chunks):
    """Chunks that all have one size, the last excepted."""

    original_chunk_size: int
    original_file_size: int
    transformed_chunk_size: int
    final_transformed_chunk_size: int

    def stored_place(self, number: int) -> tuple[int, int]:
        """Position and size of a chunk in the object."""
        is_final = number == self.count - 1
        return (
            number * self.transformed_chunk_size,
            self.final_transformed_chunk_size if is_final else self.transformed_chunk_size,
        )

    def to_fields(self) -> dict[str, Any]:
        """As the manifest holds it."""
        return {
            "type": "fixed",
            "originalChunkSize": self.original_chunk_size,
            "originalFileSize": self.original_file_size,
            "transformedChunkSize": self.transformed_chunk_size,
            "finalTransformedChunkSize": self.final_transformed_chunk_size,
        }


@dataclass(frozen=True)
class VariableChunkIndex(_Chunks):
    """Chunks of any size, each listed."""

    original_chunk_size: int
    original_file_size: int
    transformed_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.transformed_sizes) != self.count:
            raise CorruptRecordError(f"{len(self.transformed_sizes)} chunks are listed, the log has {self.count}")

    @classmethod
    def parse(cls, original_chunk_size: int, original_file_size: int, encoded: bytes) -> VariableChunkIndex:
        """Read the frame that the manifest holds.

        Raises:
            CorruptRecordError: Not such a frame, or not as many chunks as the log has.
        """
        return cls(original_chunk_size, original_file_size, decode_sizes(encoded))

    @functools.cached_property
    def _positions(self) -> NDArray[np.int64]:
        return np.cumsum([0, *self.transformed_sizes], dtype=np.int64)

    def stored_place(self, number: int) -> tuple[int, int]:
        """Position and size of a chunk in the object."""
        return int(self._positions[number]), self.transformed_sizes[number]

    def to_fields(self) -> dict[str, Any]:
        """As the manifest holds it."""
        return {
            "type": "variable",
            "originalChunkSize": self.original_chunk_size,
            "originalFileSize": self.original_file_size,
            "transformedChunks": base64.b64encode(encode_sizes(self.transformed_sizes)).decode("ascii"),
        }


ChunkIndex: TypeAlias = FixedChunkIndex | VariableChunkIndex


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Sizes of chunks as one zstd frame."""
    if any(not 0 <= size < 2**31 for size in sizes):
        raise OptionError("sizes of chunks must be from 0 to 2147483647")
    raw = len(sizes).to_bytes(4, "big")
    if len(sizes) > 1:
        base, most = min(sizes[:-1]), max(sizes[:-1])
        width = max(((most - base).bit_length() + 7) // 8, 1)
        deltas = np.array(sizes[:-1], ">u4") - np.uint32(base)
        values = deltas.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 4 - width :].tobytes()
        raw += base.to_bytes(4, "big") + bytes([width]) + values
    if sizes:
        raw += sizes[-1].to_bytes(4, "big")
    return zstandard.ZstdCompressor(write_content_size=True).compress(raw)


def decode_sizes(encoded: bytes) -> tuple[int, ...]:
    """Sizes of chunks from their zstd frame.

    Raises:
        CorruptRecordError: Not such a frame.
    """
    raw = _decompress(encoded)
    count = int.from_bytes(raw[:4], "big", signed=True)
    if len(raw) < 4 or count < 0:
        raise CorruptRecordError("the list of chunks is cut short")
    if count < 2:
        wanted, deltas, base = 4 + 4 * count, np.zeros(0, np.int64), 0
    else:
        base, width = int.from_bytes(raw[4:8], "big", signed=True), raw[8] if len(raw) > 8 else 0
        wanted = 9 + (count - 1) * width + 4
        if base < 0 or not 1 <= width <= 4 or len(raw) != wanted:
            raise CorruptRecordError("the list of chunks contradicts itself")
        digits = np.frombuffer(raw, np.uint8, (count - 1) * width, 9).reshape(-1, width).astype(np.int64)
        deltas = digits @ (1 << (8 * np.arange(width - 1, -1, -1, dtype=np.int64)))
    if len(raw) != wanted:
        raise CorruptRecordError("the list of chunks contradicts itself")
    sizes = [*(deltas + base).tolist(), *([int.from_bytes(raw[-4:], "big", signed=True)] if count else [])]
    if any(not 0 <= size < 2**31 for size in sizes):
        raise CorruptRecordError("the list of chunks has sizes that no chunk can have")
    return tuple(sizes)


def _decompress(encoded: bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(encoded)
        if not 0 <= size <= MAX_ENCODED_BYTES:
            raise CorruptRecordError(f"the list of chunks says that it has {size} bytes")
        return zstandard.ZstdDecompressor().decompress(encoded, max_output_size=max(size, 1))
    except zstandard.ZstdError:
        raise CorruptRecordError("the list of chunks is no zstd frame") from None
