"""What Kafka's own classes wrote decodes to what they were given; what kseg encodes without a codec are their bytes."""

from __future__ import annotations

import pytest

from kseg.format.batch import header_of
from kseg.format.builder import BatchOptions, encode_batch, encode_batches, encode_marker
from kseg.types import Codec, TimestampType
from tests.format.decoding import decode, table_for
from tests.reference import batch as v2
from tests.reference import codecs, vectors
from tests.reference.record import Record
from tests.reference.rows import table_of

CLEANED = BatchOptions(leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=5)


@pytest.mark.parametrize("codec", codecs.NAMES)
def test_batches_decode(codec):
    data = vectors.batch(codec)
    assert decode(data) == list(vectors.BATCH_RECORDS)
    header = header_of(table_for(data), 0)
    assert (header.codec.label, header.magic, header.leader_epoch, header.size) == (codec, 2, 3, len(data))
    assert (header.base_offset, header.last_offset, header.next_offset, header.count) == (100, 102, 103, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1014)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_an_uncompressed_batch_encodes_to_kafkas_bytes():
    made = encode_batches(
        table_of(vectors.BATCH_RECORDS), first_offset=100, options=BatchOptions(leader_epoch=3), now_ms=0
    )
    assert bytes(made.data) == vectors.batch("none")


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_framings_with_one_possible_result_encode_to_kafkas_bytes(codec):
    options = BatchOptions(leader_epoch=3, codec=Codec.parse(codec))
    made = encode_batches(table_of(vectors.BATCH_RECORDS), first_offset=100, options=options, now_ms=0)
    assert bytes(made.data) == vectors.batch(codec)


def test_a_transactional_batch():
    data = vectors.named("txn pid=9 ep=1 seq=5:")
    record = Record(0, 1000, b"a", b"b")
    assert decode(data) == [record]
    options = BatchOptions(leader_epoch=0, producer_id=9, producer_epoch=1, base_sequence=5, is_transactional=True)
    made = encode_batches(table_of([record]), first_offset=0, options=options, now_ms=0)
    assert bytes(made.data) == data


@pytest.mark.parametrize("commit", [True, False])
def test_markers(commit):
    data = vectors.named("commit marker:" if commit else "abort marker:")
    made = encode_marker(
        offset=10, timestamp=2000, leader_epoch=3, producer_id=9, producer_epoch=1, commit=commit, coordinator_epoch=7
    )
    assert made == data
    header = header_of(table_for(data), 0)
    assert (header.is_control, header.is_transactional, header.size) == (True, True, 78)
    assert (header.marker_type, header.coordinator_epoch) == (int(commit), 7)


def test_a_delete_horizon_keeps_the_timestamps():
    data = vectors.filtered("keep all")
    assert decode(data) == list(vectors.BATCH_RECORDS)
    header = header_of(table_for(data), 0)
    assert (header.delete_horizon_ms, header.base_timestamp, header.max_timestamp) == (51000, None, 1014)
    options = BatchOptions(leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=5, delete_horizon_ms=51000)
    assert encode_batch(table_of(vectors.BATCH_RECORDS), base_offset=100, options=options) == data


def test_a_batch_that_lost_records_keeps_its_range():
    data = vectors.filtered("keep 100 only")
    assert decode(data) == list(vectors.BATCH_RECORDS[:1])
    assert header_of(table_for(data), 0).next_offset == 103
    made = encode_batch(table_of(vectors.BATCH_RECORDS[:1]), base_offset=100, last_offset=102, options=CLEANED)
    assert made == data


def test_an_empty_batch():
    data = vectors.filtered("keep none RETAIN_EMPTY")
    assert decode(data) == []
    header = header_of(table_for(data), 0)
    assert (header.count, header.size, header.next_offset, header.max_timestamp) == (0, 61, 103, 1014)
    assert encode_batch(table_of([]), base_offset=100, last_offset=102, max_timestamp=1014, options=CLEANED) == data


def test_append_time_set_in_place_over_a_delete_horizon():
    batch = bytearray(vectors.filtered("keep all"))
    batch[22] |= v2.LAT_BIT
    batch[35:43] = (5000).to_bytes(8, "big")
    data = v2.repair(bytes(batch))
    made = decode(data)
    assert [(record.timestamp, record.timestamp_type) for record in made] == [(5000, 1)] * 3
    assert header_of(table_for(data), 0).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header_of(table_for(data), 0).delete_horizon_ms == 51000


@pytest.mark.parametrize(
    ("magic", "codec", "data"), vectors.message_sets(), ids=lambda value: "" if isinstance(value, bytes) else str(value)
)
def test_message_sets(magic, codec, data):
    assert decode(data) == vectors.message_records(magic)
