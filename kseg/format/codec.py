"""The five codecs in exactly the framings that Kafka writes and accepts.

Reading: `BlockFunctions` gives the kernels the addresses of the libraries' own C functions; where a library does not
show one, a Python callback of the same shape stands in, and nothing else changes. Writing works the same way, with
`PackFunctions`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import struct
import threading
import zlib
from typing import Any

import cramjam
import lz4.block
import numpy as np
import zstandard
from numpy.typing import NDArray

from kseg.errors import OptionError
from kseg.native.codecs import FUNCTIONS, GZIP, GZIP_STATE, LZ4, SNAPPY, ZSTD, xxhash32
from kseg.native.compress import (
    BLOCK_SLACK,
    COMPRESSOR,
    LEVEL,
    PACK_FIELDS,
    SCRATCH_BYTES,
    pack_payload,
    packed_bound,
)
from kseg.native.deflate import DECOMPRESSOR, FLAGS_AT, HEADER_CHECKSUM, INFLATE
from kseg.native.memory import as_array
from kseg.native.snappy import BAD_BLOCK, NO_ROOM
from kseg.native.table import Bytes
from kseg.types import Codec

LZ4_DEFAULT_LEVEL = 9
LZ4_MAX_LEVEL = 12  # of the library; Kafka's levels go to 17
LZ4_FAST = 1  # the acceleration of LZ4_compress_fast
ZSTD_LEVEL = 100  # ZSTD_c_compressionLevel
ZSTD_CONTENT_SIZE = 200  # ZSTD_c_contentSizeFlag
GZIP_DEFAULT = -1  # in Kafka's compression.gzip.level as in zlib
LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}  # Kafka's compression.*.level settings

_BlockFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
_PackFunction = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int
)
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
    data = bytearray(ctypes.string_at(source, size))
    at = written = 0
    while True:
        if at + FLAGS_AT < size and not data[at + FLAGS_AT] & HEADER_CHECKSUM:
            data[at + FLAGS_AT] &= 0x1F  # bits without a meaning, which zlib refuses and Java does not look at
        member = zlib.decompressobj(31)
        step = 1024  # doubled, so that the bytes behind a member, which zlib hands back, are few for small members
        while not member.eof:
            if at >= size:
                return BAD_BLOCK
            try:
                part = member.decompress(data[at : at + step], capacity - written + 1)
            except zlib.error:
                return BAD_BLOCK
            if _deliver(part, target + written, capacity - written) < 0:
                return NO_ROOM
            written += len(part)
            at = min(at + step, size) - len(member.unused_data)
            step *= 2
        if data[at : at + 3] != b"\x1f\x8b\x08":
            return written


def _unsnappy(source: int, target: int, size: int, capacity: int) -> int:
    """A raw block, into `capacity` bytes, which it fills exactly."""
    try:
        return int(
            cramjam.snappy.decompress_raw_into(
                ctypes.string_at(source, size), (ctypes.c_char * capacity).from_address(target)
            )
        )
    except cramjam.DecompressionError:
        return BAD_BLOCK


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


@functools.cache
def _find(module: str, symbol: str) -> Any:
    """A C function out of the shared object behind an extension module, or None where it does not show it."""
    try:
        importlib.import_module(module.rpartition(".")[0])  # waits for other threads: half a module has no spec
        spec = importlib.util.find_spec(module)  # not imported: zstandard's needs cffi, its C functions do not
        return getattr(ctypes.CDLL(spec.origin), symbol) if spec and spec.origin else None
    except (ImportError, OSError, AttributeError):
        return None


_CALLBACKS = {
    GZIP: _BlockFunction(_gunzip),
    SNAPPY: _BlockFunction(_unsnappy),
    LZ4: _BlockFunction(_unlz4),
    ZSTD: _ZstdFunction(_unzstd),
}


class BlockFunctions:
    """Addresses for `native.codecs.fill_payloads`, with contexts of zstd and libdeflate: one object per thread."""

    def __init__(self) -> None:
        self._contexts: list[tuple[Any, int]] = []
        self.addresses: NDArray[np.int64] = np.zeros(FUNCTIONS, np.int64)
        for number, callback in _CALLBACKS.items():
            self.addresses[number] = _address(callback)
        lz4_function = _find("lz4.block._block", "LZ4_decompress_safe")
        if lz4_function is not None:
            self.addresses[LZ4] = _address(lz4_function)
        self._use("zstandard._cffi", ("ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx"), 0, ZSTD)
        self._use(
            "deflate._deflate",
            ("libdeflate_alloc_decompressor", "libdeflate_free_decompressor", "libdeflate_gzip_decompress_ex"),
            GZIP_STATE + DECOMPRESSOR,
            GZIP_STATE + INFLATE,
        )

    def _use(self, module: str, names: tuple[str, str, str], context_at: int, function_at: int) -> None:
        """Put a library's context and function to their places, where it shows what makes, frees and takes one."""
        create, free, function = (_find(module, name) for name in names)
        if create is None or free is None or function is None:
            return
        create.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        context = create()
        if context:
            self._contexts.append((free, context))
            self.addresses[context_at], self.addresses[function_at] = context, _address(function)

    def __del__(self) -> None:
        for free, context in getattr(self, "_contexts", ()):
            free(context)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _gzip(source: int, target: int, size: int, capacity: int, level: int) -> int:
    data = ctypes.string_at(source, size)
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # as the JDK writes it: no name, no time, OS unknown
    return _deliver(head + body + struct.pack("<II", zlib.crc32(data), size), target, capacity)


def _lz4(source: int, target: int, size: int, capacity: int, level: int) -> int:
    mode = {"mode": "fast"} if level == LZ4_FAST else {"mode": "high_compression", "compression": level}
    packed = lz4.block.compress(ctypes.string_at(source, size), store_size=False, **mode)
    return _deliver(packed, target, capacity) if len(packed) <= capacity else 0


def _zstd(state: int, target: int, capacity: int, source: int, size: int) -> int:
    level = ctypes.c_ssize_t(state or 0).value
    packer = zstandard.ZstdCompressor(
        level=level, write_content_size=False
    )  # without a context, its place has the level
    return _deliver(packer.compress(ctypes.string_at(source, size)), target, capacity)


_PACK_CALLBACKS = {
    GZIP: _PackFunction(_gzip),
    LZ4: _PackFunction(_lz4),
    ZSTD: _ZstdFunction(_zstd),
}


class PackFunctions:
    """Addresses, level and scratch for `native.compress`, with libdeflate's or zstd's state: one object per thread."""

    def __init__(self, codec: Codec, level: int | None = None, *, addresses: NDArray[np.int64] | None = None) -> None:
        """Fill `addresses`, where they are given."""
        check_level(codec, level)
        self._free: Any = None
        self._state = 0
        self.codec = codec
        self.scratch: Bytes = np.empty(SCRATCH_BYTES if codec is Codec.SNAPPY else 0, np.uint8)
        self.addresses: NDArray[np.int64] = np.zeros(PACK_FIELDS, np.int64) if addresses is None else addresses
        for number, callback in _PACK_CALLBACKS.items():
            self.addresses[number] = _address(callback)
        if codec is Codec.GZIP:
            self._use_libdeflate(6 if level is None or level == GZIP_DEFAULT else level)
        elif codec is Codec.LZ4:
            self._use_lz4(level)
        elif codec is Codec.ZSTD:
            self._use_zstd(3 if level is None else level)

    def _use_libdeflate(self, level: int) -> None:
        self.addresses[LEVEL] = level
        names = ("libdeflate_alloc_compressor", "libdeflate_free_compressor", "libdeflate_gzip_compress")
        create, free, function = (_find("deflate._deflate", name) for name in names)
        if create is None or free is None or function is None:
            return
        create.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        context = create(level)
        if context:
            self.addresses[COMPRESSOR], self.addresses[GZIP] = context, _address(function)
            self._state, self._free = context, free

    def _use_lz4(self, level: int | None) -> None:
        """Kafka's default level 9 stands for the fast compressor; any other is one of the high compressor's."""
        fast = level in (None, LZ4_DEFAULT_LEVEL)
        self.addresses[LEVEL] = LZ4_FAST if fast else min(level or 0, LZ4_MAX_LEVEL)
        found = _find("lz4.block._block", "LZ4_compress_fast" if fast else "LZ4_compress_HC")
        if found is not None:
            self.addresses[LZ4] = _address(found)

    def _use_zstd(self, level: int) -> None:
        names = ("ZSTD_createCCtx", "ZSTD_CCtx_setParameter", "ZSTD_freeCCtx", "ZSTD_compress2")
        create, configure, free, function = (_find("zstandard._cffi", name) for name in names)
        if create is None or configure is None or free is None or function is None:
            self.addresses[0] = level
            return
        create.restype = ctypes.c_void_p
        configure.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        free.argtypes = [ctypes.c_void_p]
        context = create()
        configure(context, ZSTD_LEVEL, level)
        configure(context, ZSTD_CONTENT_SIZE, 0)  # Kafka streams, and so does not know the size either
        self.addresses[0], self.addresses[ZSTD] = context, _address(function)
        self._state, self._free = context, free

    def __del__(self) -> None:
        if getattr(self, "_free", None) is not None:
            self._free(self._state)


class _Kept(threading.local):
    def __init__(self) -> None:
        self.functions: dict[Codec, PackFunctions] = {}


_kept = _Kept()


def pack_functions(codec: Codec, level: int | None = None) -> PackFunctions:
    """This thread's functions for a codec and level.

    Those at a codec's default level are kept: to set up a library's state takes as long as to compress many a batch.
    Others are not, since high levels take hundreds of megabytes.
    """
    if level is not None:
        return PackFunctions(codec, level)
    kept = _kept.functions.get(codec)
    if kept is None:
        kept = _kept.functions[codec] = PackFunctions(codec)
    return kept


def check_level(codec: Codec, level: int | None) -> None:
    """Refuse a level that Kafka's own settings would refuse."""
    if level is None or (codec is Codec.GZIP and level == GZIP_DEFAULT):
        return
    if codec not in LEVELS:
        raise OptionError(f"codec {codec.label} has no levels, got {level}")
    low, high = LEVELS[codec]
    if not isinstance(level, int | np.integer) or not low <= level <= high:
        raise OptionError(f"level {level!r} of codec {codec.label} is not in {low} to {high}")


def compress(codec: Codec, data: Any, level: int | None = None) -> bytes:
    """Compress a batch's records in Kafka's framing."""
    source = as_array(data)
    functions = pack_functions(codec, level)  # held until the call is over: its state may be freed with it
    out = np.empty(packed_bound(source.size), np.uint8)
    end = pack_payload(int(codec), source, 0, source.size, out, 0, functions.addresses, functions.scratch)
    return out[:end].tobytes()


def compressed_bound(size: int, batches: int) -> int:
    """Bytes that are enough for so many batches of `size` bytes in all, whatever the codec."""
    return int(packed_bound(size)) + BLOCK_SLACK * batches


def block_checksum(data: bytes) -> int:
    """xxHash32 of a block, as LZ4 frames carry it."""
    return int(xxhash32(as_array(data), 0, len(data)))
