"""Producer snapshots as files."""

from __future__ import annotations

import contextlib
import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import IndexFileError
from kseg.index.producer import ProducerEntry, format_snapshot, parse_snapshot

VECTOR = bytes.fromhex(
    "0001c871c62e0000000100000000000000090001ffffffffffffffffffffffff0000000000000000000007d000000007ffffffffffffffff"
)
I16, I32, I64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
ENTRIES = st.lists(st.builds(ProducerEntry, I64, I16, I32, I64, I32, I64, I32, I64), max_size=8)


def test_kafkas_vector():
    entry = ProducerEntry(9, 1, timestamp=2000, coordinator_epoch=7)
    assert parse_snapshot(VECTOR) == [entry]
    assert format_snapshot([entry]) == VECTOR
    assert (entry.first_sequence, entry.first_offset) == (-1, -1)


def test_the_first_sequence_wraps():
    assert ProducerEntry(1, 0, last_sequence=2, last_offset=100, offset_delta=5).first_sequence == 2**31 - 3
    assert ProducerEntry(1, 0, last_sequence=9, last_offset=100, offset_delta=5).first_offset == 95


@given(ENTRIES)
def test_round_trip(entries):
    assert parse_snapshot(format_snapshot(entries)) == entries


@pytest.mark.parametrize("size", [0, 1, 9, 10, 30, len(VECTOR) - 1])
def test_a_torn_file_is_an_error(size):
    with pytest.raises(IndexFileError, match=r"7\.snapshot"):
        parse_snapshot(VECTOR[:size], "7.snapshot")


@given(st.integers(0, len(VECTOR) * 8 - 1))
def test_any_flipped_bit_is_an_error(bit):
    data = bytearray(VECTOR)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(IndexFileError):
        parse_snapshot(bytes(data))


@given(st.binary(max_size=200))
def test_any_bytes_give_producers_or_an_error(data):
    with contextlib.suppress(IndexFileError):
        parse_snapshot(data)


def test_a_count_that_lies_allocates_nothing():
    body = struct.pack(">i", 2**31 - 1)
    with pytest.raises(IndexFileError, match="2147483647 producers do not fit"):
        parse_snapshot(struct.pack(">hI", 1, crc32c.crc32c(body)) + body)


def test_every_golden_snapshot_is_written_back_the_same(golden):
    paths = sorted(golden.glob("*/*/*.snapshot"))
    assert len(paths) > 20
    for path in paths:
        data = path.read_bytes()
        assert format_snapshot(parse_snapshot(data, str(path))) == data
