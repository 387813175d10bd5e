"""Directories in states that are not tidy: holes, overlaps, torn tails, swaps, moving checkpoints, lying indexes."""

from __future__ import annotations

import itertools
import os
import shutil
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kseg
from kseg.log.names import FileKind, FileState, segment_file_name
from kseg.schema import RECORD_SCHEMA
from kseg.storage import LocalStore
from tests.builders import LogBuilder
from tests.cli.calls import call


def offsets(log, **options):
    """Every offset that a read gives."""
    return [
        offset for batch in log.read(columns=["offset"], **options) for offset in batch.column("offset").to_pylist()
    ]


def numbers(start, end):
    return list(range(start, end))


@pytest.fixture
def three_segments(tmp_path):
    """Offsets 0 to 9, 10 to 19 and 20 to 29, in batches of five."""
    builder = LogBuilder(tmp_path)
    for base in (0, 10, 20):
        builder.segment(base).batch(5).batch(5, codec="lz4")
    return builder.write()


def test_holes_between_and_inside_segments_are_normal(tmp_path):
    builder = LogBuilder(tmp_path).segment(3).batch(2).segment(100).batch(builder_records(100)).segment(500).batch(1)
    log = kseg.open_log(builder.write())
    assert offsets(log) == [3, 4, 100, 107, 114, 500]
    assert (log.start_offset, log.end_offset) == (3, 501)
    assert offsets(log, start=5, end=100) == []
    assert offsets(log, start=101, end=501) == [107, 114, 500]


def builder_records(start):
    scratch = LogBuilder(Path())
    scratch.next_offset = start
    return scratch.make(3, step=7)


def test_a_zero_byte_segment_is_legal_wherever_it_is(tmp_path):
    builder = LogBuilder(tmp_path).segment(0).segment(5).batch(5).segment(10).segment(20).batch(1).segment(21)
    log = kseg.open_log(builder.write())
    assert offsets(log) == [5, 6, 7, 8, 9, 20]
    assert (log.start_offset, log.end_offset) == (0, 21)
    assert [segment.next_offset for segment in log.segments] == [0, 10, 10, 21, 21]


def test_an_offset_is_read_from_the_segment_a_broker_would_serve_it_from(tmp_path):
    LogBuilder(tmp_path).segment(0).batch(5).batch(5).write()
    LogBuilder(tmp_path).segment(5).batch(5).batch(5).write()
    assert offsets(kseg.open_log(tmp_path / "orders-0")) == numbers(0, 15)


def test_a_torn_tail_is_normal_in_the_last_segment_and_damage_in_others(three_segments):
    last = three_segments / segment_file_name(20, FileKind.LOG)
    middle = three_segments / segment_file_name(10, FileKind.LOG)
    os.truncate(last, last.stat().st_size - 7)
    log = kseg.open_log(three_segments)
    assert offsets(log) == numbers(0, 25)
    assert log.end_offset == 25
    os.truncate(middle, middle.stat().st_size - 7)
    reader = kseg.open_log(three_segments).read(columns=["offset"])
    with pytest.raises(kseg.TruncatedError, match="no whole batch") as caught:
        list(reader)
    assert caught.value.path == str(middle)
    assert caught.value.position is not None


def test_what_lies_before_damage_is_given_first(three_segments):
    middle = three_segments / segment_file_name(10, FileKind.LOG)
    data = bytearray(middle.read_bytes())
    data[-1] ^= 1
    middle.write_bytes(data)
    seen = []
    with pytest.raises(kseg.ChecksumError) as caught:
        for batch in kseg.open_log(three_segments).read(columns=["offset"]):
            seen += batch.column("offset").to_pylist()
    assert seen == numbers(0, 15)
    assert caught.value.offset == 15
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_in_a_base_offset_is_found_though_no_checksum_covers_it(three_segments):
    last = three_segments / segment_file_name(20, FileKind.LOG)
    data = bytearray(last.read_bytes())
    second = 12 + struct.unpack_from(">i", data, 8)[0]
    struct.pack_into(">q", data, second, 3)
    last.write_bytes(data)
    with pytest.raises(kseg.CorruptRecordError, match="offsets 3 to 7 do not follow 24"):
        offsets(kseg.open_log(three_segments))


@pytest.mark.parametrize("suffix", [state for state in FileState if state is not FileState.LIVE])
def test_files_of_a_dead_or_running_replacement_are_read_as_a_start_up_would_leave_them(three_segments, suffix):
    merged = LogBuilder(three_segments.parent, "merged").segment(0).batch(2).segment(20).batch(1).write()
    base = segment_file_name(0, FileKind.LOG)
    (merged / base).rename(three_segments / (base + suffix))
    log = kseg.open_log(three_segments)
    if suffix is FileState.SWAP:  # replaces [0, 2): the segment of base 0, and nothing else
        assert offsets(log) == [0, 1, *numbers(10, 30)]
    else:
        assert offsets(log) == numbers(0, 30)


def test_a_swap_at_or_above_a_cleaned_file_does_not_count(three_segments):
    merged = LogBuilder(three_segments.parent, "merged").segment(10).batch(2).write()
    base = segment_file_name(10, FileKind.LOG)
    (merged / base).rename(three_segments / (base + FileState.SWAP))
    assert offsets(kseg.open_log(three_segments)) == [*numbers(0, 12), *numbers(20, 30)]
    (three_segments / segment_file_name(10, FileKind.OFFSET_INDEX, FileState.CLEANED)).touch()
    assert offsets(kseg.open_log(three_segments)) == numbers(0, 30)


def test_reading_stops_at_the_high_watermark_and_starts_at_the_log_start(three_segments):
    parent = three_segments.parent
    (parent / "replication-offset-checkpoint").write_text("0\n1\norders 0 23\n")
    (parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    log = kseg.open_log(three_segments)
    assert (log.start_offset, log.high_watermark, log.last_stable_offset, log.end_offset) == (7, 23, 23, 30)
    assert offsets(log) == numbers(7, 23)
    assert offsets(log, start=0, end=9) == [7, 8]
    assert offsets(log, read_past_high_watermark=True) == numbers(7, 30)


def test_an_open_transaction_holds_the_last_stable_offset_back(tmp_path):
    builder = LogBuilder(tmp_path).segment(0).batch(2).transaction(3, producer_id=7).batch(2)
    log = kseg.open_log(builder.write())
    assert log.last_stable_offset == 2
    assert offsets(log, isolation="read_committed") == [0, 1]
    assert offsets(log) == numbers(0, 7)
    assert [(txn.producer_id, txn.first_offset) for txn in log.open_transactions()] == [(7, 2)]


def test_an_abort_far_behind_its_data_hides_them(tmp_path):
    builder = LogBuilder(tmp_path).segment(0).transaction(2, producer_id=7).batch(1)
    builder.segment(3).batch(2).segment(5).control("abort", producer_id=7).batch(1)
    log = kseg.open_log(builder.write())
    assert offsets(log, isolation="read_committed") == [2, 3, 4, 6]
    assert offsets(log) == [0, 1, 2, 3, 4, 6]
    assert [(t.producer_id, t.first_offset, t.last_offset) for t in log.aborted_transactions(0, 7)] == [(7, 0, 5)]


@pytest.mark.parametrize("entries", [[(9, 1)], [(9, 10**6)], [(2, 3), (9, 5)], [(0x7FFFFFFF, 61)], [(1, 0x7FFFFFFF)]])
def test_an_index_that_lies_costs_no_record(three_segments, entries):
    index = three_segments / segment_file_name(10, FileKind.OFFSET_INDEX)
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    log = kseg.open_log(three_segments)
    for start, end in itertools.combinations(range(9, 31, 3), 2):
        assert offsets(log, start=start, end=end) == numbers(start, min(end, 30))
    assert log.segments[1].next_offset == 20


@pytest.mark.parametrize("relative", [0, 1, 3, 4])
def test_an_index_entry_that_names_a_later_batch_costs_no_record(three_segments, relative):
    second = list(kseg.open_log(three_segments).batches(10, 20))[1].position
    index = three_segments / segment_file_name(10, FileKind.OFFSET_INDEX)
    index.write_bytes(struct.pack(">ii", relative, second))
    for start in range(10, 20):
        assert offsets(kseg.open_log(three_segments), start=start, end=25) == numbers(start, 25)


def test_names_of_directories_set_aside_still_open(three_segments):
    kept = three_segments.rename(three_segments.parent / f"orders-0.{'a' * 32}-delete")
    log = kseg.open_log(kept)
    assert (log.topic, log.partition, offsets(log)) == ("orders", 0, numbers(0, 30))
    log_dir = kseg.open_dir(kept.parent)
    assert log_dir.partitions == []
    assert log_dir.set_aside == [str(kept)]


def test_a_directory_that_grows_is_seen_after_refresh(three_segments):
    log = kseg.open_log(three_segments)
    assert log.end_offset == 30
    grown = LogBuilder(three_segments.parent, "grown").segment(30).batch(4).write()
    last = three_segments / segment_file_name(20, FileKind.LOG)
    with last.open("ab") as file:
        file.write((grown / segment_file_name(30, FileKind.LOG)).read_bytes())
    assert offsets(log) == numbers(0, 30)
    log.refresh()
    assert offsets(log) == numbers(0, 34)


def test_a_segment_deleted_under_the_reader_is_data_loss_and_one_that_was_merged_is_not(three_segments):
    log = kseg.open_log(three_segments)
    reader = log.read(columns=["offset"])
    assert next(reader).column("offset").to_pylist() == numbers(0, 10)
    (three_segments / segment_file_name(0, FileKind.LOG)).unlink()
    (three_segments / segment_file_name(10, FileKind.LOG)).unlink()
    with pytest.raises(kseg.DataLossError, match="offsets 10 to 19 were deleted"):
        list(reader)
    merged = LogBuilder(three_segments.parent, "merged").segment(0).batch(5).batch(5).batch(3).write()
    name = segment_file_name(0, FileKind.LOG)
    stale = kseg.open_log(three_segments)
    (merged / name).rename(three_segments / name)
    assert offsets(kseg.open_log(three_segments)) == [*numbers(0, 13), *numbers(20, 30)]
    assert stale.start_offset == 20


def test_a_hostile_length_allocates_nothing(tmp_path):
    path = LogBuilder(tmp_path).segment(0).batch(2).write() / segment_file_name(0, FileKind.LOG)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(struct.pack(">qiib", 2, 0x7FFF0000, 0, 2) + bytes(200))
    tracemalloc.start()
    assert offsets(kseg.open_log(path.parent)) == [0, 1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    os.truncate(path, size + 400 * (1 << 20))  # sparse: now the file could hold it, but it is above the limit
    os.truncate(path, (1 << 31) - 1)
    with pytest.raises(kseg.UnsupportedError, match="above the limit"):
        offsets(kseg.open_log(path.parent))


def test_relative_paths_uris_and_a_trailing_slash_name_the_same_log(three_segments, monkeypatch):
    monkeypatch.chdir(three_segments)
    for name in (".", str(three_segments) + "/", three_segments.as_uri(), "../orders-0"):
        log = kseg.open_log(name)
        assert (log.topic, log.partition, log.end_offset) == ("orders", 0, 30)


def test_wrong_arguments_are_one_clear_line(three_segments, tmp_path):
    log = kseg.open_log(three_segments)
    with pytest.raises(kseg.OptionError, match="unknown isolation 'dirty'; valid values are"):
        log.read(isolation="dirty")
    with pytest.raises(kseg.OptionError, match="unknown column 'colour'; valid values are key"):
        log.read(columns=["colour"])
    with pytest.raises(kseg.OptionError, match="negative"):
        log.offset_for_time(-5)
    for other in (tmp_path / "empty", tmp_path / "disk-0"):
        (other / "folder").mkdir(parents=True)
        with pytest.raises(kseg.LogError, match="no segments here"):
            kseg.open_log(other)
    with pytest.raises(kseg.StorageError):
        kseg.open_log(tmp_path / "missing-0")


def test_a_log_that_cannot_be_read_could_not_be_shown_either(three_segments, monkeypatch):
    data = kseg.open_dir(three_segments.parent)
    (log,) = data.partitions
    monkeypatch.setattr(
        LocalStore, "open", lambda store, path: (_ for _ in ()).throw(kseg.StorageError("no", path=path))
    )
    assert repr(data.partitions) == f"[Log('{three_segments}')]"
    with pytest.raises(kseg.StorageError):
        _ = log.end_offset
    assert repr(log) == f"Log('{three_segments}', 3 segments)"
    monkeypatch.undo()
    assert log.end_offset == 30
    assert repr(log) == f"Log('{three_segments}', offsets [0, 30), 3 segments)"
    log.refresh()
    assert repr(log) == f"Log('{three_segments}')"


def test_a_loop_of_symbolic_links_listed_partitions_again_and_again(three_segments):
    data = three_segments.parent
    (data / "loop").symlink_to(data)
    (data / "aside").mkdir()
    (data / "aside" / "back").symlink_to(data)
    (data / "aside" / "orders-0").symlink_to(three_segments)
    for path in (data, data / "loop", data / "aside"):
        (log,) = kseg.open_dir(path).partitions
        assert Path(log.directory).resolve() == three_segments
    assert kseg.open_dir(data)["orders", 0].directory == str(three_segments)


def test_a_directory_under_two_names_is_two_partitions(three_segments):
    (three_segments.parent / "copies-3").symlink_to(three_segments)
    assert [(log.topic, log.partition) for log in kseg.open_dir(three_segments.parent)] == [
        ("copies", 3),
        ("orders", 0),
    ]


def test_a_partition_by_a_text_was_told_as_missing(three_segments):
    data = kseg.open_dir(three_segments.parent)
    for key in (("orders", "0"), kseg.TopicPartition("orders", "0")):
        with pytest.raises(kseg.OptionError, match="a partition's number is a whole number, got '0'"):
            data[key]
    assert data["orders", np.int64(0)].end_offset == 30
    assert ("orders", "0") not in data


def test_a_directory_is_shown_without_looking_into_it(tmp_path):
    missing = kseg.open_dir(tmp_path / "missing")
    assert repr(missing) == f"LogDir('{tmp_path}/missing')"
    assert (len(kseg.open_dir(tmp_path)), repr(missing)) == (0, f"LogDir('{tmp_path}/missing')")


@pytest.mark.parametrize("columns", [None, ["offset", "producerId"]])
@pytest.mark.parametrize("on_corrupt", ["raise", "column"])
def test_a_read_that_finds_nothing_was_no_table(three_segments, columns, on_corrupt):
    log = kseg.open_log(three_segments)
    for start, end, rows in ((5, 5, 0), (100, 200, 0), (0, 12, 12)):
        records = log.read(start, end, columns=columns, on_corrupt=on_corrupt)
        table = pa.Table.from_batches(records, schema=records.schema)
        assert (table.num_rows, table.schema) == (rows, records.schema)
    assert records.schema.names == (columns or RECORD_SCHEMA.names) + ["_corrupt"] * (on_corrupt == "column")


def test_a_rate_limit_is_shared_by_all_segments_of_a_read(three_segments):
    log = kseg.open_log(three_segments, max_bytes_per_second=10_000_000, drop_page_cache=True)
    assert offsets(log) == numbers(0, 30)
    assert len({id(segment.limiter) for segment in log.segments}) == 1


def test_a_rate_limit_is_shared_by_all_partitions_of_a_directory(three_segments, tmp_path):
    shutil.copytree(three_segments, three_segments.parent / "orders-1")
    logs = kseg.open_dir(three_segments.parent, max_bytes_per_second=10_000_000, max_batch_bytes=1 << 20).partitions
    assert [log.options.max_bytes_per_second for log in logs] == [10_000_000] * 2
    assert len({id(segment.limiter) for log in logs for segment in (*log.segments, *log.past_damage.segments)}) == 1
    assert [offsets(log) for log in logs] == [numbers(0, 30)] * 2
    with pytest.raises(kseg.OptionError, match="bytes per second must be"):
        kseg.open_dir(three_segments.parent, max_bytes_per_second=0)


def test_cat_reads_no_faster_than_it_is_told(three_segments):
    began = time.monotonic()
    size = sum(path.stat().st_size for path in three_segments.glob("*.log"))
    answer = call("cat", three_segments, "--max-bytes-per-second", str(size))
    assert (answer.status, len(answer.lines)) == (0, 30)
    assert time.monotonic() - began > 0.3  # the first bytes of a reader are free
    assert "is no size such as" in call("cat", three_segments, "--max-bytes-per-second", "fast").messages


def test_a_directory_that_cannot_be_read_does_not_hide_the_others(three_segments, monkeypatch):
    closed = three_segments.parent / "closed"
    closed.mkdir()
    listing = LocalStore.list

    def refuse(store, path):
        if path == str(closed):
            raise kseg.StorageError("permission denied", path=path)
        return listing(store, path)

    monkeypatch.setattr(LocalStore, "list", refuse)
    log_dir = kseg.open_dir(three_segments.parent)
    assert [log.topic for log in log_dir.partitions] == ["orders"]
    assert [problem.path for problem in log_dir.problems] == [str(closed)]


def test_refresh_reads_the_checkpoints_again(three_segments):
    checkpoint = three_segments.parent / "replication-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 11\n")
    log = kseg.open_dir(three_segments.parent)["orders", 0]
    assert log.high_watermark == 11
    checkpoint.write_text("0\n1\norders 0 22\n")
    log.refresh()
    assert log.high_watermark == 22
