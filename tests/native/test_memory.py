"""Loads, stores and copies: the intrinsics (or their plain twins) against `struct`."""

from __future__ import annotations

import struct
import sys

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import memory
from kseg.native._jit import JIT_ENABLED
from kseg.native.pages import plain_pages

LOADS = [("load_u8", ">B"), ("load_i16", ">h"), ("load_i32", ">i"), ("load_i64", ">q")]
STORES = [("store_u8", ">B"), ("store_i16", ">h"), ("store_i32", ">i"), ("store_i64", ">q")]


def compiled(function):
    return numba.njit(function) if JIT_ENABLED else function


@pytest.mark.parametrize("size", [0, 1, 4096, 10_000_001])
def test_plain_pages_are_zeros_that_can_be_written(size):
    data = plain_pages(size)
    assert (data.size, data.any(), data.flags.writeable) == (size, False, True)
    data[:] = 7
    assert not plain_pages(size).any()


def loader(name):
    load = getattr(memory, name)
    return compiled(lambda data, position: load(data, position))


def storer(name):
    store = getattr(memory, name)

    def run(data, position, value):
        store(data, position, value)

    return compiled(run)


LOADERS = {name: loader(name) for name, _ in LOADS}
STORERS = {name: storer(name) for name, _ in STORES}
load_native = loader("load_u64_native")


def _copy(target, target_position, source, source_position, count):
    memory.copy_bytes(target, target_position, source, source_position, count)


copy = compiled(_copy)


@pytest.mark.parametrize(("name", "code"), LOADS)
@given(st.binary(min_size=16, max_size=16), st.integers(0, 8))
def test_loads(name, code, data, position):
    assert LOADERS[name](memory.as_array(data), position) == struct.unpack_from(code, data, position)[0]


@pytest.mark.parametrize(("name", "code"), STORES)
@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 8))
def test_stores_keep_the_low_bits(name, code, value, position):
    out = np.full(16, 0xEE, np.uint8)
    STORERS[name](out, position, value)
    size = struct.calcsize(code)
    assert bytes(out) == b"\xee" * position + (value % (1 << 8 * size)).to_bytes(size, "big") + b"\xee" * (
        16 - position - size
    )


@given(st.binary(min_size=8, max_size=8))
def test_native_words(data):
    assert int(load_native(memory.as_array(data), 0)) % (1 << 64) == int.from_bytes(data, sys.byteorder)


@given(st.binary(max_size=64), st.integers(0, 64), st.integers(0, 64))
def test_copies(data, start, count):
    start = min(start, len(data))
    count = min(count, len(data) - start)
    out = np.full(count + 7, 0xEE, np.uint8)
    copy(out, 3, memory.as_array(data), start, count)
    assert bytes(out) == b"\xee\xee\xee" + data[start : start + count] + b"\xee" * 4


@pytest.mark.parametrize("source", [b"abc", bytearray(b"abc"), memoryview(b"abc"), np.frombuffer(b"abc", np.uint8)])
def test_views_are_all_of_one_type_and_copy_nothing(source):
    view = memory.as_array(source)
    assert (view.dtype, view.ndim, view.tobytes()) == (np.uint8, 1, b"abc")
    assert numba.typeof(view) == numba.typeof(np.zeros(3, np.uint8))
    if isinstance(source, bytearray):
        source[0] = ord("x")
        assert view.tobytes() == b"xbc"


def test_an_empty_view():
    assert len(memory.as_array(b"")) == 0
