"""Faults that were found by trying to break the reader, each under the name of what went wrong."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import resource
import shutil
import struct

import numpy as np
import pyarrow as pa
import pytest

import kseg
from kseg.log.names import FileKind, FileState, segment_file_name
from kseg.log.plan import plan_splits, read_splits
from kseg.schema import select_columns as log_schema
from kseg.storage import LocalStore
from tests.builders import LogBuilder
from tests.faults.memory import MIB, bounded_growth
from tests.log.test_partition import numbers, offsets
from tests.reference import batch as v2
from tests.reference.record import Record


def values(log, **options):
    return [value for batch in log.read(columns=["value"], **options) for value in batch.column("value").to_pylist()]


def test_an_abort_whose_index_a_broker_made_after_the_listing_hides_its_records(tmp_path):
    live, later = tmp_path / "live" / "t-0", tmp_path / "later" / "t-0"
    with kseg.create_log(live) as writer:
        writer.append(pa.table({"value": [b"c1"]}), producer_id=7, transactional=True)
        writer.append_marker(7, commit=True)
    shutil.copytree(live, later)
    with kseg.append_to(later) as writer:
        writer.append(pa.table({"value": [b"aborted"]}), producer_id=7, transactional=True)
        writer.append_marker(7, commit=False)
        writer.append(pa.table({"value": [b"c2"]}))
    log = kseg.open_log(live)  # lists the files as they are now
    for file in later.iterdir():
        (live / file.name).write_bytes(file.read_bytes())
    assert values(log, isolation="read_committed") == [b"c1", b"c2"]


TAILS = {
    "zeros": bytes(100),
    "few zeros": bytes(17),
    "ones": b"\xff" * 300,
    "rubbish": random.Random(5).randbytes(500),
    "sevens": bytes(3) + b"\x07" * 90,
}


TORN = {"zeros", "few zeros", "sevens"}  # as a crash leaves them: zeros, or a batch that was cut short


@pytest.mark.parametrize("kind", TAILS)
def test_zeros_or_rubbish_behind_the_last_batch_hide_nothing_that_is_before(tmp_path, kind):
    path = LogBuilder(tmp_path).segment(0).batch(5).segment(5).batch(5).torn(TAILS[kind]).write()
    log = kseg.open_log(path)
    assert (log.end_offset, log.last_stable_offset) == (10, 10)
    assert offsets(log, start=0, end=8) == numbers(0, 8)
    assert log.segments[-1].max_timestamp > 0
    assert log.offset_for_time(2**50) is None
    seen = []
    is_torn = kind in TORN  # what else is there is told, but last
    with contextlib.nullcontext() if is_torn else pytest.raises(kseg.FormatError) as caught:
        for batch in log.read(columns=["offset"]):
            seen += batch.column("offset").to_pylist()
    assert seen == numbers(0, 10)
    splits = plan_splits(log, 0, 10)
    with contextlib.nullcontext() if is_torn else pytest.raises(kseg.FormatError):
        list(read_splits(splits, log_schema(["offset"])))
    if not is_torn:
        assert caught.value.path == log.segments[-1].path
        assert caught.value.position == log.segments[-1].sound_size


def test_damage_with_sound_batches_behind_it_is_no_torn_tail(tmp_path):
    path = LogBuilder(tmp_path).segment(0).batch(5).batch(5).batch(5).write()
    file = path / segment_file_name(0, FileKind.LOG)
    data = bytearray(file.read_bytes())
    second = 12 + struct.unpack_from(">i", data, 8)[0]
    data[second + 8 : second + 12] = bytes(4)  # no length
    file.write_bytes(data)
    with pytest.raises(kseg.CorruptRecordError):
        offsets(kseg.open_log(path))


def test_a_segment_taken_from_the_middle_while_it_is_read_is_data_loss(tmp_path):
    path = LogBuilder(tmp_path).segment(0).batch(5).segment(5).batch(5).segment(10).batch(5).write()
    reader = kseg.open_log(path).read(columns=["offset"])
    assert next(reader).column("offset").to_pylist() == numbers(0, 5)
    name = segment_file_name(5, FileKind.LOG)
    (path / name).rename(path / (name + FileState.DELETED))
    with pytest.raises(kseg.DataLossError):
        list(reader)


@pytest.mark.parametrize("codec", [0, 4])
def test_a_count_that_no_batch_can_hold_allocates_nothing_even_if_only_offsets_are_asked_for(tmp_path, codec):
    data = bytearray(v2.encode_batch([Record(0, 1, b"k", b"v")], v2.Fields(codec=codec)))
    struct.pack_into(">i", data, 57, 2**31 - 1)
    struct.pack_into(">i", data, 23, 2**31 - 2)
    path = LogBuilder(tmp_path).raw(v2.repair(bytes(data))).write()
    with pytest.raises(kseg.CorruptRecordError, match="count"):
        offsets(kseg.open_log(path))


def test_a_bomb_of_tiny_records_comes_in_pieces(tmp_path):
    count = 1_000_000
    with kseg.create_log(tmp_path / "bomb-0") as writer:
        writer.append(
            pa.table({"timestamp": pa.array(np.zeros(count, np.int64))}),
            codec="zstd",
            batch_bytes=1 << 27,
            batch_records=count,
        )
    log = kseg.open_log(tmp_path / "bomb-0")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = [batch.num_rows for batch in log.read()]
    assert sum(rows) == count
    assert max(rows) <= 1 << 18
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_many_gzip_members_take_time_in_proportion(tmp_path):
    record = v2.encode_batch([Record(0, 1, b"k", b"v")])[61:]
    members = gzip.compress(record) + gzip.compress(b"") * 60_000
    data = bytearray(v2.encode_batch([Record(0, 1, b"k", b"v")], v2.Fields(codec=1)))[:61] + members
    struct.pack_into(">i", data, 8, len(data) - 12)
    path = LogBuilder(tmp_path).raw(v2.repair(bytes(data))).write()
    assert values(kseg.open_log(path)) == [b"v"]


def test_read_committed_past_the_high_watermark_goes_to_the_end(tmp_path):
    path = LogBuilder(tmp_path).segment(0).batch(5).batch(5).write()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    log = kseg.open_log(path)
    assert offsets(log, isolation="read_committed") == numbers(0, 5)
    assert offsets(log, isolation="read_committed", read_past_high_watermark=True) == numbers(0, 10)


def test_batches_of_a_range_end_with_it_in_legacy_logs_too(tmp_path):
    builder = LogBuilder(tmp_path).segment(0)
    for _ in range(4):
        builder.legacy(3, codec="gzip", magic=1)
    log = kseg.open_log(builder.write())
    assert [header.last_offset for header in log.batches(0, 3)] == [2]
    assert [header.last_offset for header in log.batches(3, 7)] == [5, 8]


def test_a_table_without_columns_is_refused(tmp_path):
    with kseg.create_log(tmp_path / "t-0") as writer, pytest.raises(kseg.OptionError, match="no column"):
        writer.append(pa.table({"value": ["a", "b"]}).select([]))


def test_a_pipe_among_the_files_blocks_nobody(tmp_path):
    path = LogBuilder(tmp_path).segment(0).batch(5).write()
    os.mkfifo(path / segment_file_name(0, FileKind.OFFSET_INDEX))
    assert offsets(kseg.open_log(path)) == numbers(0, 5)


def test_links_to_nowhere_and_to_themselves_hide_nothing(tmp_path):
    path = LogBuilder(tmp_path).segment(0).batch(5).write()
    (path / "nowhere").symlink_to("gone")
    (path / "loop").symlink_to("loop")
    (tmp_path / "loop-0").symlink_to("loop-0")
    assert [offsets(log) for log in kseg.open_dir(tmp_path)] == [numbers(0, 5)]


def test_sidecars_of_absurd_size_cost_no_memory(tmp_path):
    path = LogBuilder(tmp_path).segment(0).batch(5).segment(5).batch(5).write()
    for kind in (FileKind.TIME_INDEX, FileKind.OFFSET_INDEX):
        with (path / segment_file_name(0, kind)).open("wb") as file:
            file.truncate(6 << 30)
    with (tmp_path / "replication-offset-checkpoint").open("wb") as file:
        file.truncate(6 << 30)
    log = kseg.open_log(path)
    assert offsets(log) == numbers(0, 10)
    assert log.offset_for_time(0) is not None
    assert log.checkpoints.problems


def test_snapshots_and_leader_epochs_of_absurd_size_were_read_whole(tmp_path):
    path = LogBuilder(tmp_path).segment(0).batch(5, producer_id=3).segment(5).batch(5, leader_epoch=7).write()
    sound = kseg.open_log(path)
    expected = sound.producers(), sound.leader_epochs(), sound.last_stable_offset
    for name in (segment_file_name(5, FileKind.SNAPSHOT), "leader-epoch-checkpoint"):
        with (path / name).open("wb") as file:
            file.truncate(1 << 30)
    with bounded_growth(600 * MIB):
        log = kseg.open_log(path)
        assert (log.producers(), log.leader_epochs(), log.last_stable_offset) == expected
        assert "KS401" in {finding.code for finding in kseg.verify(path, workers=1).findings}


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint", "../meta.properties",
                                  "../replication-offset-checkpoint", "../.kafka_cleanshutdown"])  # fmt: skip
def test_a_pipe_with_the_name_of_a_sidecar_blocked_whoever_opened_the_log(tmp_path, name):
    path = LogBuilder(tmp_path).segment(0).batch(5).write()
    os.mkfifo(path / name)
    data = kseg.open_dir(tmp_path)
    assert (data.cluster_id, len(data)) == (None, 1)
    log = data.partitions[0]
    assert (log.topic_id, log.leader_epochs(), log.high_watermark) == (None, kseg.open_log(path).leader_epochs(), 5)
    assert offsets(log) == numbers(0, 5)
    with pytest.raises(kseg.StorageError, match="not a regular file"):
        LocalStore().open(str(path / name))


@pytest.mark.parametrize("wrong", [{"max_batch_bytes": -1}, {"max_batch_bytes": "x"}, {"max_batch_bytes": 1.5}])
def test_wrong_limits_are_option_errors(tmp_path, wrong):
    path = LogBuilder(tmp_path).segment(0).batch(5).write()
    with pytest.raises(kseg.OptionError):
        kseg.open_log(path, **wrong)
    with pytest.raises(kseg.OptionError):
        kseg.open_log(path).read(batch_bytes="x")
    assert offsets(kseg.open_log(path), start=np.int64(3)) == [3, 4]


def test_sequences_count_on_over_a_hole_between_batches(tmp_path):
    with kseg.create_log(tmp_path / "t-0") as writer:
        rows = pa.table({"value": [b"a", b"b", b"c"], "offset": [0, 1, 100]})
        writer.append(rows, producer_id=5, base_sequence=0, batch_records=1)
    assert [header.base_sequence for header in kseg.open_log(tmp_path / "t-0").batches()] == [0, 1, 2]


def test_seconds_that_do_not_fit_milliseconds_are_refused(tmp_path):
    stamps = pa.array([2**62], pa.timestamp("s"))
    with kseg.create_log(tmp_path / "t-0") as writer, pytest.raises(kseg.OptionError, match="does not fit"):
        writer.append(pa.table({"value": [b"a"], "timestamp": stamps}))


def test_a_snapshot_beyond_the_log_end_is_not_believed(golden, tmp_path):
    path = shutil.copytree(golden / "before" / "tx-0", tmp_path / "tx-0")
    file = path / segment_file_name(31, FileKind.LOG)
    os.truncate(file, file.stat().st_size - 78)  # the ABORT marker at 433, which 434.snapshot still knows of
    log = kseg.open_log(path)
    assert log.end_offset == 433
    assert [txn.first_offset for txn in log.open_transactions()] == [402]
    assert log.last_stable_offset == 402


def test_a_partition_is_not_written_through_a_symbolic_link(tmp_path):
    with kseg.create_log(tmp_path / "real" / "t-0") as writer:
        writer.append(pa.table({"value": [b"a"]}))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "t-0").symlink_to(tmp_path / "real" / "t-0")
    with pytest.raises(kseg.OptionError, match="symbolic link"):
        kseg.append_to(tmp_path / "other" / "t-0")
    assert values(kseg.open_log(tmp_path / "other" / "t-0")) == [b"a"]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_sequences_of_a_few_records_of_a_large_batch_are_theirs(tmp_path, codec):
    with kseg.create_log(tmp_path / "t-0") as writer:
        writer.append(pa.table({"value": [b"v"] * 1000}), producer_id=5, base_sequence=7, codec=codec)
    for columns in (["offset", "sequence"], ["sequence", "offset", "value"], ["sequence"]):
        batches = kseg.open_log(tmp_path / "t-0").read(500, 505, columns=columns)
        found = [number for batch in batches for number in batch.column("sequence").to_pylist()]
        assert found == [507, 508, 509, 510, 511]


def test_a_segment_beyond_2_gib_of_zeros_was_searched_for_its_end(tmp_path):
    """A broker refuses it when it starts (FileRecords.open); a sparse file can have any size."""
    directory = LogBuilder(tmp_path / "data").segment().batch(3).write()
    path = directory / f"{0:020d}.log"
    size = path.stat().st_size
    os.truncate(path, 1 << 42)
    uses = lambda log: log.end_offset, values, lambda log: list(log.batches()), lambda log: log.offset_for_time(0)
    for use in uses:
        with pytest.raises(kseg.KsegError, match="a segment of 4398046511104 bytes is above 2147483647") as raised:
            use(kseg.open_log(directory))
        assert raised.value.path == str(path)
    with pytest.raises(kseg.KsegError, match="above 2147483647"):
        kseg.append_to(directory)
    assert path.stat().st_size == 1 << 42
    os.truncate(path, size)
    assert kseg.open_log(directory).end_offset == 3


def test_a_file_with_21_digits_took_the_place_of_the_segment(tmp_path):
    """Appending then wrote into the middle of the one with 20 digits, where the other one ended."""
    directory = LogBuilder(tmp_path / "data").segment().batch(5).batch(5).write()
    other = LogBuilder(tmp_path / "other").segment().batch(1).write()
    shutil.copy(other / f"{0:020d}.log", directory / f"{0:021d}.log")
    before = (directory / f"{0:020d}.log").read_bytes()
    assert kseg.open_log(directory).end_offset == 10
    with kseg.append_to(directory) as writer:
        assert writer.append(pa.table({"value": [b"new"]})).start == 10
    assert (directory / f"{0:020d}.log").read_bytes().startswith(before)
