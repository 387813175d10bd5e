"""Markers that nothing needs any more, against the slow round of tests/reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kseg.compaction.markers import settle, transaction_rows
from kseg.index.txn import AbortedTxn
from kseg.log.walk import Chunk
from kseg.native import memory
from tests.native.harness import walk
from tests.reference import batch as v2
from tests.reference.compaction import Transaction, settle_markers
from tests.reference.record import Record

START = 1_700_000_000_000
DATA, PLAIN, ABORT, COMMIT, EMPTY = "data", "plain", "abort", "commit", "empty"
STEPS = st.lists(
    st.tuples(st.sampled_from([DATA, DATA, PLAIN, ABORT, COMMIT, EMPTY]), st.integers(0, 2)), min_size=1, max_size=25
)


def log_of(steps):
    """One batch of one record a step; gives the batches and the transactions that were aborted."""
    batches, aborted, opened = [], [], {}
    for offset, (kind, producer) in enumerate(steps):
        flags = 0 if kind == PLAIN else v2.TXN_BIT
        record = Record(offset, START, b"k", b"v")
        if kind in (ABORT, COMMIT, EMPTY):
            flags |= v2.CONTROL_BIT
            record = Record(offset, START, bytes(2) + (kind == COMMIT).to_bytes(2, "big"), bytes(6))
        if kind == DATA:
            opened.setdefault(producer, offset)
        elif kind in (ABORT, COMMIT):
            first = opened.pop(producer, None)
            if kind == ABORT:
                aborted.append(Transaction(producer, offset if first is None else first, offset))
        fields = v2.Fields(offset, flags=flags, max_timestamp=START, producer_id=producer, producer_epoch=0)
        batches.append(v2.encode_batch([] if kind == EMPTY else [record], fields))
    return batches, aborted


@given(STEPS, st.data())
def test_markers_are_settled_as_by_the_twin(steps, data):
    batches, aborted = log_of(steps)
    gone = data.draw(st.sets(st.integers(0, len(steps) - 1)))  # what earlier rounds have taken away
    left = [batch for number, batch in enumerate(batches) if number not in gone]
    listed = [txn for txn in aborted if data.draw(st.booleans()) or txn.last_offset not in gone]
    empty, kept = settle_markers([v2.read_batch(batch) for batch in left], listed)
    raw = b"".join(left)
    found = walk(raw)
    chunk = Chunk(memory.as_array(raw), 0, found.table, found.rows)
    cut = data.draw(st.integers(0, found.rows))  # pieces are put together again
    parts = [transaction_rows(chunk, range(cut)), transaction_rows(chunk, range(cut, found.rows))]
    entries = [AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, 0) for txn in listed]
    settled = settle(parts, entries)
    assert settled.empty_markers.tolist() == sorted(empty)
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in settled.kept] == [
        (txn.producer_id, txn.first_offset, txn.last_offset) for txn in kept
    ]
