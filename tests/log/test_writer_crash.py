"""The power fails at every change that a writer makes: what is on disk then is read, and is written on."""

from __future__ import annotations

import os
import shutil

import pytest

import kseg
from tests.faults.disk import WRITES, FaultyDisk, run_with
from tests.log.written import clock, names, numbered
from tests.reference.rows import records_of

CONFIG = kseg.LogConfig(segment_bytes=4000, index_interval_bytes=500)
MARKER = ".kafka_cleanshutdown"


def prepare(folder):
    """A log directory with one partition, shut down cleanly: 30 records, an open transaction."""
    with kseg.create_log(folder / "a-0", config=CONFIG, clock=clock) as writer:
        writer.append(numbered(30), batch_records=5)
        writer.append(numbered(5), producer_id=6, transactional=True)
    (folder / MARKER).write_bytes(b"clean")


def write_on(folder, promise=None):
    """The changes under test: append, abort, roll by size and on demand, close."""
    with kseg.append_to(folder / "a-0", config=CONFIG, clock=clock) as writer:
        writer.append_marker(6, commit=False)
        writer.append(numbered(200), batch_records=5, leader_epoch=3)
        writer.append(numbered(10), codec="lz4", producer_id=7)
        writer.roll()
        writer.append(numbered(10))


def all_records(folder):
    return records_of(kseg.open_log(folder / "a-0").read())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """What the directory holds if nothing fails, and the changes that took."""
    folder = tmp_path_factory.mktemp("finished")
    prepare(folder)
    whole = FaultyDisk()
    assert run_with(whole, write_on, folder).error is None
    changes = [(number, name) for number, (name, _) in enumerate(whole.seen) if name != "close"]
    return folder, all_records(folder), changes


def cut_power(folder, change):
    """The power goes before a change, or for a write in the middle of it."""
    number, name = change
    end = run_with(FaultyDisk(number, "half" if name in WRITES else "cut"), write_on, folder)
    assert end.power_was_cut, end


def test_every_change_can_be_the_last(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # it is counted as a change; the disk's work is not under test
    whole, records, changes = finished
    prepare(tmp_path / "start")
    before = len(all_records(tmp_path / "start"))
    assert len(changes) > 60
    untouched_or_done = [(before, names(tmp_path / "start" / "a-0")), (len(records), names(whole / "a-0"))]
    for change in changes:
        folder = shutil.copytree(tmp_path / "start", tmp_path / f"cut-{change[0]}")
        cut_power(folder, change)
        left = all_records(folder)
        assert left == records[: len(left)]
        assert len(left) >= before
        if (folder / MARKER).exists():  # a broker would check nothing: so nothing was changed yet, or everything was
            assert (len(left), names(folder / "a-0")) in untouched_or_done
        with kseg.append_to(folder / "a-0", config=CONFIG, clock=clock) as writer:
            end = writer.next_offset
            writer.append(numbered(3))
        log = kseg.open_log(folder / "a-0")
        assert all_records(folder)[: len(left)] == left
        assert log.end_offset == end + 3
        assert [txn.first_offset for txn in log.aborted_transactions(0, 36)] == ([30] if end > 35 else [])
        shutil.rmtree(folder)


def test_kafka_recovers_what_each_power_cut_left(oracle, finished, tmp_path):
    _, _, changes = finished
    prepare(tmp_path / "start")
    settings = {"internal.segment.bytes": CONFIG.segment_bytes, "index.interval.bytes": CONFIG.index_interval_bytes}
    for change in changes[1::5]:
        ours, kafkas = tmp_path / f"ours-{change[0]}", tmp_path / f"kafkas-{change[0]}"
        shutil.copytree(tmp_path / "start", ours)
        cut_power(ours, change)
        shutil.copytree(ours, kafkas)
        state = oracle.load(kafkas / "a-0", clean=(kafkas / MARKER).exists(), **settings)
        with kseg.append_to(ours / "a-0", config=CONFIG, clock=clock) as writer:
            assert writer.next_offset == state["logEnd"]
        log = kseg.open_log(ours / "a-0")
        assert [[segment.base_offset, segment.size] for segment in log.segments] == state["segments"]
        assert [list(entry) for entry in log.leader_epochs()] == state["epochs"]
        assert log.last_stable_offset == state["lastStable"]
