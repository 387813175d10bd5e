"""Kafka's compression framings, put together and taken apart by hand; only the inner coders are libraries.

Each codec has a writer in the form that Kafka writes and a reader that accepts what Kafka's readers accept.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import lz4.block
import snappy
import zstandard

from tests.reference.errors import GreyError, RejectedError
from tests.reference.xxh32 import xxh32

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
XERIAL_CHUNK = 32 * 1024
XERIAL_MAX_CHUNK = 512 * 1024 * 1024
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_STORED = 1 << 31
LIMIT = 64 * 1024 * 1024


def gzip_compress(data: bytes, level: int = 6) -> bytes:
    """One member, no name, no time, the operating system byte of newer JDKs."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    head = bytes.fromhex("1f8b08000000000000ff")
    return head + body + zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")


def gzip_decompress(data: bytes, limit: int = LIMIT) -> bytes:
    """Members one after another; what is no member behind the first one is ignored, as java.util.zip does."""
    out = bytearray()
    rest = data
    while rest is data or rest[:3] == b"\x1f\x8b\x08":
        if len(rest) > 3 and rest[3] & 0x02 and rest[3] & 0xE0:
            raise GreyError("gzip: reserved flags, which Java does not look at, under a checksum of the header")
        plain = rest[:3] + bytes([rest[3] & 0x1F]) + rest[4:] if len(rest) > 3 else rest
        member = zlib.decompressobj(31)
        try:
            out += member.decompress(plain, limit + 1 - len(out))
        except zlib.error as error:
            raise RejectedError(f"gzip: {error}") from error
        if len(out) > limit:
            raise RejectedError(f"more than {limit} bytes")
        if not member.eof:
            raise (RejectedError if rest is data or len(rest) > 18 else GreyError)("gzip: ends early")
        rest = member.unused_data
    return bytes(out)


def snappy_compress(data: bytes) -> bytes:
    """A xerial stream of chunks of 32 KiB."""
    out = XERIAL_HEADER
    for start in range(0, len(data), XERIAL_CHUNK):
        chunk = snappy_raw(data[start : start + XERIAL_CHUNK])
        out += len(chunk).to_bytes(4, "big") + chunk
    return out


def snappy_raw(data: bytes) -> bytes:
    """One raw block without any framing, as librdkafka writes it."""
    return bytes(snappy.compress(data))


def _snappy_block(data: bytes, limit: int) -> bytes:
    size, shift = 0, 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > limit:
        raise RejectedError(f"more than {limit} bytes")
    try:
        return bytes(snappy.uncompress(data))
    except Exception as error:  # the binding has several error types, none of them public
        raise RejectedError(f"snappy: {error}") from error


def snappy_decompress(data: bytes, limit: int = LIMIT) -> bytes:
    """A xerial stream, several of them, or one raw block."""
    if not data:
        raise RejectedError("snappy: empty")
    if len(data) < len(XERIAL_HEADER) or not data.startswith(XERIAL_MAGIC):
        return _snappy_block(data, limit)
    out = bytearray()
    position = len(XERIAL_HEADER)
    while len(data) - position >= 4:
        if data[position : position + 4] == XERIAL_MAGIC[:4]:
            header = data[position : position + len(XERIAL_HEADER)]
            if len(header) < len(XERIAL_HEADER):
                raise RejectedError("snappy: torn header")
            if header.startswith(XERIAL_MAGIC) and int.from_bytes(header[8:12], "big", signed=True) < 1:
                raise RejectedError("snappy: version")
            position += len(XERIAL_HEADER)
            continue
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if not 0 <= size <= XERIAL_MAX_CHUNK or size > len(data) - position:
            raise RejectedError(f"snappy: chunk of {size} bytes where {len(data) - position} are left")
        out += _snappy_block(data[position : position + size], limit - len(out))
        position += size
    return bytes(out)


def lz4_header(flags: int = 0x60, block: int = 0x40, *, content_size: int | None = None, magic: int = 2) -> bytes:
    """The head of a frame; before magic 1 its checksum wrongly covered the frame's magic number too."""
    descriptor = bytes([flags, block]) + (b"" if content_size is None else content_size.to_bytes(8, "little"))
    checksum = xxh32(LZ4_MAGIC + descriptor if magic == 0 else descriptor) >> 8 & 0xFF
    return LZ4_MAGIC + descriptor + bytes([checksum])


def lz4_block(data: bytes, *, checksum: bool = False) -> bytes:
    """One block: compressed, or stored where that is not smaller."""
    packed = lz4.block.compress(data, store_size=False)
    stored = len(packed) >= len(data)
    body = data if stored else packed
    out = (len(body) | (LZ4_STORED if stored else 0)).to_bytes(4, "little") + body
    return out + (xxh32(body).to_bytes(4, "little") if checksum else b"")


def lz4_compress(data: bytes, magic: int = 2) -> bytes:
    """A frame of independent blocks of 64 KiB without checksums."""
    blocks = [lz4_block(data[start : start + 65536]) for start in range(0, len(data), 65536)]
    return lz4_header(magic=magic) + b"".join(blocks) + bytes(4)


def _lz4_descriptor(data: bytes, magic: int) -> tuple[int, int, int]:
    """Check the head of a frame; gives its flags, its block size and the position of the first block."""
    if len(data) < 7 or data[:4] != LZ4_MAGIC:
        raise RejectedError("lz4: no frame")
    flags, block = data[4], data[5]
    if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20:
        raise RejectedError(f"lz4: flags {flags:02x}")
    if block & 0x8F or block >> 4 < 4:
        raise RejectedError(f"lz4: block descriptor {block:02x}")
    position = 14 if flags & 0x08 else 6
    if position >= len(data):
        raise RejectedError("lz4: torn head")
    if magic > 0 and xxh32(data[4:position]) >> 8 & 0xFF != data[position]:
        raise RejectedError("lz4: frame descriptor corrupted")
    return flags, 1 << (8 + 2 * (block >> 4)), position + 1


def lz4_decompress(data: bytes, limit: int = LIMIT, magic: int = 2) -> bytes:
    """One frame; the content checksum is skipped, and so is all behind the end mark."""
    flags, largest, position = _lz4_descriptor(data, magic)
    out = bytearray()
    while True:
        if len(data) - position < 4:
            raise RejectedError("lz4: ends early")
        word = int.from_bytes(data[position : position + 4], "little")
        size = word & ~LZ4_STORED
        position += 4
        if size == 0:
            if flags & 0x04 and len(data) - position < 4:
                raise RejectedError("lz4: no content checksum")
            return bytes(out)
        if size > largest or size > len(data) - position:
            raise RejectedError(f"lz4: block of {size} bytes")
        body = data[position : position + size]
        position += size
        try:
            plain = body if word & LZ4_STORED else lz4.block.decompress(body, uncompressed_size=largest)
        except lz4.block.LZ4BlockError as error:
            raise RejectedError(f"lz4: {error}") from error
        if not plain:
            raise GreyError("lz4: a block of nothing, which Kafka stumbles over")
        out += plain
        if len(out) > limit:
            raise RejectedError(f"more than {limit} bytes")
        if flags & 0x10:
            if data[position : position + 4] != xxh32(body).to_bytes(4, "little"):
                raise RejectedError("lz4: block checksum")
            position += 4


def zstd_compress(data: bytes, level: int = 3) -> bytes:
    """A frame without content size and checksum, as a stream writes it."""
    packer = zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=False).compressobj()
    return packer.compress(data) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + packer.flush()


def zstd_decompress(data: bytes, limit: int = LIMIT) -> bytes:
    """One frame after another."""
    out = bytearray()
    rest = data
    while True:
        reader = zstandard.ZstdDecompressor().decompressobj()
        try:
            out += reader.decompress(rest)
        except zstandard.ZstdError as error:
            raise RejectedError(f"zstd: {error}") from error
        if len(out) > limit:
            raise RejectedError(f"more than {limit} bytes")
        if not reader.eof:
            raise (RejectedError if rest is data else GreyError)("zstd: ends early")
        rest = reader.unused_data
        if not rest:
            return bytes(out)


_COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: gzip_compress,
    SNAPPY: snappy_compress,
    ZSTD: zstd_compress,
}
_DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: gzip_decompress,
    SNAPPY: snappy_decompress,
    ZSTD: zstd_decompress,
}


def compress(codec: int, data: bytes, magic: int = 2) -> bytes:
    """Compress as Kafka does."""
    return lz4_compress(data, magic) if codec == LZ4 else _COMPRESS[codec](data)


def decompress(codec: int, data: bytes, magic: int = 2) -> bytes:
    """Decompress what Kafka would accept."""
    if codec > ZSTD:
        raise RejectedError(f"unknown codec {codec}")
    return lz4_decompress(data, magic=magic) if codec == LZ4 else _DECOMPRESS[codec](data)
