"""Records that were decoded, into another batch: byte for byte where they may, else written anew.

The columns are those of `records.py`; `shift` is what their positions are above those of `source`.
"""

from __future__ import annotations

from typing import Any, Final

from kseg.native._jit import inlined
from kseg.native.memory import copy_bytes, load_u8, store_u8
from kseg.native.records import (
    HEADERS_COUNT,
    HEADERS_START,
    KEY_LENGTH,
    KEY_START,
    RECORD_START,
    VALUE_LENGTH,
    VALUE_START,
)
from kseg.native.varint import read_varint, varint_size, write_varint

LONG_VARINT: Final = 1 << 27  # from here on 32 bits take five bytes
LONG_TIME: Final = 1 << 61


@inlined
def _headers_end(source: Any, at: int, count: int) -> int:
    """Behind the headers of a record that was decoded before, so that its lengths are sound."""
    end = source.shape[0]
    for _ in range(2 * count):
        length, at = read_varint(source, at, end)
        at += max(length, 0)
    return at


@inlined
def _write_field(out: Any, at: int, source: Any, start: int, length: int) -> int:
    at = write_varint(out, at, length)
    if length > 0:
        copy_bytes(out, at, source, start, length)
        at += length
    return at


@inlined
def write_record(out: Any, at: int, source: Any, shift: int, columns: Any, i: int, time_delta: int, delta: int) -> Any:
    """Write a record that was decoded to `out[at:]`, as Kafka writes it; return its end."""
    key_length = columns[KEY_LENGTH, i]
    value_length = columns[VALUE_LENGTH, i]
    headers = columns[HEADERS_COUNT, i]
    headers_start = columns[HEADERS_START, i] - shift
    headers_size = 0
    if headers > 0:
        headers_size = _headers_end(source, headers_start, headers) - headers_start
    body = 1 + varint_size(time_delta) + varint_size(delta) + varint_size(headers) + headers_size
    body += varint_size(key_length) + max(key_length, 0) + varint_size(value_length) + max(value_length, 0)
    at = write_varint(out, at, body)
    store_u8(out, at, 0)
    at = write_varint(out, at + 1, time_delta)
    at = write_varint(out, at, delta)
    at = _write_field(out, at, source, columns[KEY_START, i] - shift, key_length)
    at = _write_field(out, at, source, columns[VALUE_START, i] - shift, value_length)
    at = write_varint(out, at, headers)
    if headers_size:
        copy_bytes(out, at, source, headers_start, headers_size)
        at += headers_size
    return at


@inlined
def copy_range(out: Any, at: int, source: Any, start: int, end: int) -> int:
    """Copy bytes to `out[at:]`; return their end."""
    copy_bytes(out, at, source, start, end - start)
    return at + end - start


@inlined
def lead_of(
    source: Any, start: int, stop: int, time_delta: int, delta: int, key_start: int, key_length: int, value_start: int,
    value_length: int, headers_start: int, headers: int,
) -> int:  # fmt: skip
    """Bytes of a record of magic 2 before its offset delta, if all of it is written as Kafka would; else 0.

    A number can be written with more bytes than it needs, and null with any negative length.
    """
    largest = delta | (key_length + 1) | (value_length + 1) | headers
    if delta < 0 or largest >= LONG_VARINT or not -LONG_TIME < time_delta < LONG_TIME:
        return 0  # bits that do not count could be set in so long a number
    if value_start - key_start - max(key_length, 0) != varint_size(value_length):
        return 0
    if headers_start - value_start - max(value_length, 0) != varint_size(headers):
        return 0
    if key_length < 0 and load_u8(source, key_start - 1) != 1:
        return 0
    if value_length < 0 and load_u8(source, value_start - 1) != 1:
        return 0
    time_size = varint_size(time_delta)
    body = 1 + time_size + varint_size(delta) + varint_size(key_length) + stop - key_start
    size = varint_size(body)
    if size + body != stop - start or load_u8(source, start + size) != 0:
        return 0
    return size + 1 + time_size


@inlined
def lead_of_decoded(source: Any, shift: int, columns: Any, i: int, stop: int, time_delta: int, delta: int) -> int:
    """The same of a record that was decoded."""
    return lead_of(
        source, columns[RECORD_START, i] - shift, stop, time_delta, delta, columns[KEY_START, i] - shift,
        columns[KEY_LENGTH, i], columns[VALUE_START, i] - shift, columns[VALUE_LENGTH, i],
        columns[HEADERS_START, i] - shift, columns[HEADERS_COUNT, i],
    )  # fmt: skip


@inlined
def write_retimed(out: Any, at: int, source: Any, start: int, stop: int, time_delta: int) -> int:
    """Write a record with another time delta; `source[start:stop]` is what lies behind its old one."""
    at = write_varint(out, at, 1 + varint_size(time_delta) + stop - start)
    store_u8(out, at, 0)
    at = write_varint(out, at + 1, time_delta)
    return copy_range(out, at, source, start, stop)
