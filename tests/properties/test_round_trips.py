"""Round trips: what is encoded decodes to itself, and what the twins encode, kseg decodes as the twins do."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kseg
from kseg.format.builder import BatchOptions, encode_batches
from kseg.types import Codec
from tests.format.decoding import decode, decoded
from tests.reference import batch as v2
from tests.reference.codecs import compress, decompress
from tests.reference.rows import as_text, records_of, table_of
from tests.scale import counts
from tests.strategies import batches, codec_numbers, message_sets, record_lists, segments

WHOLE_LOGS = settings(max_examples=counts(40), suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(record_lists(max_size=25), st.sampled_from(list(Codec)), st.integers(1, 8))
def test_encode_then_decode(records, codec, batch_records):
    options = BatchOptions(codec=codec, batch_records=batch_records)
    made = encode_batches(table_of(records), first_offset=0, options=options, now_ms=0)
    assert decode(bytes(made.data)) == records


@given(record_lists(max_size=10), st.sampled_from(list(Codec)))
def test_decode_then_encode_gives_the_same_batch(records, codec):
    options = BatchOptions(codec=codec, leader_epoch=1)
    first = encode_batches(table_of(records), first_offset=0, options=options, now_ms=0)
    rows = pa.Table.from_batches(decoded(bytes(first.data))).combine_chunks().to_batches()[0]
    again = encode_batches(rows, first_offset=0, options=options, now_ms=0)
    assert bytes(again.data) == bytes(first.data)


@given(batches())
def test_batches_of_the_twin_decode_as_the_twin_decodes_them(case):
    assert decode(case.data) == as_text(case.batch.records)


@given(batches(codec=0, min_size=1))
def test_plain_batches_of_the_twin_are_encoded_to_the_same_bytes(case):
    batch = case.batch
    stamped = [record for record in batch.records if record.timestamp < -1]
    if (
        stamped
        or batch.attributes
        or batch.base_offset != batch.records[0].offset
        or batch.last_offset != batch.records[-1].offset
    ):
        return
    options = BatchOptions(
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    made = encode_batches(table_of(batch.records), first_offset=0, options=options, now_ms=0)
    assert bytes(made.data) == case.data


@given(message_sets())
def test_message_sets_of_the_twin_decode_as_the_twin_decodes_them(case):
    assert decode(case.data) == case.records


@given(st.binary(min_size=1, max_size=400), codec_numbers, st.sampled_from([1, 2]))
def test_the_twins_own_codecs(data, codec, magic):
    assert decompress(codec, compress(codec, data, magic), magic) == data


@given(batches(min_size=1))
def test_the_twins_own_batches(case):
    again = v2.encode_payload(
        b"".join(
            v2.encode_record(record, case.batch.base_offset, case.batch.base_timestamp) for record in case.batch.records
        ),
        case.batch.count,
        v2.Fields(
            case.batch.base_offset,
            case.batch.last_offset - case.batch.base_offset,
            case.batch.leader_epoch,
            case.batch.codec,
            case.batch.attributes & ~v2.CODEC_MASK,
            case.batch.base_timestamp,
            case.batch.max_timestamp,
            case.batch.producer_id,
            case.batch.producer_epoch,
            case.batch.base_sequence,
        ),
    )
    if case.batch.attributes & v2.LAT_BIT:
        assert [record.offset for record in v2.read_batch(again).records] == [
            record.offset for record in case.batch.records
        ]
    else:
        assert again == case.data


def written(tmp_path, made):
    directory = tmp_path / "orders-0"
    directory.mkdir(exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    for segment in made:
        (directory / f"{segment.base:020d}.log").write_bytes(segment.data)
    return directory


@st.composite
def logs(draw):
    """One to three segments, one behind the other, with holes between them."""
    first = draw(segments())
    made = [first]
    for _ in range(draw(st.integers(0, 2))):
        last = made[-1]
        entries = v2.walk(last.data)[0]
        position, size = entries[-1]
        entry = last.data[position : position + size]
        next_offset = v2.read_header(entry).last_offset + 1 if entry[16] == 2 else last.records[-1].offset + 1
        made.append(draw(segments(base=next_offset + draw(st.sampled_from([0, 0, 10])))))
    return made


@WHOLE_LOGS
@given(logs())
def test_whole_logs_read_as_the_twin_reads_them(tmp_path, made):
    log = kseg.open_log(written(tmp_path, made))
    expected = as_text(record for segment in made for record in segment.records)
    assert records_of(log.read()) == expected
    assert records_of(log.read(isolation="read_committed")) == expected
    assert log.start_offset == made[0].base
    headers = list(log.batches())
    assert sum(header.size for header in headers) == sum(len(segment.data) for segment in made)
    assert log.end_offset == headers[-1].next_offset


@WHOLE_LOGS
@given(logs(), st.integers(-5, 60), st.integers(0, 60), st.integers(1, 600))
def test_ranges_and_chunk_sizes_do_not_change_the_rows(tmp_path, made, first, length, batch_bytes):
    log = kseg.open_log(written(tmp_path, made))
    start = max(log.start_offset + first, log.start_offset)
    end = min(start + length, log.end_offset)
    if start > end:
        return
    rows = records_of(log.read(start, end, batch_bytes=batch_bytes))
    everything = as_text(record for segment in made for record in segment.records)
    assert rows == [record for record in everything if start <= record.offset < end]


@WHOLE_LOGS
@given(logs(), st.data())
def test_column_choice_does_not_change_the_rows(tmp_path, made, data):
    log = kseg.open_log(written(tmp_path, made))
    names = data.draw(
        st.lists(st.sampled_from(["key", "value", "offset", "timestamp", "topic", "headers"]), min_size=1, unique=True)
    )
    everything = pa.Table.from_batches(log.read(), kseg.schema.RECORD_SCHEMA)
    some = pa.Table.from_batches(log.read(columns=names), everything.select(names).schema)
    assert some.equals(everything.select(names))


@WHOLE_LOGS
@given(logs(), st.integers(1, 60))
def test_a_torn_tail_is_left_out(tmp_path, made, cut):
    last = made[-1]
    position, size = v2.walk(last.data)[0][-1]
    directory = written(tmp_path, made)
    path = directory / f"{last.base:020d}.log"
    path.write_bytes(last.data[: -min(cut, size - 1)])
    log = kseg.open_log(directory)
    kept = decode(last.data[:position])
    expected = as_text(record for segment in made[:-1] for record in segment.records) + kept
    assert records_of(log.read()) == expected
