"""The map of keys against a dict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import keymap as native
from kseg.native.records import BATCH_ROW, KEY_LENGTH, KEY_START, OFFSET, RECORD_COLUMNS
from tests.reference.hash128 import siphash128
from tests.strategies import nullable_blobs

KEY = np.array([1, 2], np.uint64)
SLOTS = 16 * native.REGIONS
WORDS = st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))
ENTRIES = st.lists(st.tuples(WORDS, st.integers(0, 2), st.integers(0, 1000), st.booleans()), max_size=60)


def columns_of(keys, in_arena=()):
    """Keys in `data`, or in the arena where their number is in `in_arena`."""
    data, arena = bytearray(b"\x99"), bytearray(b"\x98\x98")
    columns = np.full((RECORD_COLUMNS, len(keys)), -1, np.int64)
    places = []
    for number, key in enumerate(keys):
        target = arena if number in in_arena else data
        places.append((number in in_arena, len(target)))
        target += key or b""
    for number, (key, (there, start)) in enumerate(zip(keys, places, strict=True)):
        columns[KEY_START, number] = start + (len(data) if there else 0)
        columns[KEY_LENGTH, number] = -1 if key is None else len(key)
    return np.frombuffer(bytes(data), np.uint8).copy(), np.frombuffer(bytes(arena), np.uint8).copy(), columns


@given(st.lists(nullable_blobs(), max_size=20), st.sets(st.integers(0, 20)))
def test_hashes_are_siphash_of_the_keys(keys, in_arena):
    data, arena, columns = columns_of(keys, in_arena)
    hashes = np.full((len(keys), 2), 7, np.int64)
    native.fill_key_hashes(data, arena, columns, len(keys), KEY, hashes)
    for key, found in zip(keys, hashes, strict=True):
        expected = [7, 7] if key is None else np.frombuffer(siphash128(key, KEY.tobytes()), np.int64).tolist()
        assert found.tolist() == expected


def put_all(slots, entries, limit):
    """Put entries region by region, as `KeyMap` does; gives how many keys there are, or None where one was full."""
    hashes = np.array([entry[:2] for entry in entries], np.int64).reshape(-1, 2)
    offsets = np.array([entry[2] for entry in entries], np.int64)
    wanted = np.array([entry[3] for entry in entries], np.bool_)
    order, ends = np.zeros(len(entries), np.int64), np.zeros(native.REGIONS, np.int64)
    native.order_by_region(hashes, wanted, len(entries), ends, order)
    start, total = 0, 0
    for region, end in enumerate(ends.tolist()):
        assert all(wanted[i] and (int(hashes[i, 0]) >> 60) & 15 == region for i in order[start:end])
        held = native.put_keys(slots, region, hashes, offsets, order, start, end, 0, limit)
        if held == native.FULL:
            return None
        start, total = end, total + held
    assert start == wanted.sum()
    return total


@given(ENTRIES, st.lists(st.tuples(WORDS, st.integers(0, 2)), max_size=10))
def test_the_map_is_a_dict_of_greatest_offsets(entries, others):
    expected: dict[tuple[int, int], int] = {}
    per_region: dict[int, set[tuple[int, int]]] = {}
    for low, high, offset, wanted in entries:
        if wanted:
            expected[low, high] = max(expected.get((low, high), -1), offset)
            per_region.setdefault(low >> 60 & 15, set()).add((low, high))
    slots = np.zeros((SLOTS, 3), np.int64)
    limit = 12
    total = put_all(slots, entries, limit)
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


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 50), st.integers(0, 2)), max_size=20), st.integers(0, 50))
def test_wanted_records_have_a_key_and_are_visible_and_dirty(records, first):
    columns = np.zeros((RECORD_COLUMNS, len(records)), np.int64)
    for i, (length, offset, row) in enumerate(records):
        columns[KEY_LENGTH, i], columns[OFFSET, i], columns[BATCH_ROW, i] = length, offset, row
    wanted = np.zeros(len(records), np.bool_)
    native.fill_wanted(columns, len(records), np.array([False, True, False]), first, wanted)
    assert wanted.tolist() == [length >= 0 and offset >= first and row != 1 for length, offset, row in records]


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
    entries = [(last, high, high, True) for high in range(5)]
    assert put_all(slots, entries, 12) == 5
    used = np.flatnonzero(slots[:, 2])
    region = low >> 60 & 15
    assert set(used // size) == {region}
    assert len(used) == 5
