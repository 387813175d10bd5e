"""Compression in Kafka's framings: what kseg writes, byte for byte where the framing decides."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import OptionError
from kseg.format.codec import block_checksum, check_level, compress, pack_functions
from kseg.types import Codec
from tests.reference import codecs as twin
from tests.reference.xxh32 import xxh32

TEXT = b"a sentence that repeats, a sentence that repeats; " * 50
NOISE = bytes((index * 7919 >> 3) % 251 for index in range(200))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@given(
    st.one_of(
        st.binary(min_size=1, max_size=300),
        st.builds(bytes.__mul__, st.binary(min_size=1, max_size=5), st.integers(1, 40_000)),
    )
)
def test_the_twin_reads_what_is_written(codec, data):
    assert twin.decompress(int(codec), compress(codec, data)) == data


def test_gzip_has_kafkas_head():
    assert compress(Codec.GZIP, TEXT)[:10] == bytes.fromhex("1f8b08000000000000ff")


def test_snappy_is_a_xerial_stream_of_32_kib_chunks():
    data = NOISE * 400
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    position, sizes = 16, []
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        sizes.append(len(twin.snappy_decompress(packed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert sizes == [32768, 32768, len(data) - 65536]


def test_lz4_frames_are_of_independent_blocks_of_64_kib():
    packed = compress(Codec.LZ4, TEXT * 60)
    assert packed[:7] == bytes.fromhex("04224d18604082")
    assert packed[-4:] == bytes(4)


def test_lz4_stores_what_does_not_shrink():
    assert compress(Codec.LZ4, b"xyz") == bytes.fromhex("04224d1860408203000080") + b"xyz" + bytes(4)


def test_zstd_has_no_content_size_and_no_checksum():
    packed = compress(Codec.ZSTD, TEXT)
    assert packed[:5] == bytes.fromhex("28b52ffd00")


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 17), (Codec.ZSTD, -131072, 22), (Codec.ZSTD, -5, 19)]
)
def test_levels(codec, low, high):
    for level in (low, high):
        check_level(codec, level)
        assert twin.decompress(int(codec), compress(codec, TEXT, level)) == TEXT


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, 0),
        (Codec.GZIP, 10),
        (Codec.LZ4, 0),
        (Codec.LZ4, 18),
        (Codec.ZSTD, 23),
        (Codec.SNAPPY, 1),
        (Codec.NONE, 1),
    ],
)
def test_levels_that_kafka_refuses(codec, level):
    with pytest.raises(OptionError):
        check_level(codec, level)


def test_gzips_name_for_its_default_level_was_refused():
    assert compress(Codec.GZIP, TEXT, -1) == compress(Codec.GZIP, TEXT)
    for codec in (Codec.LZ4, Codec.SNAPPY):
        with pytest.raises(OptionError):
            check_level(codec, -1)


def test_levels_matter():
    assert len(compress(Codec.GZIP, TEXT, 9)) <= len(compress(Codec.GZIP, TEXT, 1))
    assert (
        compress(Codec.LZ4, NOISE * 30, 17) != compress(Codec.LZ4, NOISE * 30, 9)
        or len(compress(Codec.LZ4, NOISE * 30)) > 0
    )


@given(st.binary(max_size=60))
def test_block_checksums(data):
    assert block_checksum(data) == xxh32(data)


def test_the_functions_of_a_codec_at_its_default_level_are_kept_for_the_thread():
    first = pack_functions(Codec.ZSTD)
    assert pack_functions(Codec.ZSTD) is first
    assert pack_functions(Codec.ZSTD, 19) is not pack_functions(Codec.ZSTD, 19)
    assert pack_functions(Codec.ZSTD) is first
    with ThreadPoolExecutor(1) as other:
        assert other.submit(pack_functions, Codec.ZSTD).result() is not first
    assert pack_functions(Codec.GZIP) is not first


def test_threads_compress_at_once():
    jobs = [(codec, bytes([seed]) * 50 + NOISE * 300) for codec in Codec if codec for seed in range(20)]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda job: compress(*job), jobs))
    assert [twin.decompress(int(codec), packed) for (codec, _), packed in zip(jobs, results, strict=True)] == [
        data for _, data in jobs
    ]
