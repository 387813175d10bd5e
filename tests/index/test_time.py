"""The time index."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.index.time import TimeIndex


def _bytes(*entries):
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


ENTRIES = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 50)), max_size=30).map(
    lambda steps: [(sum(s[0] for s in steps[: i + 1]), sum(s[1] for s in steps[:i])) for i in range(len(steps))]
)


@given(ENTRIES, st.integers(0, 2**62), st.integers(0, 40), st.integers(-5, 30_000))
def test_lookup_is_the_greatest_entry_not_above(entries, base, padding, target):
    index = TimeIndex.parse(_bytes(*entries) + bytes(12 * padding), base, "x.timeindex")
    if entries or padding != 1:
        assert list(index) == [(t, base + o) for t, o in entries]
    assert index.check() == []
    below = [(t, base + o) for t, o in index if t <= target]
    assert index.lookup(target)[0] == (below[-1][0] if below else -1)
    below = [(t, base + o) for t, o in entries if t <= target]
    if entries:
        assert index.lookup(target) == (below[-1] if below else (-1, base))
        assert index.last_entry == (entries[-1][0], base + entries[-1][1])
        assert index.max_timestamp == entries[-1][0]
        assert index.to_bytes() == _bytes(*entries)
    assert list(index.truncated(base + target)) == [(t, o) for t, o in index if o < base + target]


def test_an_empty_index():
    index = TimeIndex.parse(b"", 7)
    assert index.last_entry == (-1, 7)
    assert index.lookup(100) == (-1, 7)
    assert TimeIndex.parse(bytes(120), 7).entries == 0


def test_time_zero_in_the_first_batch_is_an_entry_of_a_sealed_file():
    index = TimeIndex.parse(bytes(12), 7)
    assert index.last_entry == (0, 7)


@pytest.mark.parametrize(
    ("data", "kept", "message"),
    [
        (_bytes((3, 1)) + b"\0", 1, "length 13 is no multiple of 12"),
        (_bytes((3, 1), (3, 2)), 1, "entry 1 (3, 2) does not follow"),
        (_bytes((3, 1), (4, 0)), 1, "entry 1 (4, 0) does not follow"),
        (_bytes((3, 5), (4, 4)), 1, "entry 1 (4, 4) does not follow"),
        (_bytes((3, 0), (4, 0)), 1, "entry 1 (4, 0) does not follow"),
        (_bytes((-3, 5)), 0, "entry 0 (-3, 5) does not follow"),
    ],
)
def test_what_is_wrong_ends_the_data_and_is_told(data, kept, message):
    index = TimeIndex.parse(data, 10, "x.timeindex")
    assert index.entries == kept
    assert message in str(index.check()[0])


def test_entries_past_the_log_are_told():
    index = TimeIndex.parse(_bytes((3, 100)), 10, "x.timeindex")
    assert index.check(next_offset=111) == []
    assert "offset 110" in str(index.check(next_offset=110)[0])


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_any_bytes_give_an_index(data, base, target):
    index = TimeIndex.parse(data, base)
    index.lookup(target)
    index.check(next_offset=base)
    assert data.startswith(index.to_bytes())


def test_an_entry_of_time_0_at_the_first_offset_is_no_padding_when_entries_follow():
    data = struct.pack(">qi", 0, 0) + struct.pack(">qi", 1, 2)
    assert list(TimeIndex.parse(data, 10)) == [(0, 10), (1, 12)]
    assert list(TimeIndex.parse(data[:12], 10)) == [(0, 10)]
    assert list(TimeIndex.parse(bytes(48), 10)) == []
