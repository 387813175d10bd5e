"""The clean-shutdown marker: a failure costs it only where files of the partition were changed."""

from __future__ import annotations

import gc
import os
import shutil
import time
import warnings

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import CleanerConfig, compact, erase, repack
from kseg.errors import StorageError
from kseg.log import lock, writer_session
from kseg.log.writer_session import WriteSession
from kseg.types import TopicPartition
from tests.builders import LogBuilder

MARKER = ".kafka_cleanshutdown"
NAME = "00000000000000000000.log"
TPS = [TopicPartition("orders", number) for number in range(2)]


@pytest.fixture
def data(tmp_path):
    for tp in TPS:
        LogBuilder(tmp_path, tp.topic, tp.partition).record(b"a", b"1").write()
    (tmp_path / MARKER).write_bytes(b"clean")
    time.sleep(0.05)  # a file's times go by the ticks of the kernel's clock
    return tmp_path


def begun(data, *tps):
    sessions = [WriteSession(data, tp) for tp in tps]
    for session in sessions:
        session.begin_changes()
    assert not (data / MARKER).exists()
    return sessions


def test_a_failure_before_anything_was_written_lost_the_marker(data):
    (session,) = begun(data, TPS[0])
    assert session.was_clean
    session.end(failed=True)
    assert (data / MARKER).read_bytes() == b"clean"


def rewrite(path):
    """The same bytes in the same file."""
    path.write_bytes(path.read_bytes())


def replace(path):
    """The same bytes and times in another file."""
    other = path.with_name("other")
    shutil.copy2(path, other)
    other.replace(path)


CHANGES = {
    "rewritten": rewrite,
    "replaced": replace,
    "appended": lambda path: path.write_bytes(path.read_bytes() + b"torn"),
    "deleted": lambda path: path.unlink(),
    "made": lambda path: path.with_name("00000000000000000001.log").touch(),
    "renamed there and back": lambda path: path.rename(path.with_suffix(".x")).rename(path),
    "directory gone": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_failure_with_a_file_changed_costs_the_marker(data, change):
    (session,) = begun(data, TPS[0])
    CHANGES[change](data / "orders-0" / NAME)
    session.end(failed=True)
    assert not (data / MARKER).exists()


def test_a_failure_in_a_directory_that_is_not_known_costs_the_marker(data):
    (session,) = begun(data, TopicPartition("orders-0", 7))
    session.end(failed=True)
    assert not (data / MARKER).exists()


@pytest.mark.parametrize("failed", [[], [0], [1], [0, 1]], ids=str)
def test_the_marker_comes_back_where_those_that_failed_changed_nothing(data, failed):
    """The first changes a file, the second none."""
    sessions = begun(data, *TPS)
    rewrite(data / "orders-0" / NAME)
    for number, session in enumerate(sessions):
        session.end(failed=number in failed)
    assert (data / MARKER).exists() == (0 not in failed)


def test_what_was_changed_by_one_that_failed_stays_unclean_for_those_behind(data):
    first, second = begun(data, *TPS)
    rewrite(data / "orders-0" / NAME)
    first.end(failed=True)
    assert not second.was_clean
    second.end(failed=False)
    assert not (data / MARKER).exists()


def test_a_marker_that_cannot_be_put_back_does_not_hide_the_failure(data, monkeypatch):
    def full(*_):
        raise StorageError("no space left")

    (session,) = begun(data, TPS[0])
    monkeypatch.setattr("kseg.log.writer_session.restore_clean_shutdown", full)
    session.end(failed=True)
    (again,) = begun(data, TPS[0])  # the lock was given back
    with pytest.raises(StorageError):
        again.end(failed=False)


JOBS = {
    "compact": lambda data: compact(data, topics=["orders"], config=CleanerConfig(cleanup_policy="compact"), workers=1),
    "erase": lambda data: erase(data, keys=[b"k3"], workers=1),
    "repack": lambda data: repack(data, codec="zstd", segment_bytes=9000, workers=1),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("damaged", [0, 1])
def test_one_damaged_partition_lost_the_marker_of_the_whole_directory(tmp_path, job, damaged):
    for tp in TPS:
        with kseg.create_log(tmp_path / str(tp), config=kseg.LogConfig(segment_bytes=9000)) as writer:
            for number in range(0, 900, 50):
                keys = [b"k%d" % ((number + n) % 90) for n in range(50)]
                writer.append(pa.table({"key": keys, "value": [b"value" * 5] * 50}))
    (tmp_path / MARKER).write_bytes(b"clean")
    segment = sorted((tmp_path / f"orders-{damaged}").glob("*.log"))[-2]
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(data)
    before = {path.name: path.read_bytes() for path in segment.parent.iterdir()}
    report = JOBS[job](tmp_path)
    places = report.places if job == "erase" else report.partitions
    assert [place.error is not None for place in places] == [number == damaged for number in range(2)]
    assert {path.name: path.read_bytes() for path in segment.parent.iterdir()} == before
    assert (tmp_path / MARKER).read_bytes() == b"clean"


def files(data):
    return {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_a_writer_that_was_forgotten_kept_the_partition_locked(data):
    writer = kseg.append_to(data / "orders-0")
    writer.append(pa.table({"value": [b"2"]}))
    before = files(data)
    with pytest.warns(ResourceWarning, match="orders-0' was never closed: its log is as after a crash"):
        del writer
    assert files(data) == before
    assert MARKER not in {path.name for path in before}  # a broker that starts checks the log
    assert not lock._held
    with kseg.append_to(data / "orders-0") as again:
        assert again.next_offset == 2
    assert kseg.verify(data / "orders-0").is_sound


def test_a_forgotten_writer_takes_no_lock_from_another(data):
    with kseg.append_to(data / "orders-1") as other:
        writer = kseg.append_to(data / "orders-0")
        with pytest.warns(ResourceWarning):
            del writer
        with pytest.raises(kseg.LockedError):
            kseg.append_to(data / "orders-1")
        other.append(pa.table({"value": [b"2"]}))
        kseg.append_to(data / "orders-0").close()
    assert not (data / MARKER).exists()  # one of them was never finished


def test_a_writer_forgotten_amid_the_locking_of_another_waits_for_nothing(data):
    """Python may collect garbage anywhere, also in a thread that holds the guards of the locks itself."""
    for guard in (writer_session._guard, lock._guard):
        writer = kseg.append_to(data / "orders-0")
        with guard, pytest.warns(ResourceWarning):
            del writer
        kseg.append_to(data / "orders-0").close()


def test_a_writer_that_was_closed_is_forgotten_without_a_word(data):
    writer = kseg.append_to(data / "orders-0")
    writer.close()
    del writer
    gc.collect()


def test_a_forked_child_that_forgets_its_parents_writer_says_nothing_and_gives_nothing_back(data):
    writer = kseg.append_to(data / "orders-0")
    child = os.fork()
    if not child:
        warnings.simplefilter("error")
        del writer
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    writer.append(pa.table({"value": [b"2"]}))
    writer.close()
    assert kseg.open_log(data / "orders-0").end_offset == 2
