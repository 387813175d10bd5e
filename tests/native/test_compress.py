"""Compression inside the kernels: framings that the twins read back, for one payload and for runs of batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.format.codec import PackFunctions
from kseg.native import compress as native
from kseg.native import deflate, encode
from kseg.native import table as t
from kseg.native._jit import JIT_ENABLED, kernel
from kseg.native.memory import as_array
from kseg.types import Codec
from tests.native.guarded import Guarded
from tests.native.harness import walk
from tests.reference import batch as v2
from tests.reference import codecs as twin
from tests.strategies import blobs, record_lists

CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
FUNCTIONS = {codec: PackFunctions(codec) for codec in CODECS}
NOISE = bytes((index * index * 2654435761 >> 13) & 0xFF for index in range(70_000))
deflate_member = kernel(deflate.deflate_member.py_func if JIT_ENABLED else deflate.deflate_member)


def packed(codec, data, functions=None):
    """Compress into room of just the bound, behind three bytes that must stay."""
    source = as_array(b"\x11\x22" + data)
    room = 3 + native.packed_bound(len(data))
    out = Guarded(room).array(room)
    out[:3] = 0xEE
    functions = functions or FUNCTIONS[codec]
    end = native.pack_payload(int(codec), source, 2, 2 + len(data), out, 3, functions.addresses, functions.scratch)
    assert end != native.PACK_FAILED
    assert bytes(out[:3]) == b"\xee" * 3
    return bytes(out[3:end])


@pytest.mark.parametrize("codec", CODECS)
@given(st.one_of(blobs(300), st.builds(bytes.__mul__, st.binary(min_size=1, max_size=9), st.integers(1, 9000))))
def test_the_twin_reads_every_payload(codec, data):
    if data:
        assert twin.decompress(int(codec), packed(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 32767, 32768, 32769, 65535, 65536, 65537, 70_000])
def test_sizes_around_the_blocks_that_do_not_shrink(codec, size):
    assert twin.decompress(int(codec), packed(codec, NOISE[:size])) == NOISE[:size]


@pytest.mark.parametrize("codec", CODECS)
def test_framings_are_kafkas(codec):
    data = b"a sentence that repeats " * 30
    head = {
        Codec.GZIP: bytes.fromhex("1f8b08000000000000ff"),
        Codec.SNAPPY: twin.XERIAL_HEADER,
        Codec.LZ4: twin.lz4_header(),
        Codec.ZSTD: bytes.fromhex("28b52ffd00"),
    }
    assert packed(codec, data).startswith(head[codec])


@pytest.mark.parametrize(
    ("codec", "level"), [(Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.LZ4, 17), (Codec.ZSTD, -7), (Codec.ZSTD, 19)]
)
def test_levels(codec, level):
    data = NOISE[:3000] * 3
    assert twin.decompress(int(codec), packed(codec, data, PackFunctions(codec, level))) == data


@pytest.mark.parametrize("level", range(1, 10))
def test_one_gzip_compressor_serves_many_payloads(level):
    functions = PackFunctions(Codec.GZIP, level)
    assert functions.addresses[native.COMPRESSOR], "libdeflate's C functions were not found"
    for data in (b"x", NOISE, b"a sentence that repeats " * 300, b""):
        member = packed(Codec.GZIP, data, functions)
        assert member.startswith(bytes.fromhex("1f8b08000000000000ff"))
        assert twin.gzip_decompress(member) == data


def test_gzip_without_room_fails_and_the_compressor_serves_again():
    functions = PackFunctions(Codec.GZIP)
    out = np.zeros(20, np.uint8)
    state = (functions.addresses[native.COMPRESSOR], functions.addresses[int(Codec.GZIP)])
    assert deflate_member(as_array(NOISE), 0, 1000, out, 0, 20, *state) == 0
    assert twin.gzip_decompress(packed(Codec.GZIP, NOISE, functions)) == NOISE


@pytest.mark.parametrize("codec", CODECS)
@given(st.lists(record_lists(max_size=5), min_size=1, max_size=5))
def test_runs_of_batches(codec, lists):
    plain = b"".join(v2.encode_batch(records, v2.Fields(base_offset=records[0].offset)) for records in lists)
    table = np.ascontiguousarray(walk(plain).table[:, : len(lists)])
    out = np.zeros(sum(61 + int(native.packed_bound(int(size) - 61)) for size in table[t.SIZE]), np.uint8)
    functions = FUNCTIONS[codec]
    stopped, end = native.pack_batches(
        int(codec), as_array(plain), table, 0, len(lists), out, 0, functions.addresses, functions.scratch
    )
    assert stopped == len(lists)
    assert end == table[t.POSITION, -1] + table[t.SIZE, -1]
    table[t.ATTRIBUTES] = int(codec)
    encode.write_headers(out, table, len(lists))
    read = [v2.read_batch(bytes(out), int(position)) for position in table[t.POSITION]]
    assert [list(batch.records) for batch in read] == lists


def test_functions_serve_many_calls():
    functions = PackFunctions(Codec.ZSTD)
    for index in range(50):
        data = bytes([index]) * (index * 100 + 1)
        assert twin.decompress(twin.ZSTD, packed(Codec.ZSTD, data, functions)) == data
