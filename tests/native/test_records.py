"""The record decoder against the twin: sound batches of all magics, broken payloads, ranges, totals, hostile counts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.native import records as native
from tests.faults.mutations import BYTE_MUTATORS, edit_varint
from tests.native.harness import Decoder, decode
from tests.reference import batch as v2
from tests.reference import legacy
from tests.reference.errors import GreyError, RejectedError
from tests.reference.record import Record, encode_record
from tests.reference.varint import encode_varint, encode_varlong
from tests.scale import counts
from tests.strategies import batches, message_sets, segments

FIELDS = v2.Fields(base_offset=100, base_timestamp=1000, max_timestamp=5000)


def by_twin(data):
    try:
        return list(v2.read_batch(data).records)
    except RejectedError:
        return None


def by_kernel(data):
    done = decode(data)
    return done.records if done.status == native.DONE else None


def with_payload(payload, count, flags=0):
    return v2.encode_payload(payload, count, v2.Fields(100, 10, 0, 0, flags, 1000, 5000))


def body(*parts):
    """A record of these raw bytes, its length in front."""
    joined = b"".join(parts)
    return encode_varint(len(joined)) + joined


HEAD = b"\x00" + encode_varlong(0) + encode_varint(0)  # attributes, timestamp delta, offset delta
NULLS = encode_varint(-1) * 2
NONE = encode_varint(0)


@given(batches())
def test_batches_of_magic_2(case):
    assert decode(case.data).records == list(case.batch.records)


@given(message_sets())
def test_message_sets(case):
    assert decode(case.data).records == case.records


@given(segments())
def test_whole_segments_in_one_call(case):
    done = decode(case.data)
    assert (done.records, done.status) == (case.records, native.DONE)


@given(segments(), st.integers(0, 20), st.integers(0, 20))
def test_only_the_range_is_kept(case, first, last):
    start, end = case.base + first, case.base + last
    kept = [record for record in case.records if start <= record.offset < end]
    done = Decoder(case.data).decode(start, end)
    assert (done.records, done.status) == (kept, native.DONE)
    check_totals(done.totals, kept)


@given(segments())
def test_totals(case):
    check_totals(decode(case.data).totals, case.records)


def check_totals(totals, records):
    headers = [header for record in records for header in record.headers]
    assert list(totals) == [
        sum(len(record.key or b"") for record in records),
        sum(record.key is None for record in records),
        sum(len(record.value or b"") for record in records),
        sum(record.value is None for record in records),
        len(headers),
        sum(not record.headers for record in records),
        sum(len(key) for key, _ in headers),
        sum(len(value or b"") for _, value in headers),
        sum(value is None for _, value in headers),
    ]


LENIENT = {  # odd, and accepted by Kafka
    "attributes are free": (body(b"\xff", HEAD[1:], NULLS, NONE), 1),
    "any negative length is null": (body(HEAD, encode_varint(-77), encode_varint(-(1 << 31)), NONE), 1),
    "negative header value": (body(HEAD, NULLS, encode_varint(1), b"\x02h", encode_varint(-5)), 1),
    "empty header key": (body(HEAD, NULLS, encode_varint(1), b"\x00", b"\x00"), 1),
    "offsets that fall": (
        body(b"\x00\x00", encode_varint(7), NULLS, NONE) + body(b"\x00\x00", encode_varint(3), NULLS, NONE),
        2,
    ),
    "negative offset delta": (body(b"\x00\x00", encode_varint(-9), NULLS, NONE), 1),
    "offset delta above the last": (body(b"\x00\x00", encode_varint(11), NULLS, NONE), 1),
    "padded varints": (body(HEAD, b"\x81\x00", b"\x84\x80\x00ab", b"\x80\x00"), 1),
    "surplus bits of a length": (body(HEAD, b"\x84\x80\x80\x80\x70ab", b"\x01", NONE), 1),
    "largest timestamp delta": (body(b"\x00", encode_varlong((1 << 63) - 1), b"\x00", NULLS, NONE), 1),
    "smallest timestamp delta": (body(b"\x00", encode_varlong(-(1 << 63)), b"\x00", NULLS, NONE), 1),
}
REFUSED = {
    "negative count": (b"", -1, native.BAD_COUNT),
    "smallest count": (b"", -(1 << 31), native.BAD_COUNT),
    "one record too many": (body(HEAD, NULLS, NONE), 2, None),
    "one record too few": (body(HEAD, NULLS, NONE) * 2, 1, native.LEFT_OVER),
    "a byte behind": (body(HEAD, NULLS, NONE) + b"\x00", 1, native.LEFT_OVER),
    "no bytes": (b"", 1, None),
    "record of no bytes": (b"\x00" + body(HEAD, NULLS, NONE), 2, None),
    "negative record length": (encode_varint(-1) + body(HEAD, NULLS, NONE), 2, None),
    "record past the end": (encode_varint(100) + HEAD + NULLS + NONE, 1, None),
    "record a byte too long": (encode_varint(8) + HEAD + NULLS + NONE + b"\x00", 1, None),
    "record a byte too short": (encode_varint(5) + HEAD + NULLS + NONE, 1, None),
    "key past the record": (body(HEAD, encode_varint(3), b"ab") + body(HEAD, NULLS, NONE), 2, None),
    "value past the record": (body(HEAD, encode_varint(-1), encode_varint(1 << 30), NONE), 1, None),
    "largest length": (body(HEAD, encode_varint((1 << 31) - 1), NULLS, NONE), 1, None),
    "six-byte varint": (body(HEAD, b"\xff\xff\xff\xff\xff\x01", NULLS, NONE), 1, None),
    "eleven-byte varlong": (body(b"\x00", b"\x80" * 10 + b"\x00", b"\x00", NULLS, NONE), 1, None),
    "negative header count": (body(HEAD, NULLS, encode_varint(-1)), 1, None),
    "hostile header count": (body(HEAD, NULLS, encode_varint((1 << 31) - 1)), 1, None),
    "one header too many": (body(HEAD, NULLS, encode_varint(2), b"\x02h\x02v"), 1, None),
    "negative header key": (body(HEAD, NULLS, encode_varint(1), encode_varint(-1), encode_varint(-1)), 1, None),
    "header key past the record": (body(HEAD, NULLS, encode_varint(1), encode_varint(9), b"h"), 1, None),
    "header value past the record": (body(HEAD, NULLS, encode_varint(1), b"\x02h", encode_varint(9), b"v"), 1, None),
    "ends within a varint": (body(HEAD, NULLS, b"\x80"), 1, None),
    "hostile count": (body(HEAD, NULLS, NONE), (1 << 31) - 1, native.BAD_COUNT),
    "count above what fits": (body(HEAD, NULLS, NONE) * 3, 4, native.BAD_COUNT),
}


@pytest.mark.parametrize("name", LENIENT)
def test_what_kafka_lets_pass(name):
    data = with_payload(*LENIENT[name])
    assert by_twin(data) is not None
    assert by_kernel(data) == by_twin(data)


@pytest.mark.parametrize("name", REFUSED)
def test_what_kafka_refuses(name):
    payload, count, status = REFUSED[name]
    data = with_payload(payload, count)
    assert by_twin(data) is None
    done = decode(data)
    assert done.status < 0
    assert done.row == 0
    if status is not None:
        assert done.status == status


def test_damage_names_its_row_and_what_came_before_is_there():
    good = v2.encode_batch([Record(100 + index, 1000, b"k", b"v") for index in range(3)], FIELDS)
    done = decode(good + good + with_payload(b"\x00", 1) + good)
    assert (done.row, done.status < 0) == (2, True)
    assert done.records == list(v2.read_batch(good).records) * 2


def test_hostile_counts_need_no_memory():
    for count in (1 << 20, (1 << 31) - 1):
        decoder = Decoder(with_payload(bytes(1000), count))
        assert decoder.decode().status < 0


@given(st.binary(max_size=60), st.integers(-1, 9), st.sampled_from([0, v2.LAT_BIT]))
def test_any_payload_ends_as_in_the_twin(payload, count, flags):
    data = with_payload(payload, count, flags)
    assert by_kernel(data) == by_twin(data)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_payloads_end_as_in_the_twin(seed):
    rng = random.Random(seed)
    headers = ((b"h", b"x"), (b"", None), (b"h", b""))
    made = [
        Record(100 + i, 1000 + i, b"key" * (i % 3), None if i % 4 == 1 else b"v" * i, headers[: i % 4])
        for i in range(6)
    ]
    payload = b"".join(encode_record(record, 100, 1000) for record in made)
    accepted = 0
    for _ in range(counts(400)):
        if rng.random() < 0.6:
            changed = edit_varint(rng, payload, len(made))
        else:
            changed = rng.choice(BYTE_MUTATORS)(rng, payload, payload)
        data = with_payload(changed, len(made))
        expected = by_twin(data)
        accepted += expected is not None
        assert by_kernel(data) == expected, f"seed {seed}: payload {changed.hex()}"
    assert accepted > 0


def str_of_offsets(value):
    return "-".join(map(str, value)) if isinstance(value, list) else "offsets"


def relative(*offsets):
    return b"".join(legacy.encode_message(Record(offset, 50 + offset, b"k", b"v"), 1) for offset in offsets)


def wrapper(offset, inner, *, magic=1, flags=0, timestamp=777):
    packed = v2.codecs.compress(v2.codecs.GZIP, inner, magic)
    return legacy.encode_message(Record(offset, timestamp, None, packed), magic, flags | v2.codecs.GZIP)


@pytest.mark.parametrize(
    ("entry", "offsets"),
    [
        (wrapper(102, relative(0, 1, 2)), [100, 101, 102]),
        (wrapper(110, relative(0, 3, 10)), [100, 103, 110]),
        (wrapper(110, relative(4, 10)), [104, 110]),
        (wrapper(0, relative(0, 1, 2)), [0, 1, 2]),
        (wrapper(0, relative(5)), [5]),
        (wrapper(7, relative(5, 6, 7), magic=0), [5, 6, 7]),
        (wrapper(99, relative(5, 6, 7), magic=0), [5, 6, 7]),
        (wrapper(7, relative(7)), [7]),
        (wrapper(102, relative(0, 1, 2) + relative(3)[:-1]), [100, 101, 102]),
        (wrapper(102, relative(0, 1, 2) + b"\x00" * 11), [100, 101, 102]),
    ],
    ids=str_of_offsets,
)
def test_offsets_of_wrapped_messages(entry, offsets):
    assert [record.offset for record in legacy.read_entry(entry)] == offsets
    assert decode(entry).records == legacy.read_entry(entry)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_may_hold_messages_of_the_other_magic(magic):
    inner = legacy.encode_message(Record(0, 60, b"k", b"v"), 1 - magic) + legacy.encode_message(
        Record(1, 61, b"l", None), magic
    )
    entry = wrapper(1, inner, magic=magic)
    assert decode(entry).records == legacy.read_entry(entry)


def test_append_time_of_a_wrapper_overrides_its_messages():
    entry = wrapper(102, relative(0, 1, 2), flags=legacy.LAT_BIT, timestamp=9999)
    done = decode(entry)
    assert [(record.timestamp, record.timestamp_type) for record in done.records] == [(9999, 1)] * 3
    assert done.records == legacy.read_entry(entry)


@pytest.mark.parametrize(
    "entry",
    [
        wrapper(102, b""),
        wrapper(102, relative(0)[:-1]),
        wrapper(1, relative(0, 1, 2)),
        wrapper(102, relative(0) + wrapper(1, relative(0))),
        wrapper(102, relative(0) + bytes(8) + b"\x00\x00\x00\x0d" + bytes(13)),
        wrapper(102, relative(0) + bytes(8) + b"\xff\xff\xff\xff" + bytes(13)),
        legacy.encode_message(Record(5, 6, None, None), 1, v2.codecs.GZIP),
        legacy.encode_message(Record(5, 6, None, b""), 1, v2.codecs.GZIP),
        legacy.encode_message(Record(5, 6, None, v2.codecs.zstd_compress(relative(0))), 1, v2.codecs.ZSTD),
        legacy.repair(legacy.encode_message(Record(5, 6, b"k", b"v"), 1)[:-1] + b""),
        legacy.repair(relative(0)[:26] + b"\x7f\xff\xff\xff" + relative(0)[30:]),
        legacy.repair(relative(0)[:8] + b"\x00\x00\x00\x0e" + relative(0)[12:26]),
    ],
    ids=range(12),
)
def test_legacy_entries_that_are_refused(entry):
    if len(entry) - 12 != int.from_bytes(entry[8:12], "big"):
        entry = legacy.repair(entry[:8] + (len(entry) - 12).to_bytes(4, "big") + entry[12:])
    with pytest.raises(RejectedError):
        legacy.read_entry(entry)
    assert decode(entry).status < 0


@given(st.binary(max_size=60), st.sampled_from([0, 1]))
def test_any_legacy_message_ends_as_in_the_twin(tail, magic):
    message = bytes([magic, 0]) + tail + bytes(max(0, 10 - len(tail)))
    entry = legacy.repair(bytes(8) + (len(message) + 4).to_bytes(4, "big") + bytes(4) + message)
    try:
        expected = legacy.read_entry(entry)
    except RejectedError:
        expected = None
    assert by_kernel(entry) == expected


@given(st.binary(max_size=60), st.sampled_from([0, 1]), st.sampled_from([0, 1, 2, 40]))
def test_any_content_of_a_wrapper_ends_as_in_the_twin(tail, magic, offset):
    entry = wrapper(offset, relative(1) + tail, magic=magic)
    try:
        expected = legacy.read_entry(entry)
    except GreyError:
        return
    except RejectedError:
        expected = None
    assert by_kernel(entry) == expected


def test_totals_are_added_to():
    data = v2.encode_batch([Record(0, 1, b"key", b"value")])
    decoder = Decoder(data)
    decoder.payloads()
    columns, totals = np.zeros((native.RECORD_COLUMNS, 1), np.int64), np.full(native.TOTALS, 1000, np.int64)
    native.fill_records(
        decoder.array,
        decoder.arena,
        decoder.walk.table,
        0,
        1,
        decoder.skip,
        decoder.starts,
        decoder.ends,
        0,
        9,
        columns,
        totals,
        np.zeros(native.CURSOR, np.int64),
    )
    assert totals[native.KEY_BYTES] == 1003
    assert totals[native.VALUE_BYTES] == 1005
