"""The header walk against the twin: fields, statuses, bounds, resuming, and the checksum scan."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import headers
from kseg.native import table as t
from kseg.native.memory import as_array
from tests.native.harness import walk
from tests.reference import batch as v2
from tests.reference import legacy
from tests.reference.errors import RejectedError
from tests.reference.record import Record
from tests.strategies import batches, message_sets, segments

SMALL = v2.encode_batch([Record(5, 1000, b"k", b"v")], v2.Fields(base_offset=5, leader_epoch=7))


def row_of(table, row):
    return [int(value) for value in table[:, row]]


@given(batches(), st.integers(0, 1 << 40))
def test_all_fields_of_a_batch(case, file_position):
    done = walk(case.data, file_position=file_position)
    assert (done.rows, done.next, done.status) == (1, len(case.data), headers.WALKED)
    batch = case.batch
    assert row_of(done.table, 0) == [
        file_position, batch.size, batch.base_offset, batch.last_offset, batch.leader_epoch, 2, batch.crc,
        batch.attributes, batch.base_timestamp, batch.max_timestamp, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, batch.count, -1, -1, -1,
    ]  # fmt: skip


@pytest.mark.parametrize("attributes", [0x7FF8, -32768, -1 & ~7])
def test_unused_attribute_bits_are_kept(attributes):
    data = v2.repair(SMALL[:21] + struct.pack(">h", attributes) + SMALL[23:])
    assert walk(data).table[t.ATTRIBUTES, 0] == attributes & 0xFFFF


@given(message_sets())
def test_fields_of_legacy_entries(case):
    done = walk(case.data)
    entries, end = v2.walk(case.data)
    assert (done.rows, done.next, done.status) == (len(entries), end, headers.WALKED)
    for row, (position, size) in enumerate(entries):
        message = legacy.read_message(case.data[position : position + size])
        crc = int.from_bytes(case.data[position + 12 : position + 16], "big")
        found = row_of(done.table, row)
        wrapper = message.codec != 0
        assert found[: t.LEADER_EPOCH + 1] == [position, size, -1 if wrapper else message.offset, message.offset, -1]
        assert found[t.MAGIC : t.ATTRIBUTES + 1] == [message.magic, crc, message.attributes]
        assert found[t.MAX_TIMESTAMP] == message.timestamp
        assert found[t.PRODUCER_ID : t.BASE_SEQUENCE + 1] == [-1, -1, -1]
        assert found[t.COUNT] == (-1 if wrapper else 1)
        assert found[t.MARKER_TYPE :] == [-1, -1, -1]


@given(segments(), st.integers(0, 40))
def test_a_torn_end_is_incomplete(case, cut):
    data = case.data[: max(len(case.data) - cut, 0)]
    entries, end = v2.walk(data)
    done = walk(data)
    assert (done.rows, done.next) == (len(entries), end)
    assert done.status == (headers.WALKED if end == len(data) else headers.INCOMPLETE)
    assert [
        (p, s) for p, s in zip(done.table[t.POSITION, : done.rows], done.table[t.SIZE, : done.rows], strict=True)
    ] == entries


@given(st.binary(max_size=120))
def test_any_bytes_end_in_a_status(data):
    done = walk(data)
    try:
        entries, _ = v2.walk(data)
    except RejectedError:
        assert done.status < 0 or done.status == headers.INCOMPLETE
        return
    assert done.rows <= len(entries)
    assert 0 <= done.next <= len(data)


@pytest.mark.parametrize(
    ("length", "magic", "status"),
    [
        (13, 2, headers.BAD_LENGTH),
        (0, 0, headers.BAD_LENGTH),
        (-1, 2, headers.BAD_LENGTH),
        (-(1 << 31), 2, headers.BAD_LENGTH),
        (14, 2, headers.SHORT_BATCH),
        (48, 2, headers.SHORT_BATCH),
        (50, 3, headers.BAD_MAGIC),
        (50, -1, headers.BAD_MAGIC),
        (50, 127, headers.BAD_MAGIC),
    ],
)
def test_what_is_refused(length, magic, status):
    data = SMALL + struct.pack(">qiib", 6, length, 0, magic) + bytes(100)
    done = walk(data)
    assert (done.rows, done.next, done.status) == (1, len(SMALL), status)


@pytest.mark.parametrize("length", [(1 << 31) - 1, 1 << 30, 51 + 50])
def test_a_length_past_the_end_is_incomplete(length):
    done = walk(SMALL + struct.pack(">qiib", 6, length, 0, 2) + bytes(83))
    assert (done.rows, done.next, done.status) == (1, len(SMALL), headers.INCOMPLETE)


@pytest.mark.parametrize("left", range(18))
def test_too_few_bytes_to_tell_are_incomplete(left):
    done = walk(SMALL + SMALL[:left])
    assert (done.rows, done.next) == (1, len(SMALL))
    assert done.status == (headers.WALKED if left == 0 else headers.INCOMPLETE)


def test_a_full_table_is_resumed():
    data = SMALL * 5
    array, table = as_array(data), t.new_table(2)
    position, seen = 0, 0
    while True:
        rows, position, status = headers.fill_headers(array, position, len(data), 0, table, 0)
        assert list(table[t.POSITION, :rows]) == [(seen + row) * len(SMALL) for row in range(rows)]
        seen += rows
        if status != headers.TABLE_FULL:
            break
    assert (seen, status, position) == (5, headers.WALKED, len(data))


def test_rows_are_added_behind_the_first_row():
    table = t.new_table(4)
    table[:] = -7
    rows, _, status = headers.fill_headers(as_array(b"xx" + SMALL), 2, 2 + len(SMALL), 100, table, 3)
    assert (rows, status) == (1, headers.WALKED)
    assert table[t.POSITION, 3] == 102
    assert (table[:, :3] == -7).all()


@pytest.mark.parametrize(
    ("key", "value", "marker", "epoch"),
    [
        (bytes(4), bytes(2) + b"\x00\x00\x00\x07", 0, 7),
        (b"\x00\x00\x00\x01", bytes(2) + b"\x7f\xff\xff\xff", 1, 0x7FFFFFFF),
        (b"\x00\x00\x00\x03", b"\x00\x00" + bytes(9), 3, -1),
        (b"\x00\x05\x00\x01", bytes(2) + b"\x00\x00\x00\x01", 1, 1),
    ],
)
def test_markers(key, value, marker, epoch):
    fields = v2.Fields(flags=v2.TXN_BIT | v2.CONTROL_BIT, producer_id=9, producer_epoch=1)
    table = walk(v2.encode_batch([Record(0, 2000, key, value)], fields)).table
    assert (table[t.MARKER_TYPE, 0], table[t.COORDINATOR_EPOCH, 0]) == (marker, epoch)
    assert table[t.MARKER_TIMESTAMP, 0] == 2000


@pytest.mark.parametrize(("flags", "expected"), [(0, 2008), (v2.LAT_BIT, 2000)])
def test_a_markers_time_is_its_records(flags, expected):
    """That is the batch's greatest timestamp where nobody has changed the batch."""
    fields = v2.Fields(flags=v2.TXN_BIT | v2.CONTROL_BIT | flags, producer_id=9, producer_epoch=1)
    batch = bytearray(v2.encode_batch([Record(0, 2000, bytes(4), bytes(6))], fields))
    batch[27 + 7] ^= 8  # of the base timestamp
    table = walk(v2.repair(bytes(batch))).table
    assert (table[t.MARKER_TIMESTAMP, 0], table[t.MAX_TIMESTAMP, 0]) == (expected, 2000)


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x00\x00"])
def test_a_control_record_without_a_whole_key_has_no_type(key):
    fields = v2.Fields(flags=v2.TXN_BIT | v2.CONTROL_BIT)
    table = walk(v2.encode_batch([Record(0, 2000, key, bytes(6))], fields)).table
    assert (table[t.MARKER_TYPE, 0], table[t.COORDINATOR_EPOCH, 0]) == (-1, -1)


def test_an_empty_control_batch_has_no_type():
    table = walk(v2.encode_batch([], v2.Fields(flags=v2.TXN_BIT | v2.CONTROL_BIT, producer_id=9))).table
    assert table[t.MARKER_TYPE, 0] == -1


@given(st.binary(max_size=40))
def test_a_control_batch_of_any_bytes_is_walked(payload):
    data = v2.encode_payload(payload, 1, v2.Fields(flags=v2.CONTROL_BIT))
    done = walk(data)
    assert (done.rows, done.status) == (1, headers.WALKED)


@given(segments(), st.data())
def test_the_checksum_scan_finds_the_first_bad_row(case, data):
    done = walk(case.data)
    scan = headers.scan_checksums(as_array(case.data), 0, done.table, 0, done.rows)
    assert tuple(map(int, scan)) == (-1, 0)
    row = data.draw(st.integers(0, done.rows - 1))
    start, size = int(done.table[t.POSITION, row]), int(done.table[t.SIZE, row])
    legacy_entry = done.table[t.MAGIC, row] < 2
    position = start + data.draw(st.integers(17 if legacy_entry else 21, size - 1))
    broken = bytearray(case.data)
    broken[position] ^= 1 << data.draw(st.integers(0, 7))
    bad, computed = headers.scan_checksums(as_array(bytes(broken)), 0, done.table, 0, done.rows)
    assert bad == row
    entry = bytes(broken[start : start + size])
    fitting = legacy.repair(entry)[12:16] if legacy_entry else v2.repair(entry)[17:21]
    assert computed == int.from_bytes(fitting, "big")


@given(segments(), st.data())
def test_the_checked_walk_is_the_walk_up_to_the_first_bad_checksum(case, data):
    broken = bytearray(case.data)
    for position in data.draw(st.lists(st.integers(0, len(broken) - 1), max_size=2)):
        broken[position] ^= 1 << data.draw(st.integers(0, 7))
    done = walk(bytes(broken))
    bad, _ = headers.scan_checksums(as_array(bytes(broken)), 0, done.table, 0, done.rows)
    table = t.new_table(done.table.shape[1])
    rows, stopped, status = headers.fill_checked(as_array(bytes(broken)), 0, len(broken), 0, table, 0)
    if bad < 0:
        assert (rows, stopped, status) == (done.rows, done.next, done.status)
    else:
        assert (rows, stopped, status) == (bad, done.table[t.POSITION, bad], headers.BAD_CHECKSUM)
    known = rows + (bad >= 0)
    assert np.array_equal(table[:, :known], done.table[:, :known])


def test_the_checksum_scan_starts_where_it_is_told():
    data = bytes(v2.repair(SMALL)[:-1]) + b"\xff" + SMALL
    table = walk(data, file_position=1000).table
    assert headers.scan_checksums(as_array(data), 1000, table, 0, 2)[0] == 0
    assert headers.scan_checksums(as_array(data), 1000, table, 1, 1)[0] == -1
    assert np.all(table[t.POSITION, :2] >= 1000)


def first_wrong(rows, base_offset, last_offset):
    """The twin of `find_disorder`: rows are (base, last, magic)."""
    before = max(last_offset, base_offset - 1)
    for index, (base, last, magic) in enumerate(rows):
        first = last if base < 0 and magic < 2 else base
        if not before < first <= last <= base_offset + 0x7FFFFFFF or last < 0:
            return index, before
        before = last
    return -1, before


EDGES = st.sampled_from([-(1 << 63), -1, 0, (1 << 31) + 9, (1 << 31) + 10, (1 << 63) - 1])


@given(
    st.lists(st.tuples(st.integers(0, 40) | EDGES, st.integers(0, 40) | EDGES, st.sampled_from([0, 1, 2])), max_size=6),
    st.integers(0, 20),
    st.integers(-1, 20),
    st.booleans(),
)
def test_offsets_out_of_order(rows, base_offset, last_offset, is_sorted):
    rows = sorted(rows) if is_sorted else rows
    table = t.new_table(8)
    for index, (base, last, magic) in enumerate(rows):
        table[[t.BASE_OFFSET, t.LAST_OFFSET, t.MAGIC], index] = base, last, magic
    assert headers.find_disorder(table, len(rows), base_offset, last_offset) == first_wrong(
        rows, base_offset, last_offset
    )
