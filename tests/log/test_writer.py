"""Writing a log: what goes in comes out, whatever the settings; and what ends up in the directory."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kseg
from kseg import durable
from kseg.errors import FormatError, LockedError, LogError, OptionError, StorageError
from kseg.format.builder import BatchOptions, EncodedBatches, encode_batches
from kseg.index.offset import OffsetIndex
from kseg.index.producer import parse_snapshot
from kseg.index.time import TimeIndex
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, write_checkpoint
from kseg.native import table as t
from kseg.storage import LocalStore
from kseg.types import OffsetRange, TopicPartition
from tests.builders import LogBuilder
from tests.index.twins import index_twin, table_of
from tests.log.test_lock import HOLD
from tests.reference.rows import records_of
from tests.reference.rows import table_of as arrow_of
from tests.scale import counts
from tests.strategies import record_lists

START = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def clock():
    """A time near that of the records, so that no producer expires and no segment is old."""
    return START / 1000 + 60


def numbered(count, start=0, **columns):
    """Rows that differ from each other, without offsets."""
    numbers = range(start, start + count)
    return pa.table(
        {
            "key": [b"k%d" % i if i % 5 else None for i in numbers],
            "value": [b"value %d" % i * (i % 4) if i % 7 else None for i in numbers],
            "timestamp": [START + i for i in numbers],
        }
        | columns
    )


def names(directory, pattern="*"):
    return sorted(path.name for path in Path(directory).glob(pattern))


def bases(directory):
    return [int(name[:20]) for name in names(directory, "*.log")]


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
    with tempfile.TemporaryDirectory() as folder:
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


def check_indexes(segment, interval):
    """The index files hold what Kafka's rule says of the batches in the segment."""
    table, rows = table_of(segment.path)
    columns = table[[t.LAST_OFFSET, t.MAX_TIMESTAMP, t.SIZE], :rows].T.tolist()
    offsets, times = index_twin(columns, segment.base_offset, interval)
    sidecar = Path(segment.path).with_suffix
    assert list(OffsetIndex.parse(sidecar(".index").read_bytes(), segment.base_offset)) == offsets
    assert list(TimeIndex.parse(sidecar(".timeindex").read_bytes(), segment.base_offset)) == times


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
    from kseg.log import writer_input

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
    assert [piece.num_rows for piece in pieces([table.slice(0, 2).to_batches()[0], other])] == [2, 1]
    shared = pa.table({"value": pa.array(["x" * 100_000, "y"] * 20).dictionary_encode()})
    assert sum(piece.num_rows for piece in pieces(shared)) == 40
    assert pieces([]) == pieces(table.slice(0, 0)) == []
    for wrong in (7, ["x"], [[1]]):
        with pytest.raises(OptionError, match="record batch"):
            pieces(wrong)


# -- rolling and timestamps --------------------------------------------------------------------------------------------


def test_a_segment_may_be_as_large_as_segment_bytes_and_no_larger(tmp_path):
    rows = numbered(50).append_column("headers", pa.nulls(50, pa.list_(kseg_header())))
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


def kseg_header():
    return pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])


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
    assert bases(tmp_path / "b-0") == [0, 3]
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
    with pytest.raises(OptionError, match="directory|metadata"):
        kseg.create_log(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(OptionError, match="directory|metadata"):
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
            ({"data": pa.table({"value": [b"x"], "offset": [99]})}, "rise"),
        ):
            with pytest.raises(OptionError, match=message):
                writer.append(**wrong)
        assert writer.append(numbered(1)) == OffsetRange(100, 101)
    with pytest.raises(LogError, match="closed"):
        writer.append(numbered(1))
    with pytest.raises(LogError, match="closed"):
        writer.flush()


# -- lock and marker ---------------------------------------------------------------------------------------------------


def test_a_held_directory_is_refused_and_left_alone(tmp_path):
    kseg.create_log(tmp_path / "a-0").close()
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"clean")
    before = names(tmp_path / "a-0")
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline().strip() == "held"
        with pytest.raises(LockedError):
            kseg.append_to(tmp_path / "a-0")
        with pytest.raises(LockedError):
            kseg.create_log(tmp_path / "b-0")
        holder.stdin.close()
    assert names(tmp_path / "a-0") == before
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b"clean"
    assert not (tmp_path / "b-0").exists()


def test_the_marker_is_away_while_any_writer_is_open(tmp_path):
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.write_bytes(b'{"version":0,"brokerEpoch":7}')
    first = kseg.create_log(tmp_path / "a-0")
    second = kseg.create_log(tmp_path / "b-0")
    with pytest.raises(LockedError, match="already"):
        kseg.append_to(tmp_path / "a-0")
    assert not marker.exists()
    first.close()
    first.close()
    assert not marker.exists()
    with kseg.append_to(tmp_path / "a-0") as again:
        again.append(numbered(1))
    assert not marker.exists()
    second.close()
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":7}'


def test_a_failed_write_is_taken_back_and_the_marker_stays_away(tmp_path, monkeypatch):
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"clean")
    writer = kseg.create_log(tmp_path / "a-0", clock=clock)
    writer.append(numbered(10))
    write_at = durable.write_at

    def half(fd, position, data, path=""):
        write_at(fd, position, data[: len(data) // 2], path)
        raise StorageError("no space left on the device", path=str(path))

    monkeypatch.setattr(durable, "write_at", half)
    with pytest.raises(StorageError, match="no space"):
        writer.append(numbered(10))
    monkeypatch.undo()
    with pytest.raises(LogError, match="unusable"):
        writer.append(numbered(10))
    writer.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "a-0" / f"{0:020d}.index").exists()
    with kseg.append_to(tmp_path / "a-0", clock=clock) as writer:
        assert (writer.next_offset, writer.truncated_bytes) == (10, 0)


def test_checkpoints_that_are_there_move_to_the_log_end(tmp_path):
    tp, other = TopicPartition("a", 0), TopicPartition("z", 1)
    kseg.create_log(tmp_path / "a-0").close()
    assert names(tmp_path) == [".lock", "a-0"]
    write_checkpoint(str(tmp_path), CheckpointKind.RECOVERY_POINT, {other: 5})
    with kseg.append_to(tmp_path / "a-0", clock=clock) as writer:
        writer.append(numbered(10))
    assert read_checkpoint(LocalStore(), str(tmp_path), CheckpointKind.RECOVERY_POINT) == {tp: 10, other: 5}
    assert read_checkpoint(LocalStore(), str(tmp_path), CheckpointKind.HIGH_WATERMARK) is None
    write_checkpoint(str(tmp_path), CheckpointKind.HIGH_WATERMARK, {tp: 10})
    with kseg.append_to(tmp_path / "a-0", clock=clock) as writer:
        writer.append(numbered(10))
    assert read_checkpoint(LocalStore(), str(tmp_path), CheckpointKind.HIGH_WATERMARK) == {tp: 20}
    assert kseg.open_log(tmp_path / "a-0").high_watermark == 20
    (tmp_path / CheckpointKind.HIGH_WATERMARK.value).write_bytes(b"junk")
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"clean")
    with pytest.raises(kseg.IndexFileError):
        kseg.append_to(tmp_path / "a-0")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


# -- what a crash leaves -----------------------------------------------------------------------------------------------


def built(tmp_path):
    builder = LogBuilder(tmp_path, "torn").segment(0).batch(5).segment(5)
    return builder.batch(5).transaction(3, producer_id=7).control("abort", producer_id=7).batch(5)


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda log: log.torn(b"\0" * 100), 19),
        (lambda log: log.torn(b"\0" * 5), 19),
        (lambda log: log.torn(b"\x00\x00\x00\x00\x00\x00\x00\x13\x00\x00\x40\x00" + b"\1" * 300), 19),
        (lambda log: log.truncate(70), 14),
        (lambda log: log.truncate(3), 14),
        (lambda log: log.corrupt(byte=80), 14),
    ],
    ids=["zeros", "few bytes", "batch cut off", "torn batch", "torn prefix", "bad checksum"],
)
def test_a_torn_tail_is_cut_off(tmp_path, caplog, damage, kept):
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"clean")
    log = built(tmp_path)
    sound = len(log.segments[-1].data) - (len(log.batches[-1].data) if kept == 14 else 0)
    directory = damage(log).write()
    (directory / f"{5:020d}.index").write_bytes(bytes(1024))
    for stray in (2, 5, 12, 17, 25):
        (directory / f"{stray:020d}.snapshot").write_bytes(b"junk")
    torn = len(log.segments[-1].data) - sound
    with kseg.append_to(directory, clock=clock) as writer:
        assert (writer.next_offset, writer.truncated_bytes) == (kept, torn)
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        assert not (directory / f"{5:020d}.index").exists()
        assert (directory / f"{5:020d}.log").stat().st_size == sound
        assert writer.append(numbered(3)) == OffsetRange(kept, kept + 3)
    assert f"cut off {torn} bytes" in caplog.text
    opened = kseg.open_log(directory)
    assert records_of(opened.read())[:-3] == [r for r in log.records if r.offset < kept]
    assert [txn.first_offset for txn in opened.aborted_transactions(0, 100)] == [10]
    assert names(directory, "*.snapshot") == [f"{5:020d}.snapshot", f"{kept + 3:020d}.snapshot"]
    assert names(directory, "*.txnindex") == [f"{5:020d}.txnindex"]
    for segment in opened.segments[1:]:
        check_indexes(segment, 4096)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b"clean"


@pytest.mark.parametrize("byte", [80, 8, 9, 16], ids=["checksum", "length", "length past the end", "magic"])
def test_damage_before_sound_batches_is_not_cut_off(tmp_path, byte):
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"clean")
    log = LogBuilder(tmp_path, "damaged").batch(5).batch(5).corrupt(byte=byte, xor=0x7F).batch(5)
    directory = log.write()
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(FormatError, match="sound batch follows") as caught:
        kseg.append_to(directory)
    assert (caught.value.path, caught.value.offset) == (str(directory / f"{0:020d}.log"), 5)
    assert caught.value.position == len(log.batches[0].data)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_offsets_that_fall_back_are_not_cut_off(tmp_path):
    log = LogBuilder(tmp_path, "falling").batch(5)
    log.next_offset = 2
    directory = log.batch(5).write()
    with pytest.raises(FormatError, match="do not follow"):
        kseg.append_to(directory)


def test_an_interrupted_swap_is_refused(tmp_path):
    directory = built(tmp_path).write()
    (directory / f"{0:020d}.log.swap").write_bytes(b"")
    with pytest.raises(LogError, match="recover"):
        kseg.append_to(directory)


def test_unflushed_segments_are_checked_where_the_recovery_point_would_cover_them(tmp_path):
    directory = LogBuilder(tmp_path, "torn").segment(0).batch(5).corrupt(byte=80).segment(5).batch(5).write()
    with kseg.append_to(directory, clock=clock) as writer:
        assert writer.next_offset == 10
    tp = TopicPartition("torn", 0)
    write_checkpoint(str(tmp_path), CheckpointKind.RECOVERY_POINT, {tp: 3})
    with pytest.raises(FormatError, match="checksum"):
        kseg.append_to(directory)
    write_checkpoint(str(tmp_path), CheckpointKind.RECOVERY_POINT, {tp: 5})
    kseg.append_to(directory, clock=clock).close()


def test_a_writer_that_dies_leaves_a_log_that_is_read_and_written_on(tmp_path):
    config = kseg.LogConfig(segment_bytes=3000)
    with kseg.create_log(tmp_path / "live" / "a-0", config=config, clock=clock) as writer:
        writer.append(numbered(200), batch_records=10)
        writer.append(numbered(3), producer_id=9, transactional=True)
        writer.append_marker(9, commit=False)
        writer.flush()
        shutil.copytree(tmp_path / "live", tmp_path / "crash")
    log = kseg.open_log(tmp_path / "crash" / "a-0")
    assert len(records_of(log.read(isolation="read_committed"))) == 200
    with kseg.append_to(tmp_path / "crash" / "a-0", config=config, clock=clock) as writer:
        assert writer.next_offset == 204
    files = {name: (tmp_path / "live" / "a-0" / name).read_bytes() for name in names(tmp_path / "live" / "a-0")}
    assert {name: (tmp_path / "crash" / "a-0" / name).read_bytes() for name in names(tmp_path / "crash" / "a-0")} == files


def test_a_directory_without_segments_gets_one(tmp_path):
    (tmp_path / "a-0").mkdir()
    write_checkpoint(str(tmp_path), CheckpointKind.LOG_START, {TopicPartition("a", 0): 40})
    with kseg.append_to(tmp_path / "a-0", clock=clock) as writer:
        assert writer.append(numbered(2)) == OffsetRange(40, 42)
    assert bases(tmp_path / "a-0") == [40]


# -- producers, epochs, batches as they are ----------------------------------------------------------------------------


def test_sequences_go_on_and_snapshots_tell_of_them(tmp_path):
    config = kseg.LogConfig(segment_bytes=20_000)
    with kseg.create_log(tmp_path / "a-0", config=config, clock=clock) as writer:
        writer.append(numbered(5), producer_id=3)
        writer.append(numbered(5), producer_id=3)
        writer.append(numbered(4), producer_id=3, producer_epoch=1, base_sequence=2**31 - 2)
        writer.append(numbered(2), producer_id=4, transactional=True)
        with pytest.raises(LogError, match="open transaction"):
            writer.append(numbered(2), producer_id=4)
        writer.roll()
        writer.roll()
        writer.append_marker(4, commit=True, coordinator_epoch=6, timestamp_ms=START)
    headers = list(kseg.open_log(tmp_path / "a-0").batches())
    assert [(h.producer_id, h.base_sequence) for h in headers] == [(3, 0), (3, 5), (3, 2**31 - 2), (4, 0), (4, -1)]
    assert names(tmp_path / "a-0", "*.snapshot") == [f"{16:020d}.snapshot", f"{17:020d}.snapshot"]
    first, second = parse_snapshot((tmp_path / "a-0" / f"{16:020d}.snapshot").read_bytes())
    assert (first.epoch, first.last_sequence, first.last_offset) == (1, 1, 13)
    assert second.txn_first_offset == 14
    with kseg.append_to(tmp_path / "a-0", config=config, clock=clock) as writer:
        writer.append(numbered(1), producer_id=3, producer_epoch=1)
        assert next(entry.base_sequence for entry in kseg.open_log(writer.path).batches(17)) == 2
    _, second = parse_snapshot((tmp_path / "a-0" / f"{18:020d}.snapshot").read_bytes())
    assert (second.txn_first_offset, second.coordinator_epoch) == (-1, 6)
    day_later = clock() + 86_400
    with kseg.append_to(tmp_path / "a-0", config=config, clock=lambda: day_later) as writer:
        writer.append(numbered(1))
    assert parse_snapshot((tmp_path / "a-0" / f"{19:020d}.snapshot").read_bytes()) == []


def test_sequences_run_through_the_pieces_of_an_append(tmp_path, monkeypatch):
    from kseg.log import writer_input

    monkeypatch.setattr(writer_input, "PIECE_ROWS", 64)
    with kseg.create_log(tmp_path / "a-0", clock=clock) as writer:
        writer.append(numbered(200), producer_id=3, base_sequence=2**31 - 100)
    for header in kseg.open_log(tmp_path / "a-0").batches():
        assert header.base_sequence == (2**31 - 100 + header.base_offset) % 2**31


def test_epochs_rise_and_are_kept(tmp_path):
    with kseg.create_log(tmp_path / "a-0", clock=clock) as writer:
        writer.append(numbered(2))
        writer.append(numbered(2), leader_epoch=4)
        with pytest.raises(OptionError, match="below"):
            writer.append(numbered(2), leader_epoch=3)
    (tmp_path / "a-0" / "leader-epoch-checkpoint").unlink()
    with kseg.append_to(tmp_path / "a-0", clock=clock) as writer:
        writer.append(numbered(2))
    assert kseg.open_log(tmp_path / "a-0").leader_epochs() == [(0, 0), (4, 2)]
    # a broker that became leader and wrote nothing: its epoch is the one to go on with
    (tmp_path / "a-0" / "leader-epoch-checkpoint").write_bytes(b"0\n3\n0 0\n4 2\n9 6\n")
    with kseg.append_to(tmp_path / "a-0", clock=clock) as writer:
        assert kseg.open_log(tmp_path / "a-0").leader_epochs() == [(0, 0), (4, 2)]
        writer.append(numbered(1))
    assert kseg.open_log(tmp_path / "a-0").leader_epochs() == [(0, 0), (4, 2), (9, 6)]
    (tmp_path / "a-0" / "leader-epoch-checkpoint").write_bytes(b"junk")
    with kseg.append_to(tmp_path / "a-0", clock=clock) as writer:
        writer.append(numbered(1))
    assert kseg.open_log(tmp_path / "a-0").leader_epochs() == [(0, 0), (4, 2), (9, 6)]


def test_batches_are_written_as_they_are(tmp_path):
    source = LogBuilder(tmp_path, "source").batch(5, "lz4", leader_epoch=2).skip(10)
    source.transaction(3, producer_id=9).control("abort", producer_id=9).empty(4).batch(2, "zstd")
    data = np.frombuffer(b"".join(entry.data for entry in source.batches), np.uint8)
    table, rows = table_of(source.write() / f"{0:020d}.log")
    encoded = EncodedBatches(data, table[:, :rows])
    with kseg.create_log(tmp_path / "copy-0", config=kseg.LogConfig(segment_bytes=300), clock=clock) as writer:
        assert writer.append_batches(encoded) == OffsetRange(0, source.next_offset)
        assert writer.append_batches(EncodedBatches(data[:0], table[:, :0])) == OffsetRange(25, 25)
        with pytest.raises(LogError, match="rise from 25"):
            writer.append_batches(encoded)
        writer.append(numbered(1), producer_id=8, transactional=True)
    log = kseg.open_log(tmp_path / "copy-0")
    assert records_of(log.read())[:-1] == source.records
    assert len(log.segments) > 1
    assert [txn.first_offset for txn in log.aborted_transactions(0, 100)] == [15]
    assert log.leader_epochs() == [(2, 0)]


def test_batches_that_are_unsound_are_refused(tmp_path):
    options = BatchOptions(producer_id=8, producer_epoch=0, base_sequence=0)
    sound = encode_batches(numbered(5).to_batches()[0], first_offset=10, options=options, now_ms=0)

    def changed(byte, value):
        data = sound.data.copy()
        data[byte] = value
        return EncodedBatches(data, sound.table)

    with kseg.create_log(tmp_path / "a-0", clock=clock) as writer:
        writer.append(numbered(1), producer_id=8, transactional=True)
        for wrong in (changed(80, 0xEE), changed(16, 1), changed(11, 0), EncodedBatches(sound.data[:-1], sound.table)):
            with pytest.raises(FormatError):
                writer.append_batches(wrong)
        with pytest.raises(LogError, match="outside of its open transaction"):
            writer.append_batches(sound)
        writer.append_marker(8, commit=True)
        writer.append_batches(sound)
        with pytest.raises(OptionError):
            writer.append_marker(-1, commit=True)
    assert kseg.open_log(tmp_path / "a-0").end_offset == 15
