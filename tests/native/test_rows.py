"""Records straight into Arrow buffers against the twin: every column, ranges, pieces, room, nulls, units."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import records, rows
from kseg.native.memory import as_array
from kseg.native.short_copies import BEYOND
from tests.native.guarded import Guarded
from tests.native.harness import EVERYTHING, Decoder
from tests.reference import batch as v2
from tests.reference.record import Record
from tests.strategies import segments

NO_NUMBERS, NO_OFFSETS, NO_BYTES = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8)
LARGEST = (1 << 63) - 1


class Filled:
    """One call of `fill_rows` into guard-filled buffers with room for `limit` records and `size` bytes a column."""

    def __init__(
        self, decoder, state, *, row=0, end=None, limit=64, size=1 << 16, span=EVERYTHING, unit=1, largest=LARGEST,
        contents=None,
    ):  # fmt: skip
        self.state = state
        self.numbers = [np.full(limit, -99, np.int64) for _ in range(2)]
        self.binaries = [
            (np.full(limit + 1, -99, np.int32), content, np.zeros((limit + 7) // 8, np.uint8))
            for content in contents or [np.zeros(size, np.uint8) for _ in range(2)]
        ]
        self.places = np.full((2, limit), -99, np.int64)
        self.kept = np.zeros(decoder.walk.rows, np.int64)
        self.limits = (*span, limit), (unit, largest)
        self.fill(decoder, row, decoder.walk.rows if end is None else end)

    def fill(self, decoder, row, end):
        span, scale = self.limits
        self.row, self.status = rows.fill_rows(
            decoder.array, decoder.arena, decoder.walk.table, row, end, decoder.skip, decoder.starts, decoder.ends,
            *span, *self.numbers, *scale, *self.binaries[0], *self.binaries[1], self.places, self.kept, self.state,
        )  # fmt: skip

    def rows(self):
        """(offset, timestamp, key, value, number of headers) of each record."""
        count = int(self.state[rows.FILLED])
        nulls = self.state[[records.NULL_KEYS, records.NULL_VALUES]]
        fields = []
        for (offsets, content, bitmap), missing in zip(self.binaries, nulls.tolist(), strict=True):
            buffers = [pa.py_buffer(bitmap) if missing else None, pa.py_buffer(offsets), pa.py_buffer(content)]
            column = pa.Array.from_buffers(pa.binary(), count, buffers)
            column.validate(full=True)
            assert column.null_count == missing
            fields.append(column.to_pylist())
        headers = self.places[1, :count].tolist() if self.state[rows.WITH_HEADERS] else [0] * count
        columns = [*(numbers[:count].tolist() for numbers in self.numbers), *fields, headers]
        return list(zip(*columns, strict=True))


def prepared(data):
    decoder = Decoder(data)
    decoder.payloads()
    return decoder


def expected(found):
    return [(one.offset, one.timestamp, one.key, one.value, len(one.headers)) for one in found]


def fresh():
    return np.zeros(rows.STATE, np.int64)


@given(segments(), st.integers(-2, 30), st.integers(-2, 30))
def test_records_of_a_range(case, first, last):
    span = (case.base + first, case.base + last)
    done = Filled(prepared(case.data), fresh(), limit=max(len(case.records), 1), span=span)
    assert done.status == records.DONE
    assert done.rows() == expected(one for one in case.records if span[0] <= one.offset < span[1])
    assert done.kept.sum() == done.state[rows.FILLED]
    with_headers = [one for one in case.records if one.headers and span[0] <= one.offset < span[1]]
    assert done.state[rows.WITH_HEADERS] == len(with_headers)
    assert done.state[records.HEADERS] == sum(len(one.headers) for one in with_headers)


@given(segments(), st.integers(1, 5), st.integers(0, 40))
def test_pieces_add_up(case, limit, size):
    decoder, state, row, found = prepared(case.data), fresh(), 0, []
    largest = max((max(len(one.key or b""), len(one.value or b"")) for one in case.records), default=0)
    while True:
        piece = Filled(decoder, state, row=row, limit=limit, size=max(size, largest))
        found += piece.rows()
        if piece.status != records.PIECE_FULL:
            break
        assert state[rows.FILLED] > 0
        row = int(piece.row)
        state[: rows.NEXT_RECORD] = 0
    assert piece.status == records.DONE
    assert found == expected(case.records)


@given(segments())
def test_columns_that_are_not_wanted_are_not_touched(case):
    decoder, state = prepared(case.data), fresh()
    outputs = [NO_NUMBERS, NO_NUMBERS, 1, 0, NO_OFFSETS, NO_BYTES, NO_BYTES, NO_OFFSETS, NO_BYTES, NO_BYTES]
    kept = np.zeros(decoder.walk.rows, np.int64)
    _, status = rows.fill_rows(
        decoder.array, decoder.arena, decoder.walk.table, 0, decoder.walk.rows, decoder.skip, decoder.starts,
        decoder.ends, *EVERYTHING, 1 << 20, *outputs, np.empty((2, 0), np.int64), kept, state,
    )  # fmt: skip
    assert status == records.DONE
    assert state[rows.FILLED] == len(case.records)


def test_a_second_call_appends():
    made = [[Record(2 * i, 1, b"abc", None), Record(2 * i + 1, 1, None, b"x" * i)] for i in range(4)]
    fields = [v2.Fields(base_offset=2 * i) for i in range(4)]
    decoder = prepared(b"".join(v2.encode_batch(pair, of) for pair, of in zip(made, fields, strict=True)))
    done, all_rows = Filled(decoder, fresh()), decoder.walk.rows
    state = fresh()
    parts = Filled(decoder, state, end=1)
    for row in range(1, all_rows):
        parts.fill(decoder, row, row + 1)
    assert parts.rows() == done.rows() == expected(one for pair in made for one in pair)


def test_a_record_without_room_is_left_for_the_next_piece():
    made = [Record(0, 1, b"abc", b"x" * 10), Record(1, 1, None, b"y" * 11), Record(2, 1, b"d", None)]
    decoder, state = prepared(v2.encode_batch(made)), fresh()
    first = Filled(decoder, state, size=12)
    assert (first.status, first.row) == (records.PIECE_FULL, 0)
    assert first.rows() == expected(made[:1])
    state[: rows.NEXT_RECORD] = 0
    assert Filled(decoder, state, size=12).rows() == expected(made[1:])
    assert Filled(decoder, fresh(), size=9).state[rows.FILLED] == 0


LENGTHS = st.sampled_from([0, 1, 12, 31, 32, 33, 64, 96, 127, 128, 129, 160, 191, 192, 193, 256, 257, 1000])


@given(
    st.lists(st.tuples(st.none() | LENGTHS, st.none() | LENGTHS), min_size=1, max_size=12),
    st.integers(0, 2 * BEYOND),
    st.integers(0, 2 * BEYOND),
    st.integers(0, 2 * BEYOND),
)
def test_fields_of_any_length_where_more_may_be_copied_and_where_not(lengths, behind, keys, values):
    """Bytes behind the payload, and room beyond the fields: more than a copy may touch of either, or less."""
    fields = [[None if n is None else bytes([i + 1]) * n for n in pair] for i, pair in enumerate(lengths)]
    made = [Record(i, 1, *pair) for i, pair in enumerate(fields)]
    data = v2.encode_batch(made)
    decoder = prepared(data)
    room = Guarded(len(data) + behind)
    decoder.array = room.holding(data + b"\xa5" * behind)
    sizes = [sum(len(pair[column] or b"") for pair in fields) for column in (0, 1)]
    rooms = [Guarded(size + more) for size, more in zip(sizes, (keys, values), strict=True)]
    contents = [one.array(size + more) for one, size, more in zip(rooms, sizes, (keys, values), strict=True)]
    done = Filled(decoder, fresh(), contents=contents)
    assert (done.status, done.rows()) == (records.DONE, expected(made))
    assert decoder.array.tobytes() == data + b"\xa5" * behind


@pytest.mark.parametrize("first", range(4))
def test_headers_that_come_late_are_told_of_all_records(first):
    made = [Record(i, 1, b"k", b"v", ((b"h", b"x"),) * (i % 3) if i >= first else ()) for i in range(8)]
    for data in (v2.encode_batch(made), v2.encode_batch(made) + bytes(BEYOND)):
        decoder = prepared(v2.encode_batch(made))
        decoder.array = as_array(data)
        done = Filled(decoder, fresh())
        assert [row[4] for row in done.rows()] == [len(one.headers) for one in made]


@pytest.mark.parametrize(("timestamp", "unfit"), [(5000, 0), (-5000, 0), (5001, 5001), (-5001, -5001)])
def test_timestamps_in_another_unit(timestamp, unfit):
    data = v2.encode_batch([Record(0, timestamp, None, None)], v2.Fields(base_timestamp=timestamp))
    done = Filled(prepared(data), fresh(), unit=1000, largest=5000)
    assert done.state[rows.UNFIT_TIMESTAMP] == unfit
    assert done.numbers[1][0] == (-99 if unfit else timestamp * 1000)


@given(segments())
def test_what_rows_can_hold_at_most(case):
    decoder = prepared(case.data)
    args = (decoder.walk.table, 0, decoder.walk.rows, decoder.skip, decoder.starts, decoder.ends)
    count, size, kind = rows.measure_rows(*args)
    assert count == len(case.records)
    assert size >= sum(len(one.key or b"") + len(one.value or b"") for one in case.records)
    kinds = {one.timestamp_type for one in case.records}
    assert kind == (kinds.pop() if len(kinds) == 1 else rows.MIXED_TYPES)
