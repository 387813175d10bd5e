"""Writing a log: what goes in comes out, whatever the settings; and what is refused."""

from __future__ import annotations

import itertools
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kseg
from kseg.errors import LogError, OptionError
from kseg.log import writer_input
from kseg.log.select import select_logs
from kseg.options import parse_source_options
from kseg.types import OffsetRange
from tests.log.written import CODECS, START, bases, check_indexes, clock, names, numbered
from tests.reference.rows import records_of
from tests.reference.rows import table_of as arrow_of
from tests.scale import counts
from tests.strategies import record_lists

# -- round trips -------------------------------------------------------------------------------------------------------


@st.composite
def appends(draw):
    """Lists of records with rising offsets, and how each list is appended."""
    made, base = [], draw(st.sampled_from([0, 5, 1 << 33]))
    for _ in range(draw(st.integers(1, 4))):
        records = draw(record_lists(base=base, min_size=0, max_size=20))
        given_offsets = draw(st.booleans())
        if not given_offsets:
            records = [replace(record, offset=base + i) for i, record in enumerate(records)]
        base = records[-1].offset + 1 if records else base
        options = {
            "codec": draw(st.sampled_from(CODECS)),
            "batch_bytes": draw(st.sampled_from([1, 200, 1 << 18])),
            "batch_records": draw(st.sampled_from([None, 1, 3])),
        }
        made.append((records, given_offsets, options, draw(st.sampled_from(["go on", "roll", "reopen"]))))
    return made


@settings(max_examples=counts(40))
@given(
    appends(),
    st.sampled_from([1000, 3000, 1 << 30]),
    st.sampled_from([0, 500, 4096]),
    st.sampled_from([24, 100, 10 << 20]),
)
def test_what_is_written_is_read(made, segment_bytes, interval, index_bytes):
    config = kseg.LogConfig(
        segment_bytes=segment_bytes, index_interval_bytes=interval, segment_index_bytes=index_bytes, segment_ms=2**60
    )
    start = made[0][0][0].offset if made[0][0] else 0
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # by far the most of the time, and nothing is cut off here
        path = Path(folder, "round-trip-7")
        first = min((records[0].offset for records, *_ in made if records), default=0)
        writer = kseg.create_log(path, config=config, start_offset=min(start, first), clock=clock)
        for records, given_offsets, options, then in made:
            rows = arrow_of(records)
            if not given_offsets and records:
                rows = rows if writer.next_offset != records[0].offset else rows.drop_columns(["offset"])
            got = writer.append(rows, **options)
            assert got.end == writer.next_offset
            if records:
                assert got == OffsetRange(records[0].offset, records[-1].offset + 1)
            if then == "roll":
                writer.roll()
            elif then == "reopen":
                writer.close()
                writer = kseg.append_to(path, config=config, clock=clock)
                assert writer.truncated_bytes == 0
        writer.close()
        log = kseg.open_log(path)
        assert records_of(log.read()) == [record for records, *_ in made for record in records]
        assert log.end_offset == writer.next_offset
        for segment in log.segments:
            check_indexes(segment, interval)


@pytest.mark.parametrize("codec", CODECS)
def test_every_shape_of_input_gives_the_same_log(tmp_path, codec):
    table = numbered(3000)
    small = list(itertools.chain.from_iterable(table.slice(i, 7).to_batches() for i in range(0, 3000, 7)))
    shapes = {
        "table": table,
        "batch": table.combine_chunks().to_batches()[0],
        "chunked": pa.Table.from_batches(small),
        "batches": small,
        "generator": iter(small),
        "reader": table.to_reader(max_chunksize=100),
        "tables": [table.slice(0, 1000), table.slice(1000)],
        "text": table.set_column(0, "key", table["key"].cast(pa.string()).dictionary_encode()),
    }
    contents = set()
    for name, shape in shapes.items():
        with kseg.create_log(tmp_path / name / "t-0", clock=clock) as writer:
            assert writer.append(shape, codec=codec, batch_records=100) == OffsetRange(0, 3000)
        contents.add((tmp_path / name / "t-0" / f"{0:020d}.log").read_bytes())
        assert {header.count for header in kseg.open_log(tmp_path / name / "t-0").batches()} == {100}
    assert len(contents) == 1


def test_large_rows_are_cut_into_pieces_and_small_ones_joined(monkeypatch):
    monkeypatch.setattr(writer_input, "PIECE_BYTES", 4000)
    monkeypatch.setattr(writer_input, "PIECE_ROWS", 64)
    table = pa.table({"value": [b"x" * (2000 if i < 20 else 1) for i in range(1000)]})

    def pieces(data, **options):
        return list(writer_input.iter_pieces(data, **{"batch_bytes": 100, "batch_records": None, **options}))

    made = pieces(table)
    assert pa.Table.from_batches(made).combine_chunks().equals(table)
    assert max(piece.nbytes for piece in made) <= 8000 + 2000
    assert max(piece.num_rows for piece in made) <= 64
    made = pieces(table.to_batches(max_chunksize=3), batch_records=50)
    assert [piece.num_rows % 50 for piece in made] == [0] * len(made)
    other = pa.record_batch({"value": [b"y"], "key": [b"z"]})
    assert [piece.num_rows for piece in pieces([table.slice(500, 2).to_batches()[0], other])] == [2, 1]
    shared = pa.table({"value": pa.array(["x" * 100_000, "y"] * 20).dictionary_encode()})
    assert sum(piece.num_rows for piece in pieces(shared)) == 40
    assert pieces([]) == pieces(table.slice(0, 0)) == []
    for wrong in (7, ["x"], [[1]]):
        with pytest.raises(OptionError, match="record batch"):
            pieces(wrong)


# -- rolling and timestamps --------------------------------------------------------------------------------------------


def test_a_segment_may_be_as_large_as_segment_bytes_and_no_larger(tmp_path):
    rows = numbered(50)
    with kseg.create_log(tmp_path / "a-0", clock=clock) as writer:
        writer.append(rows, batch_records=1)
    sizes = [header.size for header in kseg.open_log(tmp_path / "a-0").batches()]
    full = sum(sizes[:10])
    with kseg.create_log(tmp_path / "b-0", config=kseg.LogConfig(segment_bytes=full), clock=clock) as writer:
        writer.append(rows, batch_records=1)
    segments = kseg.open_log(tmp_path / "b-0").segments
    assert segments[0].size == full
    assert segments[1].base_offset == 10
    assert all(segment.size <= full for segment in segments)


def test_segments_roll_by_event_time_and_by_age_without_one(tmp_path):
    times = [1000, 500, 2000, 2001, 3001, 3002]
    with kseg.create_log(tmp_path / "a-0", config=kseg.LogConfig(segment_ms=1000), clock=clock) as writer:
        writer.append(pa.table({"value": [b"x"] * 6, "timestamp": times}), batch_records=1)
    assert bases(tmp_path / "a-0") == [0, 3, 5]
    ticks = itertools.count(START, 400)
    config = kseg.LogConfig(segment_ms=1000)
    with kseg.create_log(tmp_path / "b-0", config=config, clock=lambda: next(ticks) / 1000) as writer:
        for _ in range(5):
            writer.append(pa.table({"value": [b"x"], "timestamp": [-1]}))
    assert bases(tmp_path / "b-0") == [0, 2]
    jittery = kseg.LogConfig(segment_ms=1000, segment_jitter_ms=1000)
    with kseg.create_log(tmp_path / "c-0", config=jittery, clock=clock) as writer:
        writer.append(pa.table({"value": [b"x"] * 3, "timestamp": [1, 1001, 2002]}), batch_records=1)
    assert len(bases(tmp_path / "c-0")) >= 2


def test_holes_too_wide_for_a_segment_begin_a_new_one(tmp_path):
    offsets = [0, 10, 10 + 2**31 - 1, 10 + 2**31, 2**62]
    with kseg.create_log(tmp_path / "a-0", clock=clock) as writer:
        writer.append(pa.table({"value": [b"x"] * 5, "offset": offsets}))
    assert bases(tmp_path / "a-0") == [0, offsets[2], offsets[4]]
    log = kseg.open_log(tmp_path / "a-0")
    assert [record.offset for record in records_of(log.read())] == offsets
    with kseg.append_to(tmp_path / "a-0", clock=clock) as writer:
        assert writer.append(pa.table({"value": [b"x"]})) == OffsetRange(2**62 + 1, 2**62 + 2)
        with pytest.raises(OptionError, match="too large"):
            writer.append(pa.table({"value": [b"x"], "offset": [2**63 - 1]}))


def test_log_append_time_is_the_clocks(tmp_path):
    config = kseg.LogConfig(message_timestamp_type="LogAppendTime")
    with kseg.create_log(tmp_path / "a-0", config=config, clock=clock) as writer:
        writer.append(numbered(3))
    assert {(r.timestamp, r.timestamp_type) for r in records_of(kseg.open_log(tmp_path / "a-0").read())} == {
        (START + 60_000, 1)
    }


def test_a_missing_timestamp_is_the_clocks(tmp_path):
    with kseg.create_log(tmp_path / "a-0", clock=clock) as writer:
        writer.append(pa.table({"value": ["x", "y"], "timestamp": pa.array([None, START], pa.timestamp("ms"))}))
        writer.append(pa.table({"value": ["z"]}))
    stamps = [record.timestamp for record in records_of(kseg.open_log(tmp_path / "a-0").read())]
    assert stamps == [START + 60_000, START, START + 60_000]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["orders", "orders-x", "orders-0.abc-delete", "__cluster_metadata-0", "a b-0"])
def test_a_directory_that_is_no_partitions_is_refused(tmp_path, name):
    with pytest.raises(OptionError, match=r"directory|metadata"):
        kseg.create_log(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(OptionError, match=r"directory|metadata"):
        kseg.append_to(tmp_path / name)
    assert names(tmp_path) == [name]


def test_create_refuses_what_is_there_and_append_what_is_not(tmp_path):
    with pytest.raises(LogError, match="create_log"):
        kseg.append_to(tmp_path / "a-0")
    kseg.create_log(tmp_path / "deep" / "er" / "a-0").close()
    with pytest.raises(LogError, match="append_to"):
        kseg.create_log(tmp_path / "deep" / "er" / "a-0")
    (tmp_path / "b-0").mkdir()
    kseg.create_log(tmp_path / "b-0").close()
    for wrong in ({"topic_id": "x"}, {"topic_id": "A" * 22}, {"start_offset": -1}):
        with pytest.raises(OptionError):
            kseg.create_log(tmp_path / "c-0", **wrong)
    with pytest.raises(OptionError, match="local"):
        kseg.create_log("s3://bucket/c-0")
    assert not (tmp_path / "c-0").exists()


def test_partitions_of_a_new_topic_have_one_id(tmp_path):
    """Each had its own, so that Spark took two partitions beside each other for two topics of one name."""
    (tmp_path / "a-7").mkdir()
    (tmp_path / "a-7/partition.metadata").write_text("junk")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: kseg.create_log(tmp_path / f"a-{n}").close(), range(4)))
    kseg.create_log(tmp_path / "a-b-0").close()
    ids = [kseg.open_log(tmp_path / name).topic_id for name in ("a-0", "a-1", "a-2", "a-3", "a-b-0")]
    assert len(set(ids[:4])) == 1
    assert ids[4] != ids[0]
    (tmp_path / "a-7/partition.metadata").unlink()
    (tmp_path / "a-7").rmdir()
    assert len(select_logs([str(tmp_path)], parse_source_options({"path": str(tmp_path), "subscribe": "a"}))) == 4


def test_topic_ids_are_given_or_random(tmp_path):
    kseg.create_log(tmp_path / "a-0", topic_id="wNT28sCCT9u5hjLsvTd0Pw").close()
    assert kseg.open_log(tmp_path / "a-0").topic_id == "wNT28sCCT9u5hjLsvTd0Pw"
    kseg.create_log(tmp_path / "b-0").close()
    kseg.create_log(tmp_path / "c-0").close()
    ids = {kseg.open_log(tmp_path / name).topic_id for name in ("b-0", "c-0")}
    assert len(ids) == 2
    assert all(len(topic_id) == 22 for topic_id in ids)


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 60},
        {"segment_bytes": 2**31},
        {"segment_bytes": "1"},
        {"segment_ms": 0},
        {"segment_index_bytes": 23},
        {"index_interval_bytes": -1},
        {"segment_jitter_ms": -1},
        {"producer_id_expiration_ms": True},
        {"message_timestamp_type": "NoTimestampType"},
        {"message_timestamp_type": "Wrong"},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong)).replace("message_timestamp_type", "timestamp")):
        kseg.LogConfig(**wrong)


def test_what_was_appended_before_bad_input_stays(tmp_path):
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"clean")
    good = numbered(100).to_batches()[0]
    falling = pa.record_batch({"value": [b"x", b"y"], "offset": [500, 400]})
    with (
        pytest.raises(OptionError, match="rise"),
        kseg.create_log(tmp_path / "a-0", clock=clock) as writer,
    ):
        writer.append([good, falling])
    assert kseg.open_log(tmp_path / "a-0").end_offset == 100
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b"clean"
    with kseg.append_to(tmp_path / "a-0", config=kseg.LogConfig(segment_bytes=2000), clock=clock) as writer:
        for wrong, message in (
            ({"data": pa.table({"unknown": [1]})}, "unknown column"),
            ({"data": numbered(1), "codec": "zip"}, "codec"),
            ({"data": numbered(1), "level": 3}, "level"),
            ({"data": numbered(1), "batch_records": 0}, "positive"),
            ({"data": numbered(1), "leader_epoch": -1}, "leader_epoch"),
            ({"data": numbered(1), "transactional": True}, "producer_id"),
            ({"data": numbered(1), "producer_id": -1}, "producer_id"),
            ({"data": numbered(1), "producer_id": 1, "base_sequence": -1}, "base_sequence"),
            ({"data": pa.table({"value": [b"x" * 3000]})}, "segment_bytes"),
            ({"data": pa.table({"value": [b"x"] * 2, "offset": [101, 100]})}, "rise"),
            ({"data": pa.table({"value": [b"x"], "offset": [-1]})}, "rise"),
            ({"data": pa.table({"value": [b"x"], "offset": pa.array([None], pa.int64())})}, "without nulls"),
        ):
            with pytest.raises(OptionError, match=message):
                writer.append(**wrong)
        with pytest.raises(LogError, match="offset 99 is below the log's end, 100"):  # not an OptionError: it was one
            writer.append(pa.table({"value": [b"x"], "offset": [99]}))
        assert writer.append(numbered(1)) == OffsetRange(100, 101)
    with pytest.raises(LogError, match="closed"):
        writer.append(numbered(1))
    with pytest.raises(LogError, match="closed"):
        writer.flush()


def test_sequences_began_anew_behind_a_roll_where_records_are_old(tmp_path):
    """The snapshot leaves out producers that are silent for long by their timestamps; the writer forgot them too."""
    old = pa.table({"value": [b"a", b"b"], "timestamp": [1_000_000, 1_000_000]})
    with kseg.create_log(tmp_path / "a-0", clock=clock) as writer:
        writer.append(old, producer_id=7)
        writer.roll()
        writer.append(old, producer_id=7)
    assert [batch.base_sequence for batch in kseg.open_log(tmp_path / "a-0").batches()] == [0, 2]
    with kseg.append_to(tmp_path / "a-0", clock=clock) as writer:
        writer.append(old, producer_id=7)
    assert [batch.base_sequence for batch in kseg.open_log(tmp_path / "a-0").batches()] == [0, 2, 0]
