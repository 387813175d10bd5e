"""Leader epochs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import IndexFileError
from kseg.index.epoch import LeaderEpochs
from tests.index.twins import make_table

EPOCHS = LeaderEpochs.parse(b"0\n3\n2 10\n4 20\n7 30\n")
ASSIGNMENTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=12)


def test_round_trip():
    assert [tuple(entry) for entry in EPOCHS.entries] == [(2, 10), (4, 20), (7, 30)]
    assert EPOCHS.to_bytes() == b"0\n3\n2 10\n4 20\n7 30\n"
    assert LeaderEpochs().to_bytes() == b"0\n0\n"


@pytest.mark.parametrize(
    ("epoch", "offset", "expected"),
    [
        (7, 35, [(2, 10), (4, 20), (7, 30)]),
        (7, 25, [(2, 10), (4, 20), (7, 25)]),
        (8, 40, [(2, 10), (4, 20), (7, 30), (8, 40)]),
        (8, 30, [(2, 10), (4, 20), (8, 30)]),
        (8, 15, [(2, 10), (8, 15)]),
        (5, 99, [(2, 10), (4, 20), (5, 99)]),
        (1, 5, [(1, 5)]),
    ],
)
def test_assign(epoch, offset, expected):
    assert [tuple(entry) for entry in EPOCHS.assign(epoch, offset).entries] == expected


@given(ASSIGNMENTS)
def test_entries_always_ascend(assignments):
    epochs = LeaderEpochs()
    for epoch, offset in assignments:
        epochs = epochs.assign(epoch, offset)
        assert epochs.latest.epoch == epoch
    pairs = [tuple(entry) for entry in epochs.entries]
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert LeaderEpochs.parse(epochs.to_bytes()) == epochs


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(7, (7, 99)), (8, (-1, -1)), (6, (4, 30)), (4, (4, 30)), (3, (2, 20)), (2, (2, 20)), (1, (1, 10)), (-1, (-1, -1))],
)
def test_end_offset_for(epoch, expected):
    assert EPOCHS.end_offset_for(epoch, 99) == expected
    assert LeaderEpochs().end_offset_for(epoch, 99) == (-1, -1)


def test_truncation():
    assert [tuple(e) for e in EPOCHS.truncate_from_end(30).entries] == [(2, 10), (4, 20)]
    assert EPOCHS.truncate_from_end(31) == EPOCHS
    assert [tuple(e) for e in EPOCHS.truncate_from_start(20).entries] == [(4, 20), (7, 30)]
    assert [tuple(e) for e in EPOCHS.truncate_from_start(25).entries] == [(4, 25), (7, 30)]
    assert [tuple(e) for e in EPOCHS.truncate_from_start(99).entries] == [(7, 99)]
    assert EPOCHS.truncate_from_start(9) == EPOCHS


def test_epoch_of_an_offset():
    assert [EPOCHS.epoch_of(offset) for offset in (9, 10, 19, 20, 30, 99)] == [None, 2, 2, 4, 7, 7]


@given(st.lists(st.integers(-1, 6), max_size=30), st.integers(0, 30))
def test_batches_give_the_epochs_that_rise(values, cut):
    table = make_table([{"base_offset": 10 * i, "leader_epoch": epoch} for i, epoch in enumerate(values)])
    expected = LeaderEpochs()
    for i, epoch in enumerate(values):
        if epoch >= 0 and (expected.latest is None or epoch > expected.latest.epoch):
            expected = expected.assign(epoch, 10 * i)
    cut = min(cut, len(values))
    got = LeaderEpochs().assign_batches(table, cut).assign_batches(table, len(values) - cut, first_row=cut)
    assert got == expected


def test_a_negative_epoch_is_an_error():
    with pytest.raises(IndexFileError, match="x: epoch -1"):
        LeaderEpochs.parse(b"0\n1\n-1 0\n", "x")
