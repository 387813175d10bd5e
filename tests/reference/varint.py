"""Zigzag varints by Kafka's rules (ByteUtils): at most 5 bytes for a varint and 10 for a varlong.

Only a continuation bit on the last allowed byte is an error; surplus high bits of that byte are dropped.
"""

from __future__ import annotations

from tests.reference.errors import RejectedError


def _encode(value: int, bits: int) -> bytes:
    rest = ((value << 1) ^ (value >> (bits - 1))) & ((1 << bits) - 1)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _decode(data: bytes, position: int, end: int, bits: int) -> tuple[int, int]:
    longest = 5 if bits == 32 else 10
    raw = 0
    for index in range(longest):
        if position + index >= end:
            raise RejectedError("varint runs past the end")
        byte = data[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            raw &= (1 << bits) - 1
            return (raw >> 1) ^ -(raw & 1), position + index + 1
    raise RejectedError(f"varint of more than {longest} bytes")


def encode_varint(value: int) -> bytes:
    """Encode a 32-bit number."""
    return _encode(value, 32)


def encode_varlong(value: int) -> bytes:
    """Encode a 64-bit number."""
    return _encode(value, 64)


def decode_varint(data: bytes, position: int = 0, end: int | None = None) -> tuple[int, int]:
    """Decode a 32-bit number; gives it and the position behind it."""
    return _decode(data, position, len(data) if end is None else end, 32)


def decode_varlong(data: bytes, position: int = 0, end: int | None = None) -> tuple[int, int]:
    """Decode a 64-bit number; gives it and the position behind it."""
    return _decode(data, position, len(data) if end is None else end, 64)
