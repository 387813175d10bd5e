"""Arrow to batches, against the twin's encoder."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import OptionError
from kseg.format import builder
from kseg.format.builder import BatchOptions, encode_batch, encode_batches, encode_marker
from kseg.native import table as t
from kseg.types import Codec, TimestampType
from tests.format.decoding import decode, table_for
from tests.reference import batch as v2
from tests.reference.record import Record
from tests.reference.rows import table_of
from tests.strategies import record_lists

NOW = 1_700_000_000_123


def encode(records, *, first_offset=0, **options):
    return encode_batches(table_of(records), first_offset=first_offset, options=BatchOptions(**options), now_ms=NOW)


def batches_of(made):
    """The twin's reading of every batch."""
    data = bytes(made.data)
    entries, end = v2.walk(data)
    assert end == len(data)
    return [v2.read_batch(data, position) for position, _ in entries]


def rows_of(batches):
    return [record for batch in batches for record in batch.records]


@given(record_lists())
def test_without_codec_the_bytes_are_the_twins(records):
    base = records[0].offset
    made = encode(records, first_offset=0, leader_epoch=4)
    assert bytes(made.data) == v2.encode_batch(records, v2.Fields(base_offset=base, leader_epoch=4))


@given(record_lists(max_size=30), st.sampled_from(list(Codec)), st.integers(1, 9), st.integers(1, 400))
def test_cut_into_batches(records, codec, batch_records, batch_bytes):
    made = encode(records, codec=codec, batch_records=batch_records, batch_bytes=batch_bytes)
    batches = batches_of(made)
    assert rows_of(batches) == records
    assert all(1 <= batch.count <= batch_records for batch in batches)
    for batch in batches:
        assert batch.codec == codec
        assert (batch.base_offset, batch.last_offset) == (batch.records[0].offset, batch.records[-1].offset)
        assert (batch.base_timestamp, batch.max_timestamp) == (
            batch.records[0].timestamp,
            max(record.timestamp for record in batch.records),
        )
        plain = v2.encode_batch(batch.records, v2.Fields(base_offset=batch.base_offset))
        assert batch.count == 1 or len(plain) <= batch_bytes, "a batch of several records passed batch_bytes"


@given(record_lists(max_size=20), st.sampled_from(list(Codec)), st.integers(1, 5))
def test_the_table_says_what_the_bytes_say(records, codec, batch_records):
    made = encode(
        records,
        codec=codec,
        batch_records=batch_records,
        leader_epoch=2,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0,
    )
    assert made.count == made.table.shape[1]
    read = table_for(bytes(made.data))
    assert (made.table[: t.MARKER_TYPE] == read[: t.MARKER_TYPE]).all()


def test_batches_are_filled_up_to_the_limit():
    records = [Record(index, 1000, b"k", b"v" * 100) for index in range(100)]
    batches = batches_of(encode(records, batch_bytes=2000))
    sizes = [batch.size for batch in batches]
    assert all(1700 < size <= 2000 for size in sizes[:-1])


def test_a_record_larger_than_the_limit_has_a_batch_of_its_own():
    records = [Record(0, 1, None, b"a"), Record(1, 1, None, b"b" * 5000), Record(2, 1, None, b"c")]
    batches = batches_of(encode(records, batch_bytes=1000))
    assert rows_of(batches) == records
    assert max(batch.size for batch in batches) > 5000
    assert all(batch.count == 1 for batch in batches if batch.size > 1000)


def test_offsets_that_are_too_far_apart_start_a_batch():
    records = [
        Record(0, 1, b"a", b""),
        Record((1 << 31) - 1, 1, b"b", b""),
        Record(1 << 31, 1, b"c", b""),
        Record(1 << 40, 1, b"d", b""),
    ]
    batches = batches_of(encode(records))
    assert rows_of(batches) == records
    assert all(batch.last_offset - batch.base_offset < 1 << 31 for batch in batches)


def test_offsets_are_assigned():
    rows = pa.record_batch({"value": pa.array([b"a", b"b", None])})
    made = encode_batches(rows, first_offset=41, options=BatchOptions(), now_ms=NOW)
    assert decode(bytes(made.data)) == [
        Record(41, NOW, None, b"a"),
        Record(42, NOW, None, b"b"),
        Record(43, NOW, None, None),
    ]


def test_no_rows_make_no_batches():
    made = encode([])
    assert (made.count, len(made.data)) == (0, 0)


def test_append_time():
    records = [Record(0, 5, b"k", b"v"), Record(1, 9, b"k", b"v")]
    batch = batches_of(encode(records, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=777))[0]
    assert batch.max_timestamp == 777
    assert [(record.timestamp, record.timestamp_type) for record in batch.records] == [(777, 1)] * 2


def test_sequences_count_on_by_offsets():
    records = [Record(offset, 1, b"k", b"v") for offset in (0, 1, 2, 5, 6)]
    made = encode(records, batch_records=2, producer_id=9, producer_epoch=3, base_sequence=100)
    batches = batches_of(made)
    assert [batch.base_sequence for batch in batches] == [100 + batch.base_offset for batch in batches]
    assert {(batch.producer_id, batch.producer_epoch) for batch in batches} == {(9, 3)}


def test_sequences_wrap_to_zero():
    records = [Record(offset, 1, b"k", b"v") for offset in range(4)]
    made = encode(records, batch_records=2, producer_id=9, producer_epoch=3, base_sequence=(1 << 31) - 2)
    assert [batch.base_sequence for batch in batches_of(made)] == [(1 << 31) - 2, 0]


def test_flags():
    batch = batches_of(
        encode([Record(0, 1, b"k", b"v")], is_transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)
    )[0]
    assert (batch.is_transactional, batch.is_control) == (True, False)


@given(record_lists(max_size=6), st.integers(0, 5), st.integers(0, 5), st.sampled_from(list(Codec)))
def test_one_batch_with_room_around_its_records(records, before, behind, codec):
    base, last = max(records[0].offset - before, 0), records[-1].offset + behind
    options = BatchOptions(codec=codec, producer_id=3, producer_epoch=0, base_sequence=8)
    batch = v2.read_batch(encode_batch(table_of(records), base_offset=base, last_offset=last, options=options))
    assert (batch.base_offset, batch.last_offset, batch.base_sequence) == (base, last, 8)
    assert list(batch.records) == records


@given(record_lists(max_size=6), st.integers(0, 1 << 45), st.sampled_from(list(Codec)))
def test_a_delete_horizon(records, horizon, codec):
    options = BatchOptions(codec=codec, delete_horizon_ms=horizon)
    batch = v2.read_batch(encode_batch(table_of(records), base_offset=records[0].offset, options=options))
    assert batch.delete_horizon == horizon
    assert list(batch.records) == records
    assert batch.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize("epoch", [0, 7, (1 << 31) - 1])
def test_markers(epoch):
    data = encode_marker(
        offset=1 << 40,
        timestamp=5,
        leader_epoch=2,
        producer_id=1 << 50,
        producer_epoch=32767,
        commit=False,
        coordinator_epoch=epoch,
    )
    batch = v2.read_batch(data)
    assert (batch.is_control, batch.is_transactional, batch.base_sequence, batch.count) == (True, True, -1, 1)
    assert (batch.base_offset, batch.producer_id, batch.producer_epoch) == (1 << 40, 1 << 50, 32767)
    assert batch.records[0].key == bytes(4)
    assert batch.records[0].value == bytes(2) + epoch.to_bytes(4, "big")


@pytest.mark.parametrize("wrong", [{"batch_bytes": 0}, {"batch_records": 0}, {"codec": Codec.GZIP, "level": 10}])
def test_options_that_are_refused(wrong):
    with pytest.raises(OptionError):
        BatchOptions(**wrong)


def test_options_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BatchOptions().codec = Codec.GZIP


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.label)
@pytest.mark.parametrize("group_bytes", [1, 700, 5000])
def test_groups_that_are_compressed_together_do_not_show(codec, group_bytes, monkeypatch):
    values = [b"value %d " % (number % 17) * (number % 50) for number in range(300)]
    options = BatchOptions(codec=codec, batch_records=7, producer_id=3, producer_epoch=0, base_sequence=5)
    rows = pa.record_batch({"value": values})
    whole = encode_batches(rows, first_offset=40, options=options, now_ms=9)
    monkeypatch.setattr(builder, "GROUP_BYTES", group_bytes)
    grouped = encode_batches(rows, first_offset=40, options=options, now_ms=9)
    assert grouped.data.tobytes() == whole.data.tobytes()
    assert (grouped.table == whole.table).all()
