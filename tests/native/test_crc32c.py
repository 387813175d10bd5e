"""Checksum kernels against the bitwise twins and the libraries."""

from __future__ import annotations

import os
import platform
import random
import subprocess
import sys
import zlib

import crc32c as library
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import crc32c as native
from kseg.native.crc32c_mixed import NARROW_BLOCK, STRETCH_BYTES
from kseg.native.memory import as_array
from tests.reference import crc32c as twin
from tests.scale import JIT_DISABLED

# around the widths of a step and of the three parallel streams, and all remainders of a block
LENGTHS = sorted(
    {0, 1, 2, 7, 8, 9, 15, 16, 17}
    | set(range(native.BLOCK_BYTES - 1, 3 * native.BLOCK_BYTES + 16))
    | {
        streams * size + extra
        for size in (native.SHORT_STREAM, native.LONG_STREAM)
        for streams in (1, 3, 6)
        for extra in (-8, -1, 0, 1, 8)
    }
    # around the stretches that products and the instruction share, and all remainders of what products take alone
    | {native.LEAST_MIXED + extra for extra in range(-1, 5 * NARROW_BLOCK + 8)}
    | {stretches * STRETCH_BYTES + extra for stretches in (1, 2, 3) for extra in (-1, 0, 1, 63, 64, 65, 100, 257)}
)
CRC32C = (native.crc32c, native.crc32c_by_both, native.crc32c_by_instruction, native.crc32c_by_table)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
    ids=["empty", "digits", "zeros", "ones", "rising"],
)
@pytest.mark.parametrize("crc", CRC32C)
def test_known_values(crc, text, expected):
    assert crc(as_array(text), 0, len(text)) == expected == twin.crc32c(text)


def test_known_value_of_the_legacy_checksum():
    assert native.crc32(as_array(b"123456789"), 0, 9) == 0xCBF43926 == twin.crc32(b"123456789")


@given(st.binary(max_size=200), st.integers(0, 9), st.integers(0, 9))
def test_any_range_equals_the_twin(data, front, back):
    padded = b"\xa5" * front + data + b"\x5a" * back
    array = as_array(padded)
    for crc in CRC32C:
        assert crc(array, front, front + len(data)) == twin.crc32c(data)
    assert native.crc32(array, front, front + len(data)) == twin.crc32(data)


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_around_the_streams(length):
    data = random.Random(length).randbytes(length + 16)
    array = as_array(data)
    for start in (0, 1, 3, 8):
        part = data[start : start + length]
        for crc in CRC32C:
            assert crc(array, start, start + length) == library.crc32c(part)
        assert native.crc32(array, start, start + length) == zlib.crc32(part)


@given(st.integers(0, 3000), st.integers(0, 70), st.randoms(use_true_random=False))
def test_any_length_and_place_equals_the_library(length, start, rng):
    data = rng.randbytes(start + length + 70)
    assert native.crc32c(as_array(data), start, start + length) == library.crc32c(data[start : start + length])


@pytest.mark.parametrize("features", ["+sse4.2,+crc32", "+sse4.2", ""])
def test_kernels_are_compiled_for_the_processor_that_numba_is_told(features):
    """What a cache for many machines is made with: no instruction that such a processor may lack."""
    program = """
from kseg.native import crc32c, crc32c_fold, crc32c_mixed
from kseg.native.memory import as_array
print(crc32c_fold.FOLDS, crc32c_mixed.MIXES, crc32c.HARDWARE is not None)
print(hex(crc32c.crc32c(as_array(bytes(range(256))), 0, 256)))
"""
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    is_used = platform.machine() == "x86_64" and "crc32" in features and not JIT_DISABLED
    assert done.stdout.split() == ["False", "False", str(is_used), hex(library.crc32c(bytes(range(256))))]


def test_the_twins_equal_the_libraries():
    for length in (0, 1, 5, 100):
        data = random.Random(length).randbytes(length)
        assert twin.crc32c(data) == library.crc32c(data)
        assert twin.crc32(data) == zlib.crc32(data)
        assert twin.crc32c(data[7:], twin.crc32c(data[:7])) == library.crc32c(data)
