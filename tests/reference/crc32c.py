"""CRC-32C and CRC-32, bit by bit."""

from __future__ import annotations

CASTAGNOLI = 0x82F63B78
IEEE = 0xEDB88320


def _crc(data: bytes, polynomial: int, start: int) -> int:
    crc = start ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (polynomial if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def crc32c(data: bytes, start: int = 0) -> int:
    """The checksum of magic 2 batches; `start` is the checksum of what came before."""
    return _crc(data, CASTAGNOLI, start)


def crc32(data: bytes, start: int = 0) -> int:
    """The checksum of magic 0 and 1 messages (the one of zlib)."""
    return _crc(data, IEEE, start)
