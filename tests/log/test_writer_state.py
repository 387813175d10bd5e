"""What a writer does to a directory: lock and marker, torn tails, producers, epochs, batches as they are."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest

import kseg
from kseg import durable
from kseg.errors import FormatError, LockedError, LogError, OptionError, StorageError
from kseg.format.builder import BatchOptions, EncodedBatches, encode_batches
from kseg.index.producer import parse_snapshot
from kseg.log import writer_input
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, write_checkpoint
from kseg.storage import LocalStore
from kseg.types import OffsetRange, TopicPartition
from tests.builders import LogBuilder
from tests.index.twins import table_of
from tests.log.test_lock import HOLD
from tests.log.written import START, bases, check_indexes, clock, names, numbered
from tests.reference.record import Record
from tests.reference.rows import records_of
from tests.reference.rows import table_of as table_of_records

# -- lock and marker ---------------------------------------------------------------------------------------------------


def test_a_log_with_the_latest_of_times_is_appended_to(oracle, tmp_path):
    """A broker without segment.ms keeps such batches in one segment, so a rebuild of its indexes must take them."""
    log = LogBuilder(tmp_path).segment()
    path = log.batch([Record(0, 0, b"a", b"1")]).batch([Record(1, 2**63 - 1, b"b", b"2")]).write()
    with kseg.append_to(path, config=kseg.LogConfig(segment_ms=2**63 - 1)) as writer:
        writer.append(table_of_records([Record(2, 5, None, b"3")]))
    log = kseg.open_log(path)
    assert [segment.base_offset for segment in log.segments] == [0]
    assert oracle.load(path, **{"segment.ms": 2**63 - 1})["logEnd"] == log.end_offset == 3


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


FORK = """
import os, sys
import pyarrow as pa
import kseg

rows = pa.table({"value": [b"x"]})
with kseg.create_log(sys.argv[1]) as writer:
    writer.append(rows)
    child = os.fork()
    if child == 0:
        mark = lambda: writer.append_marker(1, commit=True)
        for change in (lambda: writer.append(rows), writer.flush, writer.roll, mark):
            try:
                change()
            except kseg.LogError as error:
                assert "forked child" in str(error), error
            else:
                os._exit(1)
        writer.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not os.path.exists(sys.argv[2]), "the child put the marker back"
    writer.append(rows)
"""


def test_a_forked_child_cannot_write_and_leaves_the_log_to_its_parent(tmp_path):
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.write_bytes(b"clean")
    subprocess.run([sys.executable, "-c", FORK, str(tmp_path / "a-0"), str(marker)], check=True)
    assert marker.read_bytes() == b"clean"
    assert sum(batch.num_rows for batch in kseg.open_log(tmp_path / "a-0").read()) == 2


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
    with pytest.raises(LogError, match="interrupted here"):
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
    assert {
        name: (tmp_path / "crash" / "a-0" / name).read_bytes() for name in names(tmp_path / "crash" / "a-0")
    } == files


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


def test_a_producers_epoch_does_not_fall(tmp_path):
    """A fenced producer's rows and markers were written, which `verify` then warned of."""
    with kseg.create_log(tmp_path / "a-0", clock=clock) as writer:
        writer.append(numbered(1), producer_id=3, producer_epoch=2, transactional=True)
        with pytest.raises(LogError, match="producer_epoch 1 of producer 3 is below its last one, 2"):
            writer.append(numbered(1), producer_id=3, producer_epoch=1, transactional=True)
        with pytest.raises(LogError, match="producer_epoch 0 of producer 3"):
            writer.append_marker(3, commit=True)
        writer.append_marker(3, commit=True, producer_epoch=3)
    assert kseg.open_log(tmp_path / "a-0").last_stable_offset == 2


def test_sequences_run_through_the_pieces_of_an_append(tmp_path, monkeypatch):
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
        for wrong in ({"producer_id": -1}, {"producer_epoch": 1 << 15}, {"coordinator_epoch": -1}):
            with pytest.raises(OptionError, match=next(iter(wrong))):
                writer.append_marker(**{"producer_id": 8, "commit": True, **wrong})
    assert kseg.open_log(tmp_path / "a-0").end_offset == 15
