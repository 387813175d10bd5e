"""Which of several batches stay that contradict each other by their offsets."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kseg.recovery.rising import find_rising


def settle(rows, full=None):
    firsts, lasts = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    given_full = np.ones(len(rows), np.bool_) if full is None else np.array(full, np.bool_)
    return find_rising(firsts, lasts, given_full).tolist()


def rises(rows):
    return all(one[1] < two[0] for one, two in itertools.pairwise(rows))


def worth(rows, full, kept):
    """What the best of several runs has most of: batches, then those that vouch for each other or are full."""
    distances = [first - sum(last - start + 1 for start, last in rows[:i]) for i, (first, _) in enumerate(rows)]
    joints = sum(one == two for one, two in itertools.pairwise(chosen(distances, kept)))
    return sum(kept), joints + sum(chosen(full, kept))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6), st.booleans()), max_size=9))
def test_the_best_of_all_rising_runs_stays(drawn):
    rows, full = [(first, first + span) for first, span, _ in drawn], [is_full for _, _, is_full in drawn]
    stays = settle(rows, full)
    every = [kept for kept in itertools.product([False, True], repeat=len(rows)) if rises(chosen(rows, kept))]
    assert rises(chosen(rows, stays))
    assert worth(rows, full, stays) == max(worth(rows, full, kept) for kept in every)


def chosen(items, kept):
    return list(itertools.compress(items, kept))


@given(st.lists(st.integers(1, 5), min_size=3, max_size=30), st.data())
def test_one_base_offset_of_a_dense_log_costs_its_own_batch_only(spans, data):
    """Also where the false offsets fit as well as the true ones of the neighbour that they contradict."""
    ends = list(itertools.accumulate(spans))
    rows = [(end - span, end - 1) for span, end in zip(spans, ends, strict=True)]
    which = data.draw(st.integers(1, len(rows) - 2))
    moved = rows[which][0] ^ (1 << data.draw(st.integers(0, 30)))
    flipped = [*rows]
    flipped[which] = (moved, moved + spans[which] - 1)
    stays = settle(flipped)
    if rises(flipped):
        assert all(stays)
    else:
        assert stays == [i != which for i in range(len(rows))]


def test_a_batch_that_reaches_over_those_behind_it_goes():
    rows = [(0, 9), (10, 534_852), (20, 29)]
    assert settle(rows, [True, False, True]) == [True, False, True]
    assert settle([*rows, (30, 39)], [True, False, True, True]) == [True, False, True, True]


def test_several_in_a_row_that_are_too_high_go():
    assert settle([(0, 9), (1010, 1019), (2020, 2029), (30, 39), (40, 49), (50, 59)]) == [True, False, False] + 3 * [
        True
    ]
    assert settle([]) == []
