"""Kafka's murmur2 and its partitioner for keyed records."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The hash as Java has it: a signed 32-bit number."""
    h = _SEED ^ len(key)
    whole = len(key) // 4 * 4
    for position in range(0, whole, 4):
        k = int.from_bytes(key[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    tail = key[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >= 1 << 31 else h


def partition_of(key: bytes, partitions: int) -> int:
    """Where the default partitioner puts a key: the sign bit is masked, not negated."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
