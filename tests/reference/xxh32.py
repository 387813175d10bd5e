"""xxHash32, the checksum of LZ4 frames, word by word."""

from __future__ import annotations

_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def xxh32(data: bytes, seed: int = 0) -> int:
    """The checksum of LZ4 frames."""
    position = 0
    if len(data) >= 16:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while position + 16 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[position : position + 4], "little")
                lanes[lane] = _rotate((lanes[lane] + word * _P2) & _MASK, 13) * _P1 & _MASK
                position += 4
        total = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = seed + _P5
    total = (total + len(data)) & _MASK
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        total = _rotate((total + word * _P3) & _MASK, 17) * _P4 & _MASK
        position += 4
    for byte in data[position:]:
        total = _rotate((total + byte * _P5) & _MASK, 11) * _P1 & _MASK
    total = (total ^ total >> 15) * _P2 & _MASK
    total = (total ^ total >> 13) * _P3 & _MASK
    return total ^ total >> 16
