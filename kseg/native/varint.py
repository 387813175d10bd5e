"""Zig-zag varints as Kafka writes them: at most 5 bytes for 32 bits, 10 for 64.

An encoding is only wrong when its last allowed byte has the continuation bit, or the buffer ends; surplus high bits
of the last byte are dropped, as Kafka drops them.
"""

from __future__ import annotations

from typing import Any

from kseg.native._jit import inlined
from kseg.native.little_endian import store_le16
from kseg.native.memory import load_u8, store_u8

BAD_VARINT = -1  # in place of the next position


@inlined
def read_varint(data: Any, position: int, end: int) -> tuple[int, int]:
    """Decode 32 bits at `position`; return (value, next position), next being BAD_VARINT where it is broken."""
    if position >= end:
        return 0, BAD_VARINT
    byte = load_u8(data, position)
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 127
    if position + 1 < end:  # two bytes apart from the loop: next to all lengths and offset deltas have one or two
        byte = load_u8(data, position + 1)
        raw |= (byte & 127) << 7
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position + 2
    for i in range(2, 5):
        if position + i >= end:
            return 0, BAD_VARINT
        byte = load_u8(data, position + i)
        raw |= (byte & 127) << (7 * i)
        if byte < 128:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position + i + 1
    return 0, BAD_VARINT


@inlined
def read_varlong(data: Any, position: int, end: int) -> tuple[int, int]:
    """Decode 64 bits at `position`; return (value, next position), next being BAD_VARINT where it is broken."""
    if position >= end:
        return 0, BAD_VARINT
    byte = load_u8(data, position)
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    low = byte & 127  # the low 63 bits; bit 63 comes with the tenth byte and is kept apart, so that no shift overflows
    for i in range(1, 10):
        if position + i >= end:
            return 0, BAD_VARINT
        byte = load_u8(data, position + i)
        if i < 9:
            low |= (byte & 127) << (7 * i)
        if byte < 128:
            top = (byte & 1) << 62 if i == 9 else 0
            return ((low >> 1) | top) ^ -(low & 1), position + i + 1
    return 0, BAD_VARINT


@inlined
def varint_size(value: int) -> int:
    """Bytes that `write_varint` takes for a number of up to 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    if rest & ~127 == 0:
        return 1
    if rest & ~16383 == 0:
        return 2
    size = 3
    rest = (rest >> 14) & 0x0003FFFFFFFFFFFF
    while rest & ~127:
        rest >>= 7
        size += 1
    return size


@inlined
def write_varint(data: Any, position: int, value: int) -> int:
    """Encode a number of up to 64 bits; return the next position. The caller has made room for 10 bytes."""
    rest = (value << 1) ^ (value >> 63)
    if rest & ~127 == 0:  # one and two bytes apart from the loop: next to all numbers of a record
        store_u8(data, position, rest)
        return position + 1
    if rest & ~16383 == 0:
        store_le16(data, position, (rest & 127) | 128 | (rest >> 7) << 8)
        return position + 2
    while rest & ~127:
        store_u8(data, position, (rest & 127) | 128)
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
        position += 1
    store_u8(data, position, rest)
    return position + 1
