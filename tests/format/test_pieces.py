"""Several runs of batches in one record batch: the same rows as one run at a time, and damage in its place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptRecordError
from kseg.format import arrow
from kseg.format.arrow import RecordDecoder
from kseg.native import memory
from kseg.schema import select_columns
from tests.format.decoding import EVERYTHING, decoded, table_for
from tests.reference import batch as v2
from tests.reference.record import Record
from tests.strategies import segments

COLUMNS = ["key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch", "sequence"]


def in_runs(data, size, **options):
    """Decode `size` batches at a time; the bytes of each run are overwritten before the next comes."""
    decoder = RecordDecoder(select_columns(COLUMNS), topic="orders", partition=3, **options)
    table = table_for(data)
    for first in range(0, table.shape[1], size):
        rows = range(first, min(first + size, table.shape[1]))
        array = memory.as_array(bytearray(data))
        yield from decoder.add(array, 0, table, rows, np.zeros(table.shape[1], np.bool_), *EVERYTHING)
        array[:] = 255
    yield from decoder.finish()


def rows_of(batches):
    found = list(batches)
    for batch in found:
        batch.validate(full=True)
    return pa.Table.from_batches(found, select_columns(COLUMNS)).to_pylist()


@given(segments(), st.integers(1, 3))
def test_runs_add_up(case, size):
    assert rows_of(in_runs(case.data, size)) == rows_of(decoded(case.data, COLUMNS))


def batches(count):
    """Batches of two records, every third with headers and a null value."""
    made = []
    for i in range(count):
        odd = (
            {"headers": ((b"h", None), (b"g", b"%d" % i)), "value": None} if i % 3 == 0 else {"value": b"v" * (i % 90)}
        )
        pair = [Record(2 * i, 5, b"key-%d" % i, **odd), Record(2 * i + 1, 6, None if i % 5 else b"", b"w")]
        made.append(v2.encode_batch(pair, v2.Fields(base_offset=2 * i, base_timestamp=5)))
    return made


def test_runs_share_a_record_batch():
    data = b"".join(batches(200))
    found = list(in_runs(data, 7))
    assert len(found) == 1
    assert rows_of(found) == rows_of(decoded(data, COLUMNS))


def test_a_batch_is_given_when_it_is_large_enough():
    data = b"".join(batches(200))
    found = list(in_runs(data, 7, batch_bytes=1000))
    assert len(found) > 5
    assert rows_of(found) == rows_of(decoded(data, COLUMNS))


def test_keys_that_grow_are_a_reason_for_a_new_batch_alone(monkeypatch):
    monkeypatch.setattr(arrow, "FEWEST_KEY_BYTES", 0)
    sizes = [1] * 30 + [500] * 30
    data = b"".join(
        v2.encode_batch([Record(i, 1, b"k" * size, b"v" * 400)], v2.Fields(base_offset=i))
        for i, size in enumerate(sizes)
    )
    assert rows_of(in_runs(data, 4, batch_bytes=4000)) == rows_of(decoded(data, COLUMNS))


def test_records_before_damage_are_given_first():
    made = batches(9)
    broken = bytearray(made[7])
    broken[57:61] = (3).to_bytes(4, "big")  # one record more than there is
    found = []
    with pytest.raises(CorruptRecordError):
        for batch in in_runs(b"".join([*made[:7], bytes(broken), made[8]]), 2):
            found.append(batch)  # noqa: PERF402  (what came before the error counts)
    assert rows_of(found) == rows_of(decoded(b"".join(made[:7]), COLUMNS))
