"""Retention beside Kafka's own `UnifiedLog.deleteOldSegments`: random logs, settings, clocks and offsets."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

import kseg
from kseg.log.checkpoints import CheckpointKind, write_checkpoint
from kseg.types import TopicPartition
from tests.kafka.jars import Missing
from tests.kafka.oracle import Oracle
from tests.log.written import names
from tests.scale import counts

SOURCE = Path(__file__).parents[1] / "kafka" / "java" / "RetentionOracle.java"
START = 1_700_000_000_000
TP = TopicPartition("orders", 0)
LOGS = 10
CASES = 10  # of each log


@pytest.fixture(scope="module")
def retention(oracle):
    try:
        started = Oracle.start(SOURCE)
    except Missing as missing:
        pytest.skip(str(missing))
    with started:
        yield started


@pytest.fixture(scope="module")
def logs(oracle, tmp_path_factory):
    """Random logs, some with message sets that have no timestamps; mtimes lie among the records' times."""
    made = []
    for seed in range(counts(LOGS)):
        directory = tmp_path_factory.mktemp("logs") / str(TP)
        chance = random.Random(seed)
        oracle.gen(
            directory,
            seed,
            chance.randint(1, 60),
            roll=chance.choice([0.02, 0.2, 0.5]),
            legacy=chance.choice([0, 1, 1]),
            txn=0.2,
        )
        for path in directory.glob("*.log"):
            mtime = START / 1000 + chance.uniform(-20, 80)
            os.utime(path, (mtime, mtime))
        made.append(directory)
    return made


def random_case(chance, log):
    size = sum(segment.size for segment in log.segments)
    now = START + chance.randint(0, 120_000)
    ages = [now - segment.largest_timestamp for segment in log.segments]
    edge = max(-1, chance.choice(ages) - chance.randint(0, 1))
    return {
        "policy": chance.choice(["delete", "delete", "delete", "compact", "compact,delete", ""]),
        "retention_ms": chance.choice([-1, 0, edge, edge, chance.randint(0, 40_000)]),
        "retention_bytes": chance.choice([-1, -1, 0, chance.randint(0, size + 200), size - log.segments[0].size]),
        "now": now,
        "start": chance.choice([0, 0, chance.randint(0, log.end_offset), chance.choice(log.segments).base_offset]),
        "hw": chance.choice([log.end_offset, log.end_offset, chance.randint(0, log.end_offset)]),
    }


def run_both(case, log, folder, retention):
    """Copy a log twice; let Kafka retain one and kseg the other. Returns the two folders and Kafka's answer."""
    ours, kafkas = folder / "ours" / str(TP), folder / "kafkas" / str(TP)
    shutil.copytree(log.directory, ours)
    shutil.copytree(log.directory, kafkas)
    hw = max(case["hw"], case["start"])
    settings = {
        "cleanup.policy": case["policy"],
        "retention.ms": case["retention_ms"],
        "retention.bytes": case["retention_bytes"],
    }
    (theirs,) = retention.call("retain", kafkas, now=case["now"], hw=hw, logStart=case["start"], **settings)
    write_checkpoint(str(ours.parent), CheckpointKind.LOG_START, {TP: case["start"]})
    write_checkpoint(str(ours.parent), CheckpointKind.HIGH_WATERMARK, {TP: hw})
    report = kseg.retain(ours, settings=settings, now_ms=case["now"])
    return ours, kafkas, theirs, report


def test_as_kafkas_own(oracle, retention, logs, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # what is forced to the disk is another test's business
    rules = set()
    for number, directory in enumerate(logs):
        log = kseg.open_log(directory)
        for attempt in range(CASES):
            case = random_case(random.Random(1000 * number + attempt), log)
            folder = tmp_path / f"{number}-{attempt}"
            ours, kafkas, theirs, report = run_both(case, log, folder, retention)
            assert not report.refusals, case
            left = kseg.open_log(ours)
            assert [[segment.base_offset, segment.size] for segment in left.segments] == theirs["segments"], case
            assert (left.start_offset, left.end_offset) == (theirs["logStart"], theirs["logEnd"]), case
            assert report.segments == theirs["deleted"], case
            rules |= {segment.rule for done in report.partitions for segment in done.deleted}
            rules |= {"roll" for done in report.partitions if done.rolled_to is not None}
            # Reloaded by Kafka both are the same: producers, epochs, stable offset.
            clock = {"clean": True, "now": case["now"]}
            loaded = oracle.load(ours, logStart=left.checkpoints.get(CheckpointKind.LOG_START, TP) or 0, **clock)
            assert loaded == oracle.load(kafkas, logStart=theirs["logStart"], **clock), case
            assert names(ours, "*.log") == names(kafkas, "*.log")
            assert not names(ours, "*.deleted")
            shutil.rmtree(folder, ignore_errors=True)  # Kafka writes its epochs a little later
    assert rules == {"start", "size", "time", "roll"}


def test_after_a_crash_kafka_finds_the_producers_that_it_had_found_before(
    oracle, retention, logs, tmp_path, monkeypatch
):
    """A snapshot at the log start is none for a broker that starts: an open transaction of before would come back.

    Epochs are those that are left after Kafka's own retention: where a message without one has emptied their
    checkpoint, the batches that were deleted tell of none any more.
    """
    settings = {"cleanup.policy": "compact"}
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for number, directory in enumerate(logs):
        for base in [segment.base_offset for segment in kseg.open_log(directory).segments][1:4]:
            ours, kafkas = tmp_path / f"{number}-{base}" / str(TP), tmp_path / f"{number}-{base}-kafkas" / str(TP)
            shutil.copytree(directory, ours)
            shutil.copytree(directory, kafkas)
            write_checkpoint(str(ours.parent), CheckpointKind.LOG_START, {TP: base})
            retained = tmp_path / f"{number}-{base}-retained" / str(TP)
            shutil.copytree(directory, retained)
            assert kseg.retain(ours, settings=settings).segments
            listed = kseg.open_log(ours).checkpoints.get(CheckpointKind.LOG_START, TP) or 0
            end = kseg.open_log(directory).end_offset
            retention.call("retain", retained, now=START, hw=end, logStart=base, **settings)
            crash = {"clean": False, "now": START}
            mine, theirs = oracle.load(ours, logStart=listed, **crash), oracle.load(kafkas, logStart=base, **crash)
            for field in ("logStart", "logEnd", "lastStable", "producers"):
                assert mine[field] == theirs[field], (number, base, field)
            assert mine["epochs"] == oracle.load(retained, logStart=base, **crash)["epochs"], (number, base)
