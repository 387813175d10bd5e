"""Varint kernels against the twin: values, encodings at the limit of the rules, and bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import varint as native
from kseg.native.memory import as_array
from tests.reference import varint as twin
from tests.reference.errors import RejectedError

VALUES = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-2, "03"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (1048575, "feff7f"),
    (134217727, "feffff7f"),
    (134217728, "8080808001"),
    (2147483647, "feffffff0f"),
    (-2147483648, "ffffffff0f"),
]
LONG_VALUES = [
    (2147483648, "8080808010"),
    (17179869183, "feffffff7f"),
    (17179869184, "808080808001"),
    (9223372036854775807, "feffffffffffffffff01"),
    (-9223372036854775808, "ffffffffffffffffff01"),
]
ODD = [  # encodings that nobody writes: surplus bits are dropped, padding is fine, a sixth (eleventh) byte is not
    "ffffffff7f",
    "feffffff1f",
    "8080808070",
    "8000",
    "80808000",
    "8080808000",
    "ffffffffff00",
    "ffffffffffffffffff7f",
    "80808080808080808002",
    "8080808080808080808000",
    "ff" * 11,
    "80",
    "ffff",
    "",
]

raw = st.lists(st.one_of(st.integers(0, 255), st.integers(128, 255)), max_size=12).map(bytes)


def read(function, data, start=0, end=None):
    value, position = function(as_array(data), start, len(data) if end is None else end)
    return None if position == native.BAD_VARINT else (int(value), int(position))


def expected(function, data, start=0, end=None):
    try:
        return function(data, start, end)
    except RejectedError:
        return None


@pytest.mark.parametrize(("value", "hexed"), VALUES)
def test_values(value, hexed):
    data = bytes.fromhex(hexed)
    assert twin.encode_varint(value) == data
    assert read(native.read_varint, data) == twin.decode_varint(data) == (value, len(data))


@pytest.mark.parametrize(("value", "hexed"), VALUES + LONG_VALUES)
def test_long_values(value, hexed):
    data = bytes.fromhex(hexed)
    assert twin.encode_varlong(value) == data
    assert read(native.read_varlong, data) == twin.decode_varlong(data) == (value, len(data))
    assert native.varint_size(value) == len(data)


@pytest.mark.parametrize("hexed", ODD)
def test_odd_encodings(hexed):
    data = bytes.fromhex(hexed)
    assert read(native.read_varint, data) == expected(twin.decode_varint, data)
    assert read(native.read_varlong, data) == expected(twin.decode_varlong, data)


@given(raw, st.integers(0, 12), st.integers(0, 12))
def test_any_bytes_equal_the_twin_and_stay_within_bounds(data, start, end):
    start, end = min(start, len(data)), min(end, len(data))
    assert read(native.read_varint, data, start, end) == expected(twin.decode_varint, data, start, end)
    assert read(native.read_varlong, data, start, end) == expected(twin.decode_varlong, data, start, end)


@given(st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)), st.integers(0, 3))
def test_writing_equals_the_twin(value, position):
    out = np.full(16, 0xEE, np.uint8)
    end = native.write_varint(out, position, value)
    written = twin.encode_varlong(value)
    assert bytes(out[position:end]) == written
    assert native.varint_size(value) == len(written)
    assert bytes(out[:position]) == b"\xee" * position
    if -(1 << 31) <= value < 1 << 31:
        assert written == twin.encode_varint(value)
