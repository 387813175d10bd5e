"""The offset index."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.index.offset import OffsetIndex


def _bytes(*entries):
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


ENTRIES = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 5000)), max_size=30).map(
    lambda steps: [(sum(s[0] for s in steps[: i + 1]), sum(s[1] for s in steps[: i + 1])) for i in range(len(steps))]
)


@given(ENTRIES, st.integers(0, 2**62), st.integers(0, 40), st.integers(-5, 40_000))
def test_lookup_is_the_greatest_entry_not_above(entries, base, padding, target):
    index = OffsetIndex.parse(_bytes(*entries) + bytes(8 * padding), base, "x.index")
    assert list(index) == [(base + o, p) for o, p in entries]
    assert index.check() == []
    below = [(base + o, p) for o, p in entries if base + o <= base + target]
    assert index.lookup(base + target) == (below[-1] if below else (base, 0))
    assert index.last_offset == (base + entries[-1][0] if entries else base)
    assert index.to_bytes() == _bytes(*entries)
    behind = [(base + o, p) for o, p in entries if p >= target + 7]
    assert index.fetch_upper_bound(target, 7) == (behind[0] if behind else None)
    assert list(index.truncated(base + target)) == [(base + o, p) for o, p in entries if o < target]


@pytest.mark.parametrize(
    ("data", "kept", "message"),
    [
        (_bytes((3, 100), (5, 200)) + b"\0\0\0", 2, "length 19 is no multiple of 8"),
        (_bytes((3, 100), (3, 200)), 1, "entry 1 (3, 200) does not follow"),
        (_bytes((3, 100), (2, 200), (9, 300)), 1, "entry 1 (2, 200) does not follow"),
        (_bytes((3, 100), (4, 90)), 1, "entry 1 (4, 90) does not follow"),
        (_bytes((3, 100), (-4, 190)), 1, "entry 1 (-4, 190) does not follow"),
        (_bytes((3, 100), (0, 0), (9, 300)), 1, "entry 1 (0, 0) does not follow"),
        (_bytes((0, 0), (9, 300)), 0, "entry 0 (0, 0) does not follow"),
    ],
)
def test_what_is_wrong_ends_the_data_and_is_told(data, kept, message):
    index = OffsetIndex.parse(data, 10, "x.index")
    assert index.entries == kept
    assert message in str(index.check()[0])
    assert str(index.check()[0]).startswith("x.index")


def test_entries_past_the_log_are_told():
    index = OffsetIndex.parse(_bytes((3, 100)), 10, "x.index")
    assert index.check(log_size=101, next_offset=14) == []
    assert "points at byte 100 of a log of 100 bytes" in str(index.check(log_size=100)[0])
    assert "offset 13" in str(index.check(next_offset=13)[0])


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_any_bytes_give_an_index(data, base, target):
    index = OffsetIndex.parse(data, base)
    index.lookup(target)
    index.check(log_size=10, next_offset=base)
    assert data.startswith(index.to_bytes())


def test_a_padded_file_of_a_live_broker(golden):
    path = golden / "unclean" / "plain-0" / "00000000000000000000.index"
    data = path.read_bytes()
    assert len(data) == 10 * 1024 * 1024
    index = OffsetIndex.parse(data, 0, str(path))
    log_size = path.with_suffix(".log").stat().st_size
    assert 0 < index.entries < 1000
    assert index.check(log_size=log_size) == []
