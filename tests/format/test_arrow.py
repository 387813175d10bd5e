"""Batches to Arrow: types, nulls, ranges, column choice, odd text, errors with their place, and bounded memory."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptRecordError, FormatError
from kseg.schema import EXTRA_SCHEMA, RECORD_SCHEMA
from tests.builders import LogBuilder
from tests.format.decoding import decode, decoded, stream
from tests.reference import batch as v2
from tests.reference import legacy
from tests.reference.record import Record
from tests.reference.rows import as_text, records_of
from tests.strategies import segments

ALL_COLUMNS = pa.schema([*RECORD_SCHEMA, *EXTRA_SCHEMA])
GOOD = v2.encode_batch([Record(index, 1000, b"k", b"v") for index in range(3)])


def test_the_standard_columns():
    batch = decoded(GOOD)[0]
    assert batch.schema == RECORD_SCHEMA
    assert batch.schema.names == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    assert batch.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert set(batch.column("topic").to_pylist()) == {"orders"}
    assert set(batch.column("partition").to_pylist()) == {3}


@given(segments())
def test_segments_equal_the_twin(case):
    assert decode(case.data) == as_text(case.records)


@given(segments(), st.integers(-2, 30), st.integers(-2, 30))
def test_ranges(case, first, last):
    span = (case.base + first, case.base + last)
    expected = [record for record in case.records if span[0] <= record.offset < span[1]]
    assert decode(case.data, span=span) == as_text(expected)


@given(
    segments(), st.lists(st.sampled_from(RECORD_SCHEMA.names + EXTRA_SCHEMA.names), min_size=1, max_size=6, unique=True)
)
def test_column_choice_gives_the_same_values(case, columns):
    everything = pa.Table.from_batches(decoded(case.data, ALL_COLUMNS.names), ALL_COLUMNS).select(columns)
    some = decoded(case.data, columns)
    for batch in some:
        batch.validate(full=True)
        assert batch.schema.names == columns
    assert pa.Table.from_batches(some, everything.schema).equals(everything)


def test_skipped_rows(tmp_path):
    log = LogBuilder(tmp_path).batch(2).batch(3, codec="lz4").batch(2)
    data = b"".join(entry.data for entry in log.batches)
    kept = [record for index, entry in enumerate(log.batches) if index != 1 for record in entry.records]
    assert decode(data, skip=[1]) == kept
    assert [row for batch in decoded(data, ["offset"], skip=[1]) for row in batch.column(0).to_pylist()] == [
        r.offset for r in kept
    ]


def test_no_rows_make_no_batch_or_an_empty_one():
    empty = v2.encode_batch([], v2.Fields(base_offset=5, last_offset_delta=9))
    assert decode(empty) == []
    assert decode(GOOD, span=(50, 60)) == []


@pytest.mark.parametrize("extra", [b"", b"garbage"])
def test_a_batch_without_records_has_none(extra):
    """Kafka looks at nothing behind a count of 0."""
    assert decode(v2.encode_payload(extra, 0, v2.Fields())) == []


def test_extra_columns():
    fields = v2.Fields(0, None, 8, producer_id=77, producer_epoch=2, base_sequence=(1 << 31) - 2)
    data = v2.encode_batch([Record(index, 1000, b"k", None) for index in range(4)], fields)
    batch = decoded(data, EXTRA_SCHEMA.names)[0]
    assert batch.column("leaderEpoch").to_pylist() == [8] * 4
    assert batch.column("producerId").to_pylist() == [77] * 4
    assert batch.column("producerEpoch").to_pylist() == [2] * 4
    assert batch.column("sequence").to_pylist() == [(1 << 31) - 2, (1 << 31) - 1, 0, 1]


def test_legacy_records_have_no_producer():
    batch = decoded(legacy.encode_set([Record(0, 5, b"k", b"v")], 1), EXTRA_SCHEMA.names)[0]
    assert [column.to_pylist() for column in batch.columns] == [[-1]] * 4


def test_a_record_without_headers_has_null():
    data = v2.encode_batch([Record(0, 1, None, None), Record(1, 1, None, None, ((b"h", None),))])
    assert decoded(data)[0].column("headers").to_pylist() == [None, [{"key": "h", "value": None}]]


@pytest.mark.parametrize(
    "key", [b"\xff", b"a\x80b", b"\xe2\x82", b"\xed\xa0\x80", b"ok\xf0\x9f", b"\xc0\xaf", b"\xf8\x88\x80\x80\x80"]
)
def test_header_keys_that_are_no_utf8_become_sound_text(key):
    record = Record(0, 1, None, None, ((b"fine", b"1"), (key, b"2"), ("ü".encode(), b"3")))
    data = v2.encode_batch([record])
    assert decode(data) == as_text([record])


def test_header_keys_are_text():
    record = Record(0, 1, None, None, (("schlüssel-日本-🎉".encode(), b"x"), (b"", b"")))
    assert decode(v2.encode_batch([record])) == [record]


@pytest.mark.parametrize("timestamp", [0, -1, 1, (1 << 62), -(1 << 62), (1 << 63) - 1, -(1 << 63)])
def test_any_timestamp(timestamp):
    data = v2.encode_batch(
        [Record(0, timestamp, None, b"v")], v2.Fields(base_timestamp=timestamp, max_timestamp=timestamp)
    )
    assert decode(data)[0].timestamp == timestamp


def test_timestamps_wrap_as_in_java():
    data = v2.encode_payload(
        v2.encode_record(Record(0, 5, None, None), 0, 0), 1, v2.Fields(base_timestamp=(1 << 63) - 1)
    )
    assert decode(data) == list(v2.read_batch(data).records)


@pytest.mark.parametrize("count", [-1, -(1 << 31), 4, 1000, 1 << 24, (1 << 31) - 1])
@pytest.mark.parametrize("codec", range(5))
def test_hostile_counts(count, codec):
    made = v2.encode_batch([Record(index, 1000, b"k", b"v") for index in range(3)], v2.Fields(codec=codec))
    data = v2.repair(made[:57] + struct.pack(">i", count) + made[61:])
    with pytest.raises(CorruptRecordError) as raised:
        decode(data)
    assert raised.value.position == 0


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_dense_batch_is_answered_from_its_header_and_no_other(codec):
    """Payloads that cannot be decompressed, under checksums that fit, show who looks at them."""
    made = v2.encode_batch([Record(index, 1000, b"k", b"v") for index in range(3)], v2.Fields(codec=codec))
    dense = v2.repair(made[:61] + b"\xff" * (len(made) - 61))
    batches = decoded(dense, ["offset", "topic", "partition"])
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == [0, 1, 2]
    for data, columns in (dense, ["offset", "timestamp"]), (_with_a_hole(dense), ["offset"]):
        with pytest.raises(FormatError):
            decoded(data, columns)


def _with_a_hole(batch):
    """The same batch as the cleaner leaves it: with one more offset than records."""
    (last_delta,) = struct.unpack_from(">i", batch, 23)
    return v2.repair(batch[:23] + struct.pack(">i", last_delta + 1) + batch[27:])


def test_what_came_before_the_damage_is_given():
    bad = v2.encode_payload(b"\x00", 1, v2.Fields(base_offset=3))
    seen = []
    with pytest.raises(FormatError) as raised:
        for batch in stream(GOOD + bad + GOOD):
            seen += records_of(batch)
    assert [record.offset for record in seen] == [0, 1, 2]
    assert (raised.value.position, raised.value.offset) == (len(GOOD), 3)


def test_records_before_the_damage_in_a_batch_are_not_counted():
    """Columns that come from batch headers had the damaged batch's first records too."""
    sound = [v2.encode_record(Record(3 + index, 1000, b"k", b"v"), 3, 1000) for index in range(2)]
    bad = v2.encode_payload(b"".join(sound) + bytes(7), 3, v2.Fields(base_offset=3))
    seen = []
    with pytest.raises(FormatError):
        for batch in stream(GOOD + bad, ["offset", *EXTRA_SCHEMA.names]):
            seen += batch.column("offset").to_pylist()
    assert seen == [0, 1, 2]


def test_positions_are_those_of_the_file():
    data = GOOD + v2.encode_payload(b"\x00", 1, v2.Fields(base_offset=3))
    with pytest.raises(FormatError) as raised:
        decoded(data, file_position=70_000)
    assert raised.value.position == 70_000 + len(GOOD)


def test_earlier_results_survive_later_decodes():
    first = decoded(GOOD)
    before = records_of(first)
    for codec in range(1, 5):
        decoded(
            v2.encode_batch([Record(index, 7, b"zzz", b"other" * 50) for index in range(50)], v2.Fields(codec=codec))
        )
    assert records_of(first) == before


@pytest.mark.parametrize("columns", [["timestampType"], ["offset", "sequence"], ["producerId", "value"]])
def test_columns_of_batches_end_where_a_damaged_batch_begins(columns):
    """Records of the damaged batch that were read before its damage are in no column."""
    sound = v2.encode_batch([Record(index, 1000, b"k", b"v") for index in range(3)], v2.Fields(flags=v2.LAT_BIT))
    other = v2.encode_batch([Record(index, 1000, b"k", b"v") for index in range(3, 7)], v2.Fields(base_offset=3))
    damaged = bytearray(v2.encode_batch([Record(i, 1000, b"k", b"v") for i in range(7, 10)], v2.Fields(base_offset=7)))
    damaged[-9] = 0x7F  # the length of the last record
    batches = stream(sound + other + v2.repair(bytes(damaged)), columns)
    assert sum(batch.num_rows for batch in [next(batches)]) == 7
    with pytest.raises(FormatError):
        next(batches)
