"""Erasing on disks that fail, fill up, lose power and forget: every other record stays, and the next run is a proof."""

from __future__ import annotations

import itertools
import os
import random
import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import erase
from kseg.log.checkpoints import CheckpointKind, write_checkpoint
from kseg.types import TopicPartition
from tests.faults.disk import FaultyDisk, each_fault, run_with
from tests.faults.forgetful import each_crash
from tests.faults.kill import killed
from tests.faults.loaded import MARKER, assert_same_state, load
from tests.log.written import START, clock
from tests.reference.rows import records_of
from tests.scale import counts

TP = TopicPartition("a", 0)
SECRET = b"person-4711"
SEGMENTS = 3
PAST_THE_MARK = {"read_past_high_watermark": True}
LOADED_OF = 3 if counts(1) == 1 else 1  # one state of so many is given to Kafka's loader


def rows(first, count):
    numbers = range(first, first + count)
    keys = [SECRET if n % 7 == 3 else b"k%d" % n for n in numbers]
    return pa.table({"key": keys, "value": [b"value %d " % n * 5 for n in numbers], "timestamp": [START] * count})


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A log directory that was shut down cleanly: the person is in every segment, in aborted transactions too."""
    folder = tmp_path_factory.mktemp("start")
    with kseg.create_log(folder / "a-0", config=kseg.LogConfig(index_interval_bytes=256), clock=clock) as writer:
        for number in range(SEGMENTS):
            if number:
                writer.roll()
            first = 20 * number
            writer.append(rows(first, 5), leader_epoch=number, producer_id=6, transactional=True)
            writer.append_marker(6, commit=number != 1, timestamp_ms=START)
            writer.append(rows(first + 6, 5), codec="lz4", producer_id=7 + number)
            writer.append(rows(first + 11, 9), batch_records=3)
        end = writer.next_offset
    for kind in (CheckpointKind.RECOVERY_POINT, CheckpointKind.HIGH_WATERMARK):
        write_checkpoint(str(folder), kind, {TP: end})
    (folder / MARKER).write_bytes(b"clean")
    return folder


def erased(folder):
    return erase(folder / "a-0", keys=[SECRET], workers=1)


def forget(folder, promise):
    report = erased(folder)
    if report.is_proof:
        promise(report.records)


class Truth:
    """What stays of a log before, during and after."""

    def __init__(self, folder, oracle, home):
        log = kseg.open_log(folder / "a-0")
        self.end, self.producers = log.end_offset, log.producers()
        self.records, self.committed = self._kept(log)
        assert len(self.committed) < len(self.records) < len(records_of(log.read()))
        self.loaded = load(folder, oracle, home / "before", now=START + 1000)[0]

    def _kept(self, log):
        levels = ("read_uncommitted", "read_committed")
        found = [records_of(log.read(isolation=level, **PAST_THE_MARK)) for level in levels]
        return [[record for record in records if record.key != SECRET] for records in found]

    def check(self, log):
        assert self._kept(log) == [self.records, self.committed]
        assert log.end_offset == self.end
        assert log.producers() == self.producers

    def check_loaded(self, folder, oracle):
        """What Kafka's loader makes of a copy, by the marker's word where it is there."""
        state, loaded = load(folder, oracle, folder / "loaded", now=START + 1000)
        assert_same_state(state, self.loaded)
        self.check(kseg.open_log(loaded))
        shutil.rmtree(folder / "loaded", ignore_errors=True)


@pytest.fixture(scope="module")
def truth(start, oracle, tmp_path_factory):
    return Truth(start, oracle, tmp_path_factory.mktemp("truth"))


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


def strays(folder):
    """Files of a log directory that no finished or failed run may leave."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if path.suffix in (".cleaned", ".swap", ".deleted", ".tmp") or ".kseg" in path.parts]


def check_second_run(folder, truth):
    """The next run is a proof, and leaves nothing behind."""
    report = erased(folder)
    assert report.is_proof, str(report)
    log = kseg.open_log(folder / "a-0")
    truth.check(log)
    assert len(records_of(log.read(**PAST_THE_MARK))) == len(truth.records)
    assert not [path for path in folder.rglob("*") if path.is_file() and SECRET in path.read_bytes()]
    assert strays(folder) == []
    assert not (folder / "a-0" / ".kseg").exists()


def check_promise(folder, end):
    if end.promised:
        assert not [path for path in (folder / "a-0").glob("*.log") if SECRET in path.read_bytes()]


def test_every_operation_can_fail(start, truth, oracle, tmp_path):
    numbers = itertools.count()

    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        check_promise(folder, end)
        if next(numbers) % LOADED_OF == 0:  # and a broker that starts on what the fault left
            truth.check_loaded(folder, oracle)
        if end.fault.startswith("full"):
            assert strays(folder) == []
        if (folder / MARKER).exists():  # with the marker a broker checks nothing
            assert strays(folder / "a-0") == []
        check_second_run(folder, truth)

    assert each_fault(start, forget, check, folder=tmp_path, every=7) > 300


def test_a_full_disk_leaves_the_partition_as_it_was(start, tmp_path):
    whole, before = FaultyDisk(), contents(start)
    run_with(whole, forget, shutil.copytree(start, tmp_path / "whole"))
    swap = next(number for number, (_, path) in enumerate(whole.seen) if path.endswith(".log.swap"))
    faults = [number for number, (name, _) in enumerate(whole.seen[:swap]) if name in ("create", "write_all")]
    assert len(faults) > 10
    for number in faults:
        folder, reports = shutil.copytree(start, tmp_path / str(number)), []
        run_with(FaultyDisk(number, "full"), lambda place, _, kept=reports: kept.append(erased(place)), folder)
        (report,) = reports
        assert "no space left" in report.places[0].error
        assert not report.is_proof
        assert contents(folder) == before


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder / "a-0").rglob("*") if path.is_file()}


def test_whatever_the_disk_forgets(start, truth, oracle, tmp_path):
    numbers = itertools.count()

    def check(folder, end):
        truth.check(kseg.open_log(folder / "a-0"))
        check_promise(folder, end)
        if next(numbers) % LOADED_OF == 0:
            truth.check_loaded(folder, oracle)
        check_second_run(folder, truth)

    assert each_crash(start, forget, check, folder=tmp_path, every=5, tries=counts(1)) > 60


def test_kills(start, truth, oracle, tmp_path):
    chance = random.Random("erase")
    whole = FaultyDisk()
    run_with(whole, forget, shutil.copytree(start, tmp_path / "whole"))
    for number in range(2 if counts(1) == 1 else 100):
        folder = shutil.copytree(start, tmp_path / str(number))
        assert killed(__name__, "forget", folder, chance.randrange(len(whole.seen)))
        truth.check(kseg.open_log(folder / "a-0"))
        truth.check_loaded(folder, oracle)
        check_second_run(folder, truth)
