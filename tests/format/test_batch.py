"""Header objects, and the errors that kernel codes become."""

from __future__ import annotations

import pickle

import pytest

from kseg.errors import ChecksumError, CorruptRecordError, FormatError, TruncatedError, UnsupportedError
from kseg.format import batch as kb
from kseg.native import codecs, headers, records
from kseg.types import Codec, TimestampType
from tests.format.decoding import table_for
from tests.reference import batch as v2
from tests.reference import legacy
from tests.reference.record import Record

DATA = v2.encode_batch([Record(7, 1000, b"k", b"v")], v2.Fields(base_offset=7))


def test_a_plain_batch():
    header = kb.header_of(table_for(DATA, 500), 0)
    assert (header.position, header.size, header.magic, header.codec) == (500, len(DATA), 2, Codec.NONE)
    assert (header.delete_horizon_ms, header.marker_type, header.coordinator_epoch) == (None, None, None)
    assert (header.is_transactional, header.is_control) == (False, False)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.crc == int.from_bytes(DATA[17:21], "big")


@pytest.mark.parametrize(("magic", "kind"), [(0, TimestampType.NO_TIMESTAMP), (1, TimestampType.CREATE_TIME)])
def test_legacy_entries(magic, kind):
    made = [Record(5, 1000, b"k", b"v"), Record(8, 1001, b"k", b"v")]
    plain = kb.header_of(table_for(legacy.encode_set(made, magic)), 1)
    assert (plain.magic, plain.base_offset, plain.last_offset, plain.count) == (magic, 8, 8, 1)
    assert (plain.timestamp_type, plain.max_timestamp) == (kind, 1001 if magic else -1)
    wrapper = kb.header_of(table_for(legacy.encode_set(made, magic, 1)), 0)
    assert (wrapper.base_offset, wrapper.count, wrapper.last_offset, wrapper.codec) == (None, None, 8, Codec.GZIP)
    assert wrapper.next_offset == 9


def test_append_time_of_a_legacy_wrapper():
    made = [Record(5, 1000, b"k", b"v")]
    header = kb.header_of(table_for(legacy.encode_set(made, 1, 1, append_time=4444)), 0)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 4444)


def test_an_unknown_codec_has_no_header_object():
    table = table_for(v2.repair(DATA[:22] + b"\x06" + DATA[23:]))
    with pytest.raises(UnsupportedError):
        kb.header_of(table, 0)


@pytest.mark.parametrize("status", [headers.BAD_LENGTH, headers.BAD_MAGIC, headers.SHORT_BATCH])
def test_walk_errors(status):
    error = kb.walk_error(status, 1234)
    assert isinstance(error, FormatError)
    assert error.position == 1234


@pytest.mark.parametrize(
    "status",
    [
        records.BAD_COUNT,
        records.SHORT_PAYLOAD,
        records.BAD_LENGTH,
        records.BAD_HEADERS,
        records.LEFT_OVER,
        records.BAD_MESSAGE,
    ],
)
def test_record_errors(status):
    error = kb.record_error(table_for(DATA, 99), 0, status)
    assert isinstance(error, CorruptRecordError)
    assert (error.position, error.offset) == (99, 7)


@pytest.mark.parametrize("status", [codecs.BAD_PAYLOAD, codecs.BAD_CODEC, codecs.BAD_WRAPPER])
def test_payload_errors(status):
    error = kb.payload_error(table_for(DATA, 99), 0, status)
    assert isinstance(error, FormatError)
    assert (error.position, error.offset) == (99, 7)


def test_checksum_errors_show_both_values():
    error = kb.checksum_error(table_for(DATA, 99), 0, 0xDEADBEEF)
    assert isinstance(error, ChecksumError)
    assert (error.position, error.offset) == (99, 7)
    assert DATA[17:21].hex() in str(error)
    assert "deadbeef" in str(error)


def test_other_errors_say_where():
    assert isinstance(kb.torn_error(50, 9), TruncatedError)
    assert kb.torn_error(50, 9).position == 50
    assert isinstance(kb.size_error(table_for(DATA, 99), 0, 10), UnsupportedError)


def test_errors_pickle_with_their_place():
    error = kb.record_error(table_for(DATA, 99), 0, records.BAD_COUNT).with_context(path="orders-0/x.log")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.path, again.position, again.offset) == (
        type(error), str(error), "orders-0/x.log", 99, 7,
    )  # fmt: skip
