"""The five codecs in exactly the framings that Kafka writes and accepts.

Reading: `block_functions` gives the kernels the addresses of the libraries' own C functions; where a library does not
    show one, a Python callback of the same shape stands in, and nothing else changes. Writing: one function per
    codec.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import struct
import zlib
from collections.abc import Callable
from typing import Any

import lz4.block
import numpy as np
import snappy
import zstandard
from numpy.typing import NDArray

from kseg.errors import OptionError
from kseg.native.codecs import GZIP, LZ4, ZSTD, xxhash32
from kseg.native.memory import as_array
from kseg.native.snappy import BAD_BLOCK, NO_ROOM
from kseg.types import Codec

LZ4_BLOCK = 64 * 1024
XERIAL_BLOCK = 32 * 1024
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}  # Kafka's compression.*.level settings

_BlockFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
_ZstdFunction = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t
)


def _deliver(result: bytes, target: int, capacity: int) -> int:
    if len(result) > capacity:
        return NO_ROOM
    ctypes.memmove(target, result, len(result))
    return len(result)


def _gunzip(source: int, target: int, size: int, capacity: int) -> int:
    """All members of a gzip stream; what follows the last one is ignored, as Java's GZIPInputStream ignores it."""
    rest = ctypes.string_at(source, size)
    result = b""
    while True:
        member = zlib.decompressobj(31)
        try:
            result += member.decompress(rest, capacity - len(result) + 1)
        except zlib.error:
            return BAD_BLOCK
        if len(result) > capacity:
            return NO_ROOM
        if not member.eof:
            return BAD_BLOCK
        rest = member.unused_data
        if rest[:3] != b"\x1f\x8b\x08":
            return _deliver(result, target, capacity)


def _unlz4(source: int, target: int, size: int, capacity: int) -> int:
    try:
        return _deliver(
            lz4.block.decompress(ctypes.string_at(source, size), uncompressed_size=capacity), target, capacity
        )
    except lz4.block.LZ4BlockError:
        return BAD_BLOCK


def _unzstd(state: int, target: int, capacity: int, source: int, size: int) -> int:
    reader = zstandard.ZstdDecompressor().stream_reader(ctypes.string_at(source, size), read_across_frames=True)
    try:
        result = reader.read(capacity + 1)
    except zstandard.ZstdError:
        return BAD_BLOCK
    return _deliver(result, target, capacity) if len(result) <= capacity else -70


def _find(module: str, symbol: str) -> Any:
    """A C function out of the shared object behind an extension module, or None where it does not show it."""
    try:
        spec = importlib.util.find_spec(module)  # not imported: zstandard's needs cffi, its C functions do not
        return getattr(ctypes.CDLL(spec.origin), symbol) if spec and spec.origin else None
    except (ImportError, OSError, AttributeError):
        return None


_CALLBACKS = {GZIP: _BlockFunction(_gunzip), LZ4: _BlockFunction(_unlz4), ZSTD: _ZstdFunction(_unzstd)}


class BlockFunctions:
    """Addresses for `native.codecs.fill_payloads`, with a zstd context of its own: one object per thread."""

    def __init__(self) -> None:
        lz4_function = _find("lz4.block._block", "LZ4_decompress_safe") or _CALLBACKS[LZ4]
        zstd_function = _find("zstandard._cffi", "ZSTD_decompressDCtx")
        self._create = _find("zstandard._cffi", "ZSTD_createDCtx")
        self._free = _find("zstandard._cffi", "ZSTD_freeDCtx")
        context = 0
        if zstd_function is not None and self._create is not None and self._free is not None:
            self._create.restype = ctypes.c_void_p
            self._free.argtypes = [ctypes.c_void_p]
            context = self._create() or 0
        self.addresses: NDArray[np.int64] = np.zeros(5, np.int64)
        self.addresses[0] = context
        self.addresses[GZIP] = _address(_CALLBACKS[GZIP])
        self.addresses[LZ4] = _address(lz4_function)
        self.addresses[ZSTD] = _address(zstd_function if context else _CALLBACKS[ZSTD])

    def __del__(self) -> None:
        context = int(self.addresses[0]) if hasattr(self, "addresses") else 0
        if context:
            self._free(context)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _gzip(data: bytes, level: int | None) -> bytes:
    packer = zlib.compressobj(6 if level is None else level, zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    head = (
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # as the JDK (16 and later) writes it: no name, no time, OS unknown
    )
    return head + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _snappy(data: bytes, level: int | None) -> bytes:
    parts = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK):
        block = snappy.compress(data[start : start + XERIAL_BLOCK])
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _lz4(data: bytes, level: int | None) -> bytes:
    """A frame of independent 64 KiB blocks without checksums; level 9, Kafka's default, is the fast compressor."""
    mode = (
        {"mode": "default"} if level in (None, 9) else {"mode": "high_compression", "compression": min(level or 9, 12)}
    )
    parts = [b"\x04\x22\x4d\x18\x60\x40\x82"]
    for start in range(0, len(data), LZ4_BLOCK):
        raw = data[start : start + LZ4_BLOCK]
        block = lz4.block.compress(raw, store_size=False, **mode)
        stored = len(block) >= len(raw)
        parts += (struct.pack("<I", len(raw) | 0x80000000 if stored else len(block)), raw if stored else block)
    return b"".join([*parts, b"\x00\x00\x00\x00"])


@functools.lru_cache(maxsize=8)
def _zstd_packer(level: int | None) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False)


def _zstd(data: bytes, level: int | None) -> bytes:
    return _zstd_packer(level).compress(data)


_PACKERS: dict[Codec, Callable[[bytes, int | None], bytes]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}


def check_level(codec: Codec, level: int | None) -> None:
    """Refuse a level that Kafka's own settings would refuse."""
    if level is None:
        return
    if codec not in LEVELS:
        raise OptionError(f"codec {codec.label} has no levels, got {level}")
    low, high = LEVELS[codec]
    if not low <= level <= high:
        raise OptionError(f"level {level} of codec {codec.label} is not in {low} to {high}")


def compress(codec: Codec, data: Any, level: int | None = None) -> bytes:
    """Compress a batch's records in Kafka's framing."""
    return _PACKERS[codec](bytes(data), level)


def block_checksum(data: bytes) -> int:
    """xxHash32 of a block, as LZ4 frames carry it."""
    return int(xxhash32(as_array(data), 0, len(data)))
