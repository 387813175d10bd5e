"""The map of keys against a dict."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import keymap as native
from kseg.native.records import OFFSET, RECORD_COLUMNS

SLOTS = 16 * native.REGIONS
WORDS = st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))
NO_BITS = np.empty(0, np.uint8)
ENTRIES = st.lists(st.tuples(WORDS, st.integers(0, 2), st.integers(0, 1000)), max_size=60)


def held_by(slots, region):
    size = len(slots) // native.REGIONS
    return int(np.count_nonzero(slots[region * size : (region + 1) * size, 2]))


def put_all(slots, entries, limit, first_offset=0, bits=NO_BITS, together=1):
    """Put entries, some regions at a time, as `KeyMap` does; gives how many keys there are, None where one was full."""
    given = np.array(entries, np.int64).reshape(-1, 3)
    by_region, ends = np.zeros_like(given), np.zeros(native.REGIONS, np.int64)
    native.sort_by_region(given, len(given), ends, by_region)
    assert by_region.tolist() == sorted(given.tolist(), key=lambda entry: entry[0] >> 60 & 15)  # a stable sort
    for region, (start, end) in enumerate(itertools.pairwise([0, *ends.tolist()])):
        assert all((int(low) >> 60) & 15 == region for low in by_region[start:end, 0])
    held = np.array([held_by(slots, region) for region in range(native.REGIONS)])
    for first in range(0, native.REGIONS, together):
        stop = first + together
        if native.put_keys(slots, first, stop, by_region, ends, held, limit, first_offset, bits) < stop:
            return None
    assert held.tolist() == [held_by(slots, region) for region in range(native.REGIONS)]
    return int(held.sum())


@given(ENTRIES, st.lists(st.tuples(WORDS, st.integers(0, 2)), max_size=10), st.sampled_from([1, 4, native.REGIONS]))
def test_the_map_is_a_dict_of_greatest_offsets(entries, others, together):
    expected: dict[tuple[int, int], int] = {}
    per_region: dict[int, set[tuple[int, int]]] = {}
    for low, high, offset in entries:
        expected[low, high] = max(expected.get((low, high), -1), offset)
        per_region.setdefault(low >> 60 & 15, set()).add((low, high))
    slots = np.zeros((SLOTS, 3), np.int64)
    limit = 12
    total = put_all(slots, entries, limit, together=together)
    if any(len(keys) > limit for keys in per_region.values()):
        assert total is None
        return
    assert total == len(expected)
    asked = [*expected, *others]
    hashes = np.array(asked, np.int64).reshape(-1, 2)
    for wanted in (True, False):
        latest = np.zeros(len(asked), np.int64)
        native.fill_latest(slots, hashes, np.full(len(asked), wanted), len(asked), latest)
        assert latest.tolist() == [expected.get(key, -1) if wanted else -1 for key in asked]


@given(
    st.lists(st.tuples(WORDS, st.integers(0, 2)), max_size=60), st.lists(st.tuples(WORDS, st.integers(0, 2))), st.data()
)
def test_bits_tell_which_entries_are_the_latest_where_those_behind_are_known(keys, behind, data):
    """Entries in the order of their offsets, from 5 on; some have no bit."""
    slots = np.zeros((SLOTS, 3), np.int64)
    first, known = 5, data.draw(st.integers(0, 9)) * 8
    entries = [(*key, first + i) for i, key in enumerate(keys)]
    later = [(*key, 1000 + i) for i, key in enumerate(behind)]
    bits = np.zeros(known // 8, np.uint8)
    if put_all(slots, later, 15) is None or put_all(slots, entries, 15, first, bits) is None:
        return
    expected = [key not in behind and key not in keys[i + 1 :] for i, key in enumerate(keys)]
    marked = np.unpackbits(bits, bitorder="little").astype(bool).tolist()
    assert marked[: len(keys)] == expected[:known]
    assert not any(marked[len(keys) :])


@given(ENTRIES)
def test_a_larger_table_holds_what_the_smaller_did(entries):
    slots, larger = np.zeros((SLOTS, 3), np.int64), np.zeros((2 * SLOTS, 3), np.int64)
    if put_all(slots, entries, 12) is None:
        return
    held = np.zeros(native.REGIONS, np.int64)
    native.move_keys(slots, larger, held)
    rows = {tuple(row) for row in slots[slots[:, 2] > 0].tolist()}
    assert {tuple(row) for row in larger[larger[:, 2] > 0].tolist()} == rows
    regions = [int(low) >> 60 & 15 for low, _, _ in rows]
    assert held.tolist() == [regions.count(region) for region in range(native.REGIONS)]
    hashes = np.array([row[:2] for row in rows], np.int64).reshape(-1, 2)
    latest = np.zeros(len(rows), np.int64)
    native.fill_latest(larger, hashes, np.ones(len(rows), np.bool_), len(rows), latest)
    assert latest.tolist() == [offset - 1 for _, _, offset in rows]


@given(st.dictionaries(st.tuples(WORDS, WORDS), st.integers(5, 90), max_size=40), st.lists(st.integers(0, 120)))
def test_offsets_that_the_map_does_not_hold_are_superseded(latest, offsets):
    slots = np.zeros((SLOTS, 3), np.int64)
    if put_all(slots, [(*key, offset) for key, offset in latest.items()], 15) is None:
        return
    bits = np.zeros(11, np.uint8)  # for 5 to 92; what is outside belongs to records that nothing supersedes
    native.mark_latest(slots, 5, bits)
    columns = np.zeros((RECORD_COLUMNS, len(offsets)), np.int64)
    columns[OFFSET] = offsets
    found = np.zeros(len(offsets), np.int64)
    native.fill_latest_marked(bits, 5, columns, len(offsets), found)
    held = set(latest.values())
    for offset, after in zip(offsets, found.tolist(), strict=True):
        assert after == (offset + 1 if 5 <= offset < 93 and offset not in held else -1)


def test_an_empty_map_marks_nothing():
    for size in (0, 1):
        room = np.zeros(size + 1, np.uint8)
        native.mark_latest(np.zeros((SLOTS, 3), np.int64), 5, room[:size])
        assert not room.any()


@given(st.sets(st.integers(0, 40)), st.lists(st.integers(0, 40), max_size=30))
def test_dropped_offsets_are_superseded(dropped, offsets):
    columns = np.zeros((RECORD_COLUMNS, len(offsets)), np.int64)
    columns[OFFSET] = offsets
    latest = np.zeros(len(offsets), np.int64)
    native.fill_latest_dropped(np.array(sorted(dropped), np.int64), columns, len(offsets), latest)
    assert [after > offset for after, offset in zip(latest.tolist(), offsets, strict=True)] == [
        offset in dropped for offset in offsets
    ]


@pytest.mark.parametrize("low", [0, -1, 1 << 62])
def test_probing_wraps_around_within_its_region(low):
    slots = np.zeros((SLOTS, 3), np.int64)
    size = SLOTS // native.REGIONS
    last = (low & ~(size - 1)) | (size - 1)  # all of these want the last slot of their region
    entries = [(last, high, high) for high in range(5)]
    assert put_all(slots, entries, 12) == 5
    used = np.flatnonzero(slots[:, 2])
    region = low >> 60 & 15
    assert set(used // size) == {region}
    assert len(used) == 5
