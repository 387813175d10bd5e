"""Which Arrow columns a writer takes, in which types, and what it refuses."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from kseg.errors import OptionError
from kseg.format.builder import BatchOptions, encode_batches
from kseg.format.columns import encoder_input
from kseg.native import records
from kseg.schema import HEADER_TYPE
from tests.format.decoding import decode
from tests.reference.record import Record

NOW = 1_700_000_000_123
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(HEADER)


def written(first_offset=0, **columns):
    batch = columns.pop("batch", None) or pa.record_batch(columns)
    made = encode_batches(batch, first_offset=first_offset, options=BatchOptions(), now_ms=NOW)
    return decode(bytes(made.data))


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()],
    ids=str,
)
def test_types_of_keys_and_values(kind):
    texts = ["a", None, "", "longer than twelve bytes, so that a view points elsewhere"]
    values = (
        texts
        if pa.types.is_string(kind) or "string" in str(kind)
        else [t and t.encode() if t is not None else None for t in texts]
    )
    values = [b"" if value == "" and "binary" in str(kind) else value for value in values]
    rows = written(key=pa.array(values, kind), value=pa.array(values[::-1], kind))
    expected = [None if text is None else text.encode() for text in texts]
    assert [row.key for row in rows] == expected
    assert [row.value for row in rows] == expected[::-1]


def test_fixed_size_binary():
    assert [row.value for row in written(value=pa.array([b"abcd", None, b"efgh"], pa.binary(4)))] == [
        b"abcd",
        None,
        b"efgh",
    ]


def test_dictionaries():
    column = pa.array(["x", "y", None, "x"]).dictionary_encode()
    assert [row.value for row in written(value=column)] == [b"x", b"y", None, b"x"]


def test_a_column_of_nulls():
    assert written(key=pa.nulls(2), value=pa.array([b"a", b"b"])) == [
        Record(0, NOW, None, b"a"),
        Record(1, NOW, None, b"b"),
    ]


def test_slices():
    whole = pa.record_batch(
        {
            "key": pa.array([b"%d" % i for i in range(10)]),
            "value": pa.array([None if i % 3 else b"v%d" % i for i in range(10)]),
        }
    )
    rows = written(batch=whole.slice(3, 4))
    assert [row.key for row in rows] == [b"3", b"4", b"5", b"6"]
    assert [row.value for row in rows] == [b"v3", None, None, b"v6"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit(unit, zone):
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    column = pa.array([moment, None], pa.timestamp(unit, tz=zone or "UTC"))
    column = column if zone else column.cast(pa.timestamp(unit))
    assert [row.timestamp for row in written(value=pa.array([b"a", b"b"]), timestamp=column)] == [
        int(moment.timestamp() * 1000),
        NOW,
    ]


def test_timestamps_as_milliseconds():
    rows = written(value=pa.array([b"a", b"b", b"c"]), timestamp=pa.array([5, None, 1 << 45], pa.int64()))
    assert [row.timestamp for row in rows] == [5, NOW, 1 << 45]


def test_given_offsets_keep_their_holes():
    rows = written(first_offset=5, value=pa.array([b"a", b"b"]), offset=pa.array([7, 99], pa.int64()))
    assert [row.offset for row in rows] == [7, 99]


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint32(), pa.int16()])
def test_offsets_of_other_integer_types(kind):
    rows = written(value=pa.array([b"a", b"b"]), offset=pa.array([7, 99], kind))
    assert [row.offset for row in rows] == [7, 99]


def headers_of(kind, rows):
    return pa.array(rows, pa.list_(kind))


@pytest.mark.parametrize("list_kind", [pa.list_, pa.large_list])
def test_headers(list_kind):
    column = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, [], [{"key": "", "value": b""}]],
        list_kind(HEADER),
    )
    rows = written(value=pa.array([b"v"] * 4), headers=column)
    assert [row.headers for row in rows] == [((b"a", b"1"), (b"a", None)), (), (), ((b"", b""),)]


def test_sliced_headers():
    column = headers_of(HEADER, [[{"key": f"k{i}", "value": b"%d" % i}] * (i % 3) for i in range(9)])
    batch = pa.record_batch({"value": pa.array([b"v"] * 9), "headers": column}).slice(4, 3)
    assert [row.headers for row in written(batch=batch)] == [((b"k4", b"4"),), ((b"k5", b"5"),) * 2, ()]


def test_binary_header_keys_and_text_values():
    column = headers_of(pa.struct([("key", pa.binary()), ("value", pa.string())]), [[{"key": b"k", "value": "text"}]])
    assert written(value=pa.array([b"v"]), headers=column)[0].headers == ((b"k", b"text"),)


def test_maps_as_headers_or_a_clear_refusal():
    column = pa.array([[("a", b"1"), ("b", None)]], pa.map_(pa.string(), pa.binary()))
    try:
        rows = written(value=pa.array([b"v"]), headers=column)
    except OptionError as error:
        assert "headers" in str(error)
    else:
        assert rows[0].headers == ((b"a", b"1"), (b"b", None))


def test_columns_of_a_read_are_taken_back():
    rows = pa.record_batch(
        {
            "key": pa.array([b"k"]),
            "value": pa.array([b"v"]),
            "topic": pa.array(["orders"]),
            "partition": pa.array([3], pa.int32()),
            "offset": pa.array([12], pa.int64()),
            "timestamp": pa.array([77], pa.timestamp("ms", tz="UTC")),
            "timestampType": pa.array([0], pa.int32()),
            "headers": headers_of(HEADER, [[{"key": "h", "value": b"x"}]]),
        }
    )
    assert written(batch=rows) == [Record(12, 77, b"k", b"v", ((b"h", b"x"),))]


VALUES = pa.array([b"a", b"b"])
WRONG = {
    "unknown column": {"value": VALUES, "vlaue": VALUES},
    "value of numbers": {"value": pa.array([1, 2])},
    "key of lists": {"key": pa.array([[b"a"], [b"b"]])},
    "offset falls": {"value": VALUES, "offset": pa.array([5, 4])},
    "offset twice": {"value": VALUES, "offset": pa.array([5, 5])},
    "offset below the first": {"value": VALUES, "offset": pa.array([-1, 4])},
    "offset null": {"value": VALUES, "offset": pa.array([5, None])},
    "offset of text": {"value": VALUES, "offset": pa.array(["5", "6"])},
    "offset of floats": {"value": VALUES, "offset": pa.array([1.0, 2.0])},
    "timestamp of text": {"value": VALUES, "timestamp": pa.array(["now", "then"])},
    "negative timestamp": {"value": VALUES, "timestamp": pa.array([-5, 3])},
    "headers of text": {"value": VALUES, "headers": pa.array(["a", "b"])},
    "headers of text lists": {"value": VALUES, "headers": pa.array([["a"], ["b"]])},
    "header without key": {"value": VALUES, "headers": pa.array([[{"value": b"x"}], None])},
    "null header key": {"value": VALUES, "headers": headers_of(HEADER, [[{"key": None, "value": b"x"}], None])},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    with pytest.raises(OptionError):
        written(**WRONG[name])


def test_a_null_header_key_of_a_row_that_is_not_written_is_no_matter():
    column = headers_of(HEADER, [[{"key": None, "value": b"x"}], [{"key": "k", "value": b"y"}]])
    batch = pa.record_batch({"value": VALUES, "headers": column}).slice(1, 1)
    assert written(batch=batch)[0].headers == ((b"k", b"y"),)


STRANGE = {
    "an offset above 64 bits": {"offset": pa.array([2**63], pa.uint64())},
    "a timestamp above 64 bits": {"timestamp": pa.array([2**63], pa.uint64())},
    "a null header": {"headers": pa.array([[None]], pa.list_(HEADER_TYPE))},
}


@pytest.mark.parametrize("columns", STRANGE.values(), ids=STRANGE.keys())
def test_strange_columns_are_refused_with_an_option_error(columns):
    with pytest.raises(OptionError):
        encoder_input(pa.record_batch(columns), first_offset=0, now_ms=0)


def test_a_column_that_is_there_twice_is_refused():
    batch = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["key", "key"])
    with pytest.raises(OptionError, match="'key' is there twice"):
        encoder_input(batch, first_offset=0, now_ms=0)


def test_a_timestamp_column_of_nulls_is_as_good_as_none():
    batch = pa.record_batch({"timestamp": pa.nulls(2)})
    assert encoder_input(batch, first_offset=0, now_ms=77).columns[records.TIMESTAMP].tolist() == [77, 77]


@pytest.mark.parametrize(("value", "unit"), [(-1001, "us"), (-1, "us"), (-1_999_999, "ns")])
def test_a_time_just_before_1970_does_not_become_none(value, unit):
    batch = pa.record_batch({"value": [b"v"], "timestamp": pa.array([value], pa.timestamp(unit))})
    with pytest.raises(OptionError, match="negative value"):
        encode_batches(batch, first_offset=0, options=BatchOptions(), now_ms=0)


BOUNDS = {
    "fall": [0, 4096, 0, 4096],
    "begin below the data": [-8, 5, 6],
    "end behind the data": [0, 5, 4097],
    "wrap around": [0, -(2**31), 2**31 - 1, 4096],
}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS.keys())
@pytest.mark.parametrize(("kind", "width"), [(pa.binary(), np.int32), (pa.large_string(), np.int64)], ids=str)
@pytest.mark.parametrize("name", ["key", "value"])
def test_offsets_that_do_not_rise_within_the_data_are_refused(name, kind, width, bounds):
    offsets = np.zeros(len(bounds), width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(bytes(4096))]
    batch = pa.record_batch({name: pa.Array.from_buffers(kind, len(bounds) - 1, buffers)})
    offsets[:] = bounds  # pyarrow looks at the first and the last one of what it makes, and of nothing that it reads
    with pytest.raises(OptionError, match="no valid Arrow array"):
        encoder_input(batch, first_offset=0, now_ms=0)


@pytest.mark.parametrize("bounds", [[0, 2, 0, 2], [0, 1, 3], [-1, 1, 2]])
@pytest.mark.parametrize("kind", [pa.ListArray, pa.LargeListArray])
def test_lists_of_headers_that_do_not_rise_within_the_headers_are_refused(kind, bounds):
    headers = pa.array([{"key": "h", "value": bytes(4096)}] * 2, HEADER)
    width = np.int32 if kind is pa.ListArray else np.int64
    list_type = pa.list_(HEADER) if kind is pa.ListArray else pa.large_list(HEADER)
    offsets = np.zeros(len(bounds), width)
    column = pa.Array.from_buffers(list_type, len(bounds) - 1, [None, pa.py_buffer(offsets)], children=[headers])
    batch = pa.record_batch({"headers": column})
    offsets[:] = bounds
    with pytest.raises(OptionError, match="no valid Arrow array"):
        encoder_input(batch, first_offset=0, now_ms=0)


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list])
@pytest.mark.parametrize("kind", [pa.binary(), pa.binary_view(), pa.large_binary()], ids=str)
def test_slices_of_rows_with_headers(list_of, kind):
    header = pa.struct([("key", pa.string()), ("value", kind)])
    lists = [[("a", b"1"), ("b", None)], None, [], [("c", b"33"), ("d", b""), ("e", b"5" * 40)], [("f", b"6")]]
    whole = pa.record_batch({"value": pa.array([b"v"] * 5), "headers": pa.array(lists, list_of(header))})
    for start in range(5):
        for count in range(1, 6 - start):
            rows = written(batch=whole.slice(start, count))
            expected = [tuple((k.encode(), v) for k, v in row or ()) for row in lists[start : start + count]]
            assert [row.headers for row in rows] == expected


def test_room_is_asked_for_the_rows_of_a_slice_alone():
    whole = pa.record_batch({"key": [b"k" * 1000] * 100, "headers": pa.array([[("h", b"v" * 1000)]] * 100, HEADERS)})
    made = encoder_input(whole.slice(50, 1), first_offset=0, now_ms=0)
    assert made.encoded_bound(1) < 2 * 1000 + 200
