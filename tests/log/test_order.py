"""Which batches are right about their offsets."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kseg.log.order import find_in_order, is_rising


def settle(rows, floor=-1):
    firsts, lasts = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return find_in_order(firsts, lasts, floor).tolist()


def test_a_leap_forward_is_wrong_and_not_all_that_follows():
    assert settle([(0, 9), (1010, 1019), (20, 29), (30, 39)]) == [True, False, True, True]


def test_a_step_back_is_wrong():
    assert settle([(0, 9), (10, 19), (4, 13), (30, 39)]) == [True, True, False, True]


def test_a_small_step_is_told_by_the_counts_of_the_batches():
    assert settle([(0, 9), (10, 19), (14, 23), (30, 39)]) == [True, True, False, True]
    assert settle([(0, 9), (26, 35), (20, 29), (30, 39)]) == [True, False, True, True]


def test_where_either_may_be_wrong_neither_counts():
    assert settle([(5, 6), (100, 101), (90, 91), (200, 201)]) == [True, False, False, True]


def test_before_the_floor_nothing_counts():
    assert settle([(3, 4), (10, 11), (12, 13)], floor=8) == [False, True, True]


spans = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 0, 1, 7])), min_size=3, max_size=30)


@given(spans, st.data())
def test_one_flipped_bit_leaves_only_right_offsets_and_in_a_dense_run_costs_one_batch(shape, data):
    rows, at = [], 0
    for span, hole in shape:
        rows.append((at + hole, at + hole + span - 1))
        at += hole + span
    which = data.draw(st.integers(0, len(rows) - 1))
    first, last = rows[which]
    moved = first ^ (1 << data.draw(st.integers(0, 40)))
    flipped = [*rows]
    flipped[which] = (moved, moved + last - first)
    right = settle(flipped)
    kept = [row for row, is_right in zip(flipped, right, strict=True) if is_right]
    firsts, lasts = (np.array([row[i] for row in kept], np.int64) for i in (0, 1))
    assert is_rising(firsts, lasts, -1)
    dense = all(hole == 0 for _, hole in shape)
    if dense and which < len(rows) - 1:
        assert right == [i != which for i in range(len(rows))]
    if is_rising(*(np.array([row[i] for row in flipped], np.int64) for i in (0, 1)), -1):
        assert all(right)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=7))
def test_what_counts_rises_whatever_is_claimed(shape):
    rows = [(first, first + span) for first, span in shape]
    right = settle(rows)
    kept = [row for row, is_right in zip(rows, right, strict=True) if is_right]
    assert all(before[1] < behind[0] for before, behind in itertools.pairwise(kept))
