"""The raw snappy encoder: the twin's bytes, read back by the library and by the decoder of the kernels."""

from __future__ import annotations

import random

import cramjam
import numba
import numpy as np
import pytest
import snappy as library
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import little_endian, snappy
from kseg.native import snappy_compress as native
from kseg.native._jit import JIT_ENABLED, kernel
from kseg.native.memory import as_array
from tests.native.guarded import Guarded
from tests.reference import snappy_block as twin

compress_block = kernel(native.compress_block.py_func if JIT_ENABLED else native.compress_block)
SCRATCH = np.full(native.TABLE_BYTES, 0xEE, np.uint8)  # what an earlier block left must not matter
WORDS = [bytes(random.Random(i).choices(b"etaoinshrdlu", k=2 + i % 9)) for i in range(400)]


def text(size, seed=0):
    """Words, the frequent ones often: about as real values compress."""
    rng = random.Random(seed)
    made = b" ".join(rng.choices(WORDS, [1 / (i + 2) for i in range(len(WORDS))], k=size // 3))
    return (made * 3)[:size]


def noise(size, seed=0):
    return random.Random(seed).randbytes(size)


def run(data):
    """Compress out of and into memory that ends where the data and the promised room end."""
    source = Guarded(len(data)).array(len(data))
    source[:] = np.frombuffer(data, np.uint8)
    room = 3 + len(data) + len(data) // 6 + 32
    out = Guarded(room).array(room)
    out[:3] = 0xEE
    end = int(compress_block(source, 0, len(data), out, 3, SCRATCH))
    assert bytes(out[:3]) == b"\xee" * 3
    return bytes(out[3:end])


def uncompress(block, size):
    out = np.empty(size, np.uint8)
    assert snappy.uncompress(as_array(block), 0, len(block), out, 0, size) == size
    return out.tobytes()


def check(data):
    block = run(data)
    assert block == twin.compress(data)
    assert bytes(library.uncompress(block)) == data
    assert uncompress(block, len(data)) == data


pieces = st.one_of(
    st.binary(max_size=80),
    st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=9), st.integers(1, 60)),
    st.builds(text, st.integers(0, 500), st.integers(0, 3)),
)


@given(st.lists(pieces, max_size=8).map(b"".join))
def test_any_data_is_written_as_by_the_twin_and_read_back(data):
    check(data)


@pytest.mark.parametrize("size", [0, 1, 4, 15, 16, 17, 18, 60, 61, 255, 256, 257, 258, 4095, 4096, 4097, 32768, 65536])
@pytest.mark.parametrize("make", [bytes, noise, text], ids=["zeros", "noise", "text"])
def test_sizes_where_forms_change(make, size):
    check(make(size))


@pytest.mark.parametrize("size", range(4, 140))
def test_copies_of_every_length(size):
    check(noise(size) + b"|" + noise(size) + noise(30, 1))


@pytest.mark.parametrize("back", [5, 255, 256, 2046, 2047, 2048, 2049, 4000])
def test_copies_from_every_distance(back):
    word = b"a word that comes twice"
    check(word + noise(back - len(word)) + word + noise(20, 1) if back > len(word) else noise(back) * 20)


def test_a_block_in_the_middle_refers_to_nothing_before_it():
    data = text(3000)
    source = as_array(data + data + data)
    out = np.empty(8000, np.uint8)
    end = int(compress_block(source, len(data), 2 * len(data), out, 0, SCRATCH))
    assert out[:end].tobytes() == run(data)


@pytest.mark.parametrize("size", [150, 1000, 4096])
def test_it_compresses_about_as_well_as_the_library(size):
    for seed in range(20):
        data = text(size, seed)
        assert len(run(data)) <= 1.05 * len(bytes(cramjam.snappy.compress_raw(data))) + 4


def compiled(function):
    return numba.njit(function) if JIT_ENABLED else function


@pytest.mark.parametrize("bits", [16, 32, 64])
@given(st.binary(min_size=11, max_size=11), st.integers(0, 3))
def test_loads(bits, data, at):
    load = LOADS[bits]
    expected = int.from_bytes(data[at : at + bits // 8], "little", signed=bits == 64)
    assert load(as_array(data), at) == expected


@pytest.mark.parametrize("bits", [16, 32])
@given(st.integers(0, 1 << 40), st.integers(0, 3))
def test_stores(bits, value, at):
    out = np.full(11, 0xEE, np.uint8)
    STORES[bits](out, at, value)
    size = bits // 8
    assert out.tobytes() == b"\xee" * at + (value % (1 << bits)).to_bytes(size, "little") + b"\xee" * (11 - at - size)


@given(st.binary(min_size=8, max_size=8), st.integers(0, 7), st.integers(1, 255))
def test_first_difference(data, at, change):
    other = data[:at] + bytes([data[at] ^ change]) + noise(8)[at + 1 :]
    numbers = [int.from_bytes(each, "little", signed=True) for each in (data, other)]
    assert first_difference(*numbers) == at


def _loader(load):
    return compiled(lambda data, position: load(data, position))


def _storer(store):
    def run(data, position, value):
        store(data, position, value)

    return compiled(run)


_difference = little_endian.first_difference
first_difference = compiled(lambda one, other: _difference(one, other))
LOADS = {bits: _loader(getattr(little_endian, f"load_le{bits}")) for bits in (16, 32, 64)}
STORES = {bits: _storer(getattr(little_endian, f"store_le{bits}")) for bits in (16, 32)}
