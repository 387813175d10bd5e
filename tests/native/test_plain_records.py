"""The short way through a record against the long one: where it says that a record is plain, both say the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kseg.native._jit import kernel
from kseg.native.memory import as_array
from kseg.native.plain_records import SLACK, read_plain
from kseg.native.records import TOTALS, read_record
from tests.reference.record import Record, encode_record
from tests.scale import counts

FIELDS = [None, b"", b"k", b"x" * 63, b"x" * 64, b"y" * 5000, b"z" * 9000]


@kernel
def both_ways(data, position, end, totals):
    return read_plain(data, position, end), read_record(data, position, end, totals)


def parse(record, end=None):
    """What the two ways say of a record at the start of a payload; bytes that are no record lie behind it."""
    data = as_array(record + b"\xff" * SLACK)
    return both_ways(data, 0, len(record) if end is None else end, np.zeros(TOTALS, np.int64))


@pytest.mark.parametrize("key", FIELDS)
@pytest.mark.parametrize("value", FIELDS)
@pytest.mark.parametrize(("timestamp", "offset"), [(0, 0), (63, 64), (-64, 1), (64, 8191), (8192, 5), (1 << 19, 7)])
def test_plain_records_are_parsed_as_by_the_long_way(key, value, timestamp, offset):
    record = encode_record(Record(offset, timestamp, key, value), 0, 0)
    if len(record) < 8195:
        plain, expected = parse(record)
        assert plain[0]
        assert plain[1:] == expected[:7]


@pytest.mark.parametrize(
    "record",
    [
        Record(8192, 0, b"k", b"v"),
        Record(0, 1 << 20, b"k", b"v"),
        Record(0, 0, b"k", b"v" * 8192),
        Record(0, 0, b"k", b"v", ((b"h", b"w"),)),
    ],
    ids=["offset", "timestamp", "length", "headers"],
)
def test_others_are_left_to_the_long_way(record):
    plain, expected = parse(encode_record(record, 0, 0))
    assert not plain[0]
    assert expected[0] > 0


def test_mutated_records_are_never_plain_unless_they_are_sound():
    rng = random.Random("plain")
    accepted = 0
    for _ in range(counts(20_000)):
        made = Record(rng.choice([0, 3, 100, 9000]), rng.choice([0, -5, 700]), rng.choice(FIELDS), rng.choice(FIELDS))
        record = bytearray(encode_record(made, 0, 0))
        for _ in range(rng.randint(1, 3)):
            record[rng.randrange(min(len(record), 24))] = rng.randrange(256)
        plain, expected = parse(bytes(record), max(len(record) - rng.choice([0, 0, 0, 1, 7]), 0))
        if plain[0]:
            accepted += 1
            assert plain[1:] == expected[:7]
    assert accepted
