"""Hashes of many keys in one call: murmur2, which chooses partitions, and SipHash-2-4-128, which tells keys apart.

SipHash is keyed: with a random key per run nobody can prepare keys that collide, so 128 bits stand for the key itself.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import JIT_ENABLED, inlined, kernel
from kseg.native.memory import load_u8, load_u64_native

MURMUR_SEED: Final = 0x9747B28C
MURMUR_M: Final = 0x5BD1E995
MASK32: Final = 0xFFFFFFFF
NULL_HASH: Final = 0

V0: Final = np.uint64(0x736F6D6570736575)
V1: Final = np.uint64(0x646F72616E646F6D)
V2: Final = np.uint64(0x6C7967656E657261)
V3: Final = np.uint64(0x7465646279746573)


@inlined
def _times(value: int) -> int:
    """Low 32 bits of a product with MURMUR_M, in steps that stay below 63 bits."""
    return ((value & 0xFFFF) * MURMUR_M + (((value >> 16) * MURMUR_M & 0xFFFF) << 16)) & MASK32


@inlined
def _murmur2(data: Any, start: int, length: int) -> int:
    value = (MURMUR_SEED ^ length) & MASK32
    at = start
    end = start + length
    while at + 4 <= end:
        word = (
            load_u8(data, at) | load_u8(data, at + 1) << 8 | load_u8(data, at + 2) << 16 | load_u8(data, at + 3) << 24
        )
        word = _times(word)
        word = _times(word ^ (word >> 24))
        value = _times(value) ^ word
        at += 4
    if at < end:
        shift = 0
        while at < end:
            value ^= load_u8(data, at) << shift
            shift += 8
            at += 1
        value = _times(value)
    value = _times(value ^ (value >> 13))
    return value ^ (value >> 15)


@kernel
def fill_murmur2(data: Any, starts: Any, lengths: Any, rows: int, out: Any) -> None:
    """Kafka's murmur2 of each key, as an unsigned number; NULL_HASH where the length is negative.

    The partition of a key is `(hash & 0x7fffffff) % partitions`.
    """
    for row in range(rows):
        out[row] = _murmur2(data, starts[row], lengths[row]) if lengths[row] >= 0 else NULL_HASH


@inlined
def _rotate(value: Any, count: int) -> Any:
    return (value << np.uint64(count)) | (value >> np.uint64(64 - count))


@inlined
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> tuple[Any, Any, Any, Any]:
    v0 = v0 + v1
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 = v2 + v3
    v3 = _rotate(v3, 16) ^ v2
    v0 = v0 + v3
    v3 = _rotate(v3, 21) ^ v0
    v2 = v2 + v1
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@inlined
def siphash128(data: Any, start: int, length: int, key0: Any, key1: Any) -> tuple[Any, Any]:
    """SipHash-2-4-128 of `data[start:start + length]`, as (low, high)."""
    v0 = V0 ^ key0
    v1 = V1 ^ key1 ^ np.uint64(0xEE)
    v2 = V2 ^ key0
    v3 = V3 ^ key1
    at = start
    end = start + length
    while at + 8 <= end:
        word = load_u64_native(data, at)
        v3 = v3 ^ word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 = v0 ^ word
        at += 8
    last = np.uint64(length & 0xFF) << np.uint64(56)
    if length > 8 and at < end:  # the rest in one load: the last eight bytes, without those that were taken
        last = last | (load_u64_native(data, end - 8) >> np.uint64(64 - 8 * (end - at)))
    else:
        shift = 0
        while at < end:
            last = last | (np.uint64(load_u8(data, at)) << np.uint64(shift))
            shift += 8
            at += 1
    v3 = v3 ^ last
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 = v0 ^ last
    v2 = v2 ^ np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 = v1 ^ np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@kernel
def _fill_hash128(data: Any, starts: Any, lengths: Any, rows: int, key: Any, out: Any) -> None:
    for row in range(rows):
        low, high = siphash128(data, starts[row], max(lengths[row], np.int64(0)), key[0], key[1])
        out[row, 0] = low
        out[row, 1] = high


def fill_hash128(data: Any, starts: Any, lengths: Any, rows: int, key: Any, out: Any) -> None:
    """SipHash-2-4-128 of each field into `out[row] = (low, high)`; `key` is two uint64. Null hashes as empty."""
    if JIT_ENABLED:
        _fill_hash128(data, starts, lengths, rows, key, out)
        return
    with np.errstate(over="ignore"):  # 64-bit sums wrap around, which numpy's scalars would warn of
        _fill_hash128(data, starts, lengths, rows, key, out)
