"""Key hashes against the twins and the published values."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import hash as native
from kseg.native.memory import as_array
from tests.reference.hash128 import siphash128
from tests.reference.murmur2 import murmur2, partition_of
from tests.reference.vectors import lines
from tests.strategies import nullable_blobs

KEY = bytes(range(16))
PUBLISHED = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
}
MURMUR = [
    re.fullmatch(r"murmur2 '(.*)' = (-?\d+) pos=(\d+) %10=(\d)", line)
    for line in lines()
    if line.startswith("murmur2 ")
]


def laid_out(keys):
    data, starts, lengths = bytearray(b"\x99"), [], []
    for key in keys:
        starts.append(len(data))
        lengths.append(-1 if key is None else len(key))
        data += key or b""
        data += b"\x99"
    return as_array(bytes(data)), np.array(starts, np.int64), np.array(lengths, np.int64)


def all_murmur2(keys):
    data, starts, lengths = laid_out(keys)
    out = np.zeros(len(keys), np.int64)
    native.fill_murmur2(data, starts, lengths, len(keys), out)
    return [int(value) for value in out]


def all_hash128(keys, key=KEY):
    data, starts, lengths = laid_out(keys)
    out = np.zeros((len(keys), 2), np.uint64)
    native.fill_hash128(data, starts, lengths, len(keys), np.frombuffer(key, "<u8").astype(np.uint64), out)
    return [int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little") for low, high in out]


@pytest.mark.parametrize("match", MURMUR, ids=lambda match: match[1][:12])
def test_murmur2_equals_kafkas(match):
    key, signed, positive, tenth = match[1].encode(), int(match[2]), int(match[3]), int(match[4])
    assert murmur2(key) == signed
    assert partition_of(key, 10) == tenth
    assert all_murmur2([key]) == [signed % (1 << 32)]
    assert all_murmur2([key])[0] & 0x7FFFFFFF == positive


@given(st.lists(nullable_blobs(20), max_size=20))
def test_murmur2_of_many_keys(keys):
    assert all_murmur2(keys) == [native.NULL_HASH if key is None else murmur2(key) % (1 << 32) for key in keys]


@pytest.mark.parametrize(("length", "digest"), PUBLISHED.items())
def test_hash128_equals_the_published_values(length, digest):
    text = bytes(range(length))
    assert siphash128(text, KEY).hex() == digest
    assert all_hash128([text])[0].hex() == digest


@given(st.lists(nullable_blobs(40), max_size=20), st.binary(min_size=16, max_size=16))
def test_hash128_of_many_keys(keys, key):
    assert all_hash128(keys, key) == [siphash128(field or b"", key) for field in keys]


@pytest.mark.parametrize("length", [*range(20), 255, 256, 257, 300])
def test_hash128_of_every_tail(length):
    text = bytes(index % 251 for index in range(length))
    assert all_hash128([text])[0] == siphash128(text, KEY)


def test_another_key_gives_other_hashes():
    assert all_hash128([b"k"]) != all_hash128([b"k"], bytes(16))
