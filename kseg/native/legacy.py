"""Message sets of magic 0 and 1.

    entry:   offset i64 | size i32 | message
    message: crc u32 | magic i8 | attributes i8 | [magic 1: timestamp i64] | key length i32 | key |
             value length i32 | value

A compressed wrapper is a message whose value is a compressed run of entries; its offset is that of the last inner
message. Inner offsets are absolute in a magic 0 wrapper and relative in a magic 1 wrapper.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined
from kseg.native.memory import load_i32, load_i64, load_u8, wrap_i64
from kseg.native.table import CODEC_MASK, LEGACY_MIN_LENGTH, LOG_OVERHEAD

BAD_MESSAGE: Final = -1


@inlined
def field_start(magic: int) -> int:
    """Where the key length lies, from the entry's start; any magic but 0 reads as 1, as in Kafka."""
    return LOG_OVERHEAD + 6 if magic == 0 else LOG_OVERHEAD + 14


@inlined
def key_and_value(data: Any, at: int, end: int, magic: int) -> tuple[int, int, int, int]:
    """(key start, key length, value start, value length) of the message in `[at, end)`; key start -1 if broken."""
    p = at + field_start(magic)
    if end - p < 4:
        return BAD_MESSAGE, 0, 0, 0
    key_length = load_i32(data, p)
    key_start = p + 4
    p = key_start + max(key_length, 0)
    if end - p < 4:
        return BAD_MESSAGE, 0, 0, 0
    value_length = load_i32(data, p)
    if max(value_length, 0) > end - p - 4:
        return BAD_MESSAGE, 0, 0, 0
    return key_start, key_length, p + 4, value_length


@inlined
def wrapper_payload(data: Any, at: int, end: int, magic: int) -> tuple[int, int]:
    """The compressed range of a wrapper; start -1 where it has none."""
    key_start, _, start, length = key_and_value(data, at, end, magic)
    if key_start < 0 or length < 0:
        return -1, 0
    return start, start + length


@inlined
def scan_wrapper(data: Any, start: int, end: int, magic: int, wrapper_offset: int) -> tuple[int, int]:
    """Count the inner entries of a decompressed wrapper; return (count, first offset), count <= 0 where it is broken.

    A truncated last entry is not counted, as Kafka drops it without a word.
    """
    count = 0
    at = start
    first = 0
    last = 0
    while end - at >= LOG_OVERHEAD:
        size = load_i32(data, at + 8)
        if size < LEGACY_MIN_LENGTH:
            return BAD_MESSAGE, 0
        if size > end - at - LOG_OVERHEAD:
            break
        if load_u8(data, at + 17) & CODEC_MASK:
            return BAD_MESSAGE, 0
        last = load_i64(data, at)
        first = last if count == 0 else first
        count += 1
        at += LOG_OVERHEAD + size
    if count == 0 or magic == 0:
        return count, first
    base = wrapper_base(wrapper_offset, last)
    return (count, wrap_i64(base + first)) if base >= 0 else (BAD_MESSAGE, 0)


@inlined
def wrapper_base(wrapper_offset: int, last_relative: int) -> int:
    """What is added to the relative offsets of a magic 1 wrapper; -1 where they contradict it.

    Old librdkafka produced wrappers at offset 0 whatever they held; their relative offsets are taken as they are.
    """
    if wrapper_offset == 0:
        return 0
    return -1 if wrapper_offset < last_relative else wrap_i64(wrapper_offset - last_relative)
