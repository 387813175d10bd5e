"""Text checkpoints."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import IndexFileError
from kseg.index.checkpoint import format_lines, format_offsets, parse_epochs, parse_offsets
from kseg.types import TopicPartition

TOPICS = st.text("abcXYZ0129._-", min_size=1, max_size=20)
OFFSETS = st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1))


@given(OFFSETS)
def test_round_trip(offsets):
    assert parse_offsets(format_offsets(offsets)) == offsets


@pytest.mark.parametrize("data", [b"", b"0\n", b"0", b"0\n0\n", b"0\r\n0\r\n"])
def test_no_entries(data):
    assert parse_offsets(data) == {}


def test_what_kafka_takes_is_taken():
    expected = {TopicPartition("a-b.c", 3): 42, TopicPartition("t", 0): -1}
    assert parse_offsets(b"0\n2\na-b.c 3 42\nt  0\t-1") == expected
    assert parse_offsets(b"0\r\n2\r\na-b.c 3 42 \r\nt 0 -1\r\n") == expected
    assert parse_offsets(b"0\n2\nt 0 1\nt 0 2\n") == {TopicPartition("t", 0): 2}
    assert parse_epochs(b"0\n2\n0 0\n7 99\n") == [(0, 0), (7, 99)]
    assert parse_epochs(b"0\n1\n+7 -" + b"0" * 5000 + b"99\n") == [(7, -99)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1\n0\n", "version 1"),
        (b"x\n0\n", "line 1: 'x' is no number"),
        (b"\n", "line 1: '' is no number"),
        (b" 0\n0\n", "line 1"),
        (b"0\n2\nt 0 1\n", "2 entries expected, 1 found"),
        (b"0\n0\nt 0 1\n", "0 entries expected, 1 found"),
        (b"0\n-1\n", "-1 entries expected"),
        (b"0\n1\nt 0\n", "line 3: 't 0' has not 3 fields"),
        (b"0\n1\n t 0 1\n", "has not 3 fields"),
        (b"0\n1\nt 0 1\n\n", "has not 3 fields"),
        (b"0\n1\nt 0 9223372036854775808\n", "line 3"),
        (b"0\n1\nt 2147483648 0\n", "line 3"),
        (b"0\n1\nt 1_0 0\n", "line 3"),
        (b"0\n1\nt \xd9\xa0 0\n", "line 3"),
        (b"\x00\x00\x00", "line 1"),
        (b"0\n1\nt 0 " + b"9" * 5000, "line 3"),  # Python's own limit was a ValueError
    ],
)
def test_what_kafka_refuses_is_refused(data, message):
    with pytest.raises(IndexFileError) as caught:
        parse_offsets(data, "checkpoint")
    assert message in str(caught.value)
    assert str(caught.value).startswith("checkpoint: ")


@given(st.binary(max_size=60) | st.text("0123 \n\tab-", max_size=40).map(str.encode))
def test_any_bytes_give_offsets_or_an_error(data):
    with contextlib.suppress(IndexFileError):
        parse_offsets(data)


def test_golden_checkpoints_are_written_back_the_same(golden):
    paths = sorted(golden.glob("*/*-offset-checkpoint"))
    assert len(paths) >= 4
    for path in paths:
        data = path.read_bytes()
        if data:
            assert format_offsets(parse_offsets(data, str(path))) == data
    epochs = sorted(golden.glob("*/*/leader-epoch-checkpoint"))
    assert len(epochs) > 20
    for path in epochs:
        assert format_lines(parse_epochs(path.read_bytes(), str(path))) == path.read_bytes()
