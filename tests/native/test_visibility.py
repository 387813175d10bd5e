"""Which batches a reader must not see: control batches, and those of aborted transactions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import table as t
from kseg.native import visibility as native

CONTROL, TRANSACTIONAL = t.CONTROL_BIT, t.TRANSACTIONAL_BIT

rows = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from([0, TRANSACTIONAL, CONTROL | TRANSACTIONAL, CONTROL]), st.integers(1, 5)
    ),
    max_size=30,
)
aborted_ranges = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 80), st.integers(0, 30)), max_size=8)


def table_of(batches):
    """Batches one behind the other: (producer, attributes, offsets)."""
    table = t.new_table(len(batches))
    table[:] = -1
    offset = 0
    for row, (producer, attributes, span) in enumerate(batches):
        table[t.BASE_OFFSET, row], table[t.LAST_OFFSET, row] = offset, offset + span - 1
        table[t.PRODUCER_ID, row], table[t.ATTRIBUTES, row], table[t.MAGIC, row] = producer, attributes, 2
        offset += span
    return table


def disjoint(ranges):
    """Transactions of one producer never overlap; sorted as the kernel wants them."""
    kept, ends = [], {}
    for producer, first, span in sorted(ranges):
        if first > ends.get(producer, -1):
            kept.append((producer, first, first + span))
            ends[producer] = first + span
    return kept


def hidden_by_twin(batches, table, aborted):
    hidden = []
    for row, (producer, attributes, _) in enumerate(batches):
        base, last = int(table[t.BASE_OFFSET, row]), int(table[t.LAST_OFFSET, row])
        covered = any(owner == producer and first <= base and last <= marker for owner, first, marker in aborted)
        hidden.append(bool(attributes & CONTROL) or (bool(attributes & TRANSACTIONAL) and covered))
    return hidden


def on_edge(batches, table, aborted):
    """Whether a range ends inside a batch, which no log has: a marker is a batch of its own."""
    for row, (producer, _, _) in enumerate(batches):
        base, last = int(table[t.BASE_OFFSET, row]), int(table[t.LAST_OFFSET, row])
        for owner, first, marker in aborted:
            if owner == producer and first <= last and base <= marker and not (first <= base and last <= marker):
                return True
    return False


@given(rows, aborted_ranges)
def test_hidden_batches_equal_the_twins(batches, ranges):
    table, aborted = table_of(batches), disjoint(ranges)
    if on_edge(batches, table, aborted):
        return
    columns = [np.array([entry[index] for entry in aborted], np.int64) for index in range(3)]
    hidden = np.zeros(len(batches), np.bool_)
    found = native.fill_hidden(table, 0, len(batches), *columns, hidden)
    assert found == any(attributes for _, attributes, _ in batches)
    assert list(hidden) == hidden_by_twin(batches, table, aborted)


def test_only_the_rows_asked_for_are_written():
    table = table_of([(1, CONTROL, 1)] * 5)
    nothing = np.zeros(0, np.int64)
    hidden = np.zeros(5, np.bool_)
    native.fill_hidden(table, 1, 3, nothing, nothing, nothing, hidden)
    assert list(hidden[1:3]) == [True, True]
    assert list(hidden[3:]) == [False, False]


def test_a_later_transaction_of_the_same_producer_is_seen():
    table = table_of(
        [(7, TRANSACTIONAL, 2), (7, CONTROL | TRANSACTIONAL, 1), (7, TRANSACTIONAL, 2), (8, TRANSACTIONAL, 1)]
    )
    hidden = np.zeros(4, np.bool_)
    ranges = [np.array([value], np.int64) for value in (7, 0, 2)]
    native.fill_hidden(table, 0, 4, *ranges, hidden)
    assert list(hidden) == [True, True, False, False]
