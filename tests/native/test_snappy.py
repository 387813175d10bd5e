"""The raw snappy decoder against the library: sound blocks, hand-made ones, and any bytes at all."""

from __future__ import annotations

import numpy as np
import pytest
import snappy as library
from hypothesis import example, given
from hypothesis import strategies as st

from kseg.native import snappy as native
from kseg.native.memory import as_array

GUARD = 16


def run(block, capacity=1 << 12, at=0):
    """Decode into the middle of a guarded buffer; None where the block is refused, False where there is no room."""
    out = np.full(at + capacity + GUARD, 0xEE, np.uint8)
    end = int(native.uncompress(as_array(b"\x11" * at + block), at, at + len(block), out, at, at + capacity))
    assert bytes(out[at + capacity :]) == b"\xee" * GUARD, "wrote past its limit"
    assert bytes(out[:at]) == b"\xee" * at, "wrote before its start"
    if end == native.NO_ROOM:
        return False
    return None if end == native.BAD_BLOCK else bytes(out[at:end])


def by_library(block):
    try:
        return bytes(library.uncompress(block))
    except Exception:  # the binding's error types are not public
        return None


def length(size):
    out = bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size])


def literal(data):
    size = len(data) - 1
    if size < 60:
        return bytes([size << 2]) + data
    wide = (size.bit_length() + 7) // 8
    return bytes([(59 + wide) << 2]) + size.to_bytes(wide, "little") + data


def copy1(size, offset):
    return bytes([1 | (size - 4) << 2 | offset >> 8 << 5, offset & 0xFF])


def copy2(size, offset):
    return bytes([2 | (size - 1) << 2]) + offset.to_bytes(2, "little")


def copy4(size, offset):
    return bytes([3 | (size - 1) << 2]) + offset.to_bytes(4, "little")


@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(lambda a, n: (a * n)[:3000], st.binary(min_size=1, max_size=9), st.integers(1, 400)),
    )
)
def test_what_the_library_compressed(data):
    assert run(bytes(library.compress(data))) == data


@pytest.mark.parametrize("at", [0, 1, 7])
def test_positions_other_than_zero(at):
    assert run(bytes(library.compress(b"abcabcabcabcabc")), at=at) == b"abcabcabcabcabc"


ELEMENTS = [
    (length(0), b""),
    (length(4) + literal(b"abcd"), b"abcd"),
    (length(8) + literal(b"abcd") + copy1(4, 4), b"abcdabcd"),
    (length(12) + literal(b"ab") + copy1(10, 2), b"ab" * 6),
    (length(65) + literal(b"a") + copy2(64, 1), b"a" * 65),
    (length(10) + literal(b"abcde") + copy4(5, 5), b"abcdeabcde"),
    (length(100) + literal(b"z" * 100), b"z" * 100),
    (length(300) + literal(b"y" * 300), b"y" * 300),
    (length(70) + literal(b"abcdefg") + copy2(63, 7), (b"abcdefg" * 10)),
]


@pytest.mark.parametrize(("block", "expected"), ELEMENTS, ids=range(len(ELEMENTS)))
def test_every_kind_of_element(block, expected):
    assert run(block) == expected == by_library(block)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x80",
        length(5) + literal(b"abcd"),
        length(3) + literal(b"abcd"),
        length(8) + literal(b"abcd") + copy1(4, 5),
        length(8) + literal(b"abcd") + copy1(4, 0),
        length(8) + literal(b"abcd") + copy2(4, 0),
        length(8) + literal(b"abcd") + copy4(4, 0xFFFFFFFF),
        length(8) + literal(b"abcd") + copy4(4, 0x80000000),
        length(8) + literal(b"abcd") + b"\x01",
        length(8) + literal(b"abcd") + b"\x02\x01",
        length(8) + literal(b"abcd") + b"\x03\x01\x00\x00",
        length(4) + b"\x0cabc",
        length(4) + b"\xfc\xff\xff\xff\xff",
        length(4) + b"\xfc\xff\xff\xff\x7f",
        length(4) + b"\xf0",
        b"\xff\xff\xff\xff\xff\x01" + literal(b"abcd"),
        length(4) + literal(b"abcd") + b"\x00",
    ],
    ids=range(18),
)
def test_what_is_refused(block):
    assert run(block) is None
    assert by_library(block) is None


def test_no_room_is_told_before_anything_is_written():
    block = length(1 << 31) + literal(b"abcd")
    assert run(block) in (False, None)
    assert run(bytes(library.compress(b"a" * 100)), capacity=99) is False
    assert run(bytes(library.compress(b"a" * 100)), capacity=100) == b"a" * 100


def one_byte_changed(data, at, value):
    packed = bytes(library.compress(data * 3))
    return packed[: at % len(packed)] + bytes([value]) + packed[at % len(packed) + 1 :]


@given(
    st.one_of(
        st.binary(max_size=60),
        st.builds(lambda size, tail: length(size) + tail, st.integers(0, 300), st.binary(max_size=80)),
        st.builds(one_byte_changed, st.binary(min_size=1, max_size=60), st.integers(0, 200), st.integers(0, 255)),
    )
)
@example(b"\x00\x00")
def test_any_bytes_end_as_in_the_library(block):
    result = run(block)
    if result is False:
        return
    assert result == by_library(block)
