"""The records that most are: short numbers, no headers. They are parsed with one load and few comparisons.

What is not plain, whether unusual or broken, is for `records.read_record` to tell.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined
from kseg.native.little_endian import load_le64
from kseg.native.memory import load_u8
from kseg.native.short_copies import BEYOND

SLACK: Final = BEYOND  # bytes behind a payload that may be looked at; `read_plain` itself needs 24
TOO_LONG: Final = 1 << 40  # more than any record has room for


@inlined
def _read_short(data: Any, position: int) -> tuple[int, int]:
    """Decode a varint of up to three bytes; return (value, next position), the value TOO_LONG where it has more."""
    byte = load_u8(data, position)
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 127
    byte = load_u8(data, position + 1)
    raw |= (byte & 127) << 7
    if byte < 128:
        return (raw >> 1) ^ -(raw & 1), position + 2
    byte = load_u8(data, position + 2)
    raw |= byte << 14
    if byte < 128:
        return (raw >> 1) ^ -(raw & 1), position + 3
    return TOO_LONG, position


@inlined
def read_plain(data: Any, p: int, end: int) -> tuple[bool, int, int, int, int, int, int, int]:
    """Parse a record at `p` of a payload that ends at `end`, if it is one of those that most are.

    That is one whose numbers are short and that has no headers. Returns (whether it is one, next position, timestamp
    delta, offset delta, key start, key length, value start, value length). If it is none, it may be another one or a
    broken one: `read_record` tells. Reads up to SLACK bytes behind `end`, which the caller has seen to: it is enough
    that the fields end where the record does. The next position depends on the length alone, so that the CPU goes on
    there while it is still busy with the fields.
    """
    word = load_le64(data, p)
    length = word & 127
    q = p + 2
    odd = word & 1
    if word & 128:
        length |= (word >> 1) & 0x3F80
        odd |= word & 0x8000
        word >>= 8
        q += 1
    stop = q - 1 + (length >> 1)
    word >>= 16  # the length's last byte, and the attributes, which nothing uses
    raw = word & 127
    if word & 128:
        raw |= (word >> 1) & 0x3F80
        if word & 0x8000:
            raw |= (word >> 2) & 0x1FC000
            odd |= word & 0x800000
            word >>= 8
            q += 1
        word >>= 8
        q += 1
    timestamp_delta = (raw >> 1) ^ -(raw & 1)
    word >>= 8
    raw = word & 127
    q += 2
    if word & 128:
        raw |= (word >> 1) & 0x3F80
        odd |= word & 0x8000
        q += 1
    offset_delta = (raw >> 1) ^ -(raw & 1)
    key_length, key_start = _read_short(data, q)
    if odd or stop > end or key_length > stop - key_start:
        return False, stop, 0, 0, 0, 0, 0, 0
    value_length, value_start = _read_short(data, key_start + max(key_length, 0))
    p = value_start + max(value_length, 0)
    if p + 1 != stop or load_u8(data, p) != 0:
        return False, stop, 0, 0, 0, 0, 0, 0
    return True, stop, timestamp_delta, offset_delta, key_start, key_length, value_start, value_length
