"""SipHash-2-4 with 128 bits of output, after Aumasson and Bernstein."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _MASK
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _rotate(v3, 16) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _rotate(v3, 21) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


def siphash128(data: bytes, key: bytes) -> bytes:
    """Hash `data` under a key of 16 bytes; gives 16 bytes, the low word first."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    state = (
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    )
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for position in range(0, len(padded), 8):
        word = int.from_bytes(padded[position : position + 8], "little")
        v0, v1, v2, v3 = state
        state = _round(*_round(v0, v1, v2, v3 ^ word))
        state = (state[0] ^ word, *state[1:])
    v0, v1, v2, v3 = state
    state = _round(*_round(*_round(*_round(v0, v1, v2 ^ 0xEE, v3))))
    low = state[0] ^ state[1] ^ state[2] ^ state[3]
    v0, v1, v2, v3 = state
    state = _round(*_round(*_round(*_round(v0, v1 ^ 0xDD, v2, v3))))
    high = state[0] ^ state[1] ^ state[2] ^ state[3]
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")
