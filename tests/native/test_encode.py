"""The encoder against the twin: bytes, cuts, the table, and the room that it says is enough."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import encode as native
from kseg.native import records as r
from kseg.native import table as t
from kseg.native.memory import as_array
from tests.native.harness import walk
from tests.reference import batch as v2
from tests.reference.record import Record
from tests.strategies import record_lists

GUARD = 16


class Fields:
    """Bytes back to back, with where each of them lies."""

    def __init__(self):
        self.data = bytearray(b"\x77")

    def add(self, content):
        start = len(self.data)
        self.data += content or b""
        return start, -1 if content is None else len(content)

    def array(self):
        return as_array(bytes(self.data))


def encode(records, *, batch_bytes=1 << 30, batch_records=1 << 30, base_timestamp=None, base_offset=-1):
    """Run both kernels over records; gives the bytes and the table."""
    keys, values, header_keys, header_values = Fields(), Fields(), Fields(), Fields()
    headers = [header for record in records for header in record.headers]
    columns = np.zeros((r.RECORD_COLUMNS, len(records)), np.int64)
    header_columns = np.zeros((native.HEADER_COLUMNS, len(headers)), np.int64)
    seen = 0
    for row, record in enumerate(records):
        columns[r.OFFSET, row], columns[r.TIMESTAMP, row] = record.offset, record.timestamp
        columns[r.KEY_START, row], columns[r.KEY_LENGTH, row] = keys.add(record.key)
        columns[r.VALUE_START, row], columns[r.VALUE_LENGTH, row] = values.add(record.value)
        columns[r.HEADERS_START, row], columns[r.HEADERS_COUNT, row] = seen, len(record.headers)
        for key, value in record.headers:
            header_columns[:, seen] = (*header_keys.add(key), *header_values.add(value))
            seen += 1
    fixed = base_timestamp is not None
    limits = np.array([batch_bytes, batch_records, fixed, base_timestamp or 0, base_offset, 1 << 62], np.int64)
    size = sum(len(fields.data) for fields in (keys, values, header_keys, header_values))
    room = (
        size
        + native.RECORD_OVERHEAD * len(records)
        + native.HEADER_OVERHEAD * len(headers)
        + t.HEADER_SIZE * len(records)
    )
    out = np.full(room + GUARD, 0xEE, np.uint8)
    table = t.new_table(len(records))
    table[:] = -1
    done, count = native.fill_batches(
        columns, len(records), keys.array(), values.array(), header_columns, header_keys.array(), header_values.array(),
        limits, out[:room], 0, table, 0, 0,
    )  # fmt: skip
    assert done == len(records)
    assert bytes(out[room:]) == b"\xee" * GUARD, "wrote past the room that is said to be enough"
    return out, table, count


def finished(out, table, count, *, leader_epoch=-1, attributes=0):
    table[t.LEADER_EPOCH, :count] = leader_epoch
    table[t.ATTRIBUTES, :count] = attributes
    native.write_headers(out, table, count)
    end = int(table[t.POSITION, count - 1] + table[t.SIZE, count - 1]) if count else 0
    return bytes(out[:end])


@given(record_lists())
def test_one_batch_equals_the_twin(records):
    out, table, count = encode(records)
    assert count == 1
    assert finished(out, table, count, leader_epoch=6) == v2.encode_batch(
        records, v2.Fields(base_offset=records[0].offset, leader_epoch=6)
    )


@given(record_lists(max_size=20), st.integers(1, 6), st.integers(1, 300))
def test_cuts(records, batch_records, batch_bytes):
    out, table, count = encode(records, batch_records=batch_records, batch_bytes=batch_bytes)
    data = finished(out, table, count)
    entries, end = v2.walk(data)
    assert (len(entries), end) == (count, len(data))
    batches = [v2.read_batch(data, position) for position, _ in entries]
    assert [record for batch in batches for record in batch.records] == records
    for before, batch in zip([None, *batches], batches, strict=False):
        assert batch.count <= batch_records
        assert batch.count == 1 or batch.size <= batch_bytes
        if before is not None and before.count < batch_records:
            grown = v2.encode_batch([*before.records, batch.records[0]], v2.Fields(base_offset=before.base_offset))
            assert len(grown) > batch_bytes, "a batch was closed though the next record fitted"


@given(record_lists(max_size=8), st.integers(1, 4))
def test_the_table_equals_the_walk_of_the_bytes(records, batch_records):
    out, table, count = encode(records, batch_records=batch_records)
    data = finished(out, table, count)
    done = walk(data)
    assert done.rows == count
    assert (done.table[: t.MARKER_TYPE, :count] == table[: t.MARKER_TYPE, :count]).all()


@given(record_lists(max_size=6), st.integers(0, 1 << 50))
def test_a_given_base_timestamp(records, base):
    out, table, count = encode(records, base_timestamp=base)
    data = finished(out, table, count, attributes=v2.HORIZON_BIT)
    assert data == v2.encode_batch(
        records, v2.Fields(records[0].offset, leader_epoch=-1, flags=v2.HORIZON_BIT, base_timestamp=base)
    )


@given(record_lists(base=40, max_size=6), st.integers(0, 40))
def test_a_given_base_offset(records, base):
    out, table, count = encode(records, base_offset=base)
    data = finished(out, table, count)
    assert data == v2.encode_batch(records, v2.Fields(base_offset=base, leader_epoch=-1))


@pytest.mark.parametrize("offsets", [[0, (1 << 31) - 1], [0, 1 << 31], [5, (1 << 31) + 4, (1 << 31) + 5, 1 << 62]])
def test_far_offsets(offsets):
    records = [Record(offset, 1, b"k", b"v") for offset in offsets]
    out, table, count = encode(records)
    data = finished(out, table, count)
    batches = [v2.read_batch(data, position) for position, _ in v2.walk(data)[0]]
    assert [record for batch in batches for record in batch.records] == records


@pytest.mark.parametrize("stamps", [[(1 << 62), -1], [-1, (1 << 62)], [0, (1 << 63) - 1]])
def test_far_timestamps(stamps):
    records = [Record(index, stamp, b"k", b"v") for index, stamp in enumerate(stamps)]
    out, table, count = encode(records)
    assert list(v2.read_batch(finished(out, table, count)).records) == records


def test_no_records():
    assert encode([])[2] == 0


def test_headers_are_written_from_the_table():
    out, table, count = encode([Record(7, 5, b"k", b"v")])
    table[t.BASE_OFFSET, 0], table[t.LAST_OFFSET, 0] = 3, 90
    table[t.PRODUCER_ID, 0], table[t.PRODUCER_EPOCH, 0], table[t.BASE_SEQUENCE, 0] = 1 << 40, 9, 77
    table[t.MAX_TIMESTAMP, 0] = 1234
    batch = v2.read_batch(finished(out, table, count, leader_epoch=2, attributes=v2.TXN_BIT))
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch, batch.max_timestamp) == (3, 90, 2, 1234)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (
        1 << 40,
        9,
        77,
        True,
    )
    assert (table[t.MAGIC, 0], table[t.CRC, 0]) == (2, batch.crc)
