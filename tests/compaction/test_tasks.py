"""Tasks that run twice, or on another disk, or whose files were changed: the log is whole, or it is left alone."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kseg import durable
from kseg.compaction import CleanerConfig, compact, spark
from kseg.compaction.spill import MIN_ROOM, superseded_offsets
from kseg.compaction.tasks import Place, ResolveTask, resolve
from kseg.errors import JobError, KsegError, StorageError
from kseg.log.staging import NONCE, check_nonce, write_nonce
from tests.builders import LogBuilder
from tests.compaction.test_spill import random_entries

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, strategy="memory")
NOW = 1_800_000_000_000


def build(root: Path) -> Path:
    builder = LogBuilder(root)
    for _ in range(3):
        builder.segment()
        for number in range(20):
            builder.record(b"k%d" % (number % 7), b"v%d" % number, codec="lz4")
    return builder.segment().record(b"z", b"z").write()


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


class Cluster:
    """Stands for Spark: tasks go through pickles, and something is done to each of them."""

    def __init__(self, monkeypatch, around) -> None:
        self.runs = 0
        self._around = around
        monkeypatch.setattr(spark, "run_tasks", self._run_tasks)

    def _run_tasks(self, work, tasks, **_):
        results = []
        for task in tasks:
            self.runs += 1
            results.append(self._around(lambda t=task: work(pickle.loads(pickle.dumps(t))), task))
        return results


@pytest.fixture
def expected(tmp_path):
    log = build(tmp_path / "expected")
    compact(log, config=CONFIG, now_ms=NOW)
    return content(log)


def test_tasks_that_run_twice_do_no_harm(tmp_path, monkeypatch, expected):
    log = build(tmp_path / "data")

    def twice(run, _):
        lost = run()  # an attempt whose result nobody takes
        kept = run()
        files = [{file.path for file in vars_of(result) if hasattr(file, "path")} for result in (lost, kept)]
        assert not files[0] & files[1]
        return kept

    cluster = Cluster(monkeypatch, twice)
    report = compact(log, config=CONFIG, now_ms=NOW, spark=object())
    assert not report.failed
    assert cluster.runs >= 2
    assert content(log) == expected


def vars_of(result):
    return [getattr(result, name) for name in result.__slots__]


def test_executors_that_do_not_see_the_directory_are_refused(tmp_path, monkeypatch):
    log = build(tmp_path / "data")
    before = content(log)

    def elsewhere(run, task):
        path = task.place.folder / NONCE
        path.write_bytes(b"that of another disk")
        return run()

    Cluster(monkeypatch, elsewhere)
    report = compact(log, config=CONFIG, now_ms=NOW, spark=object())
    assert "does not see the directory" in report.partitions[0].error
    assert content(log) == before
    assert not (log / ".kseg").exists()


@pytest.mark.parametrize("kind", ["keys", "data", "table"])
def test_files_that_are_not_what_a_task_wrote_are_refused(tmp_path, monkeypatch, kind):
    log = build(tmp_path / "data")
    before = content(log)

    def spoiled(run, task):
        result = run()
        for path in task.place.folder.glob(f"{kind}-*"):
            path.write_bytes(path.read_bytes()[:-1] + b"\x99")
        return result

    Cluster(monkeypatch, spoiled)
    report = compact(log, config=CONFIG, now_ms=NOW, spark=object())
    assert "not what the task wrote" in report.partitions[0].error
    assert content(log) == before
    assert not (log / ".kseg").exists()


class Shuffle:
    """Stands for a session whose shuffle brings all rows to one task."""

    def __init__(self, batches=(), spoil=lambda: None) -> None:
        self._batches = list(batches)
        self._spoil = spoil

    def range(self, start, end, step, parts):
        return Shuffle([pa.record_batch([[number]], names=["id"]) for number in range(start, end)], self._spoil)

    def mapInArrow(self, work, schema):
        return Shuffle(work(iter(self._batches)), self._spoil)

    def repartition(self, count, column):
        return self

    def collect(self):
        self._spoil()
        return [row for batch in self._batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-1] + b"\x99", lambda data: data[:-8], lambda data: data + b"0" * 8]
)
def test_superseded_offsets_were_not_compared_with_what_a_task_wrote(tmp_path, monkeypatch, expected, spoil):
    log = build(tmp_path / "data")
    before = content(log)

    def spoil_dropped():
        for path in log.rglob("dropped-*"):
            path.write_bytes(spoil(path.read_bytes()))

    Cluster(monkeypatch, lambda run, _: run())
    report = compact(log, config=CONFIG, now_ms=NOW, strategy="spill", spark=Shuffle(spoil=spoil_dropped))
    assert "not what the task wrote" in report.partitions[0].error
    assert content(log) == before
    report = compact(log, config=CONFIG, now_ms=NOW, strategy="spill", spark=Shuffle())
    assert not report.failed
    assert content(log) == expected


def test_a_task_that_had_no_space_for_keys_ended_the_whole_job(tmp_path, monkeypatch):
    log = build(tmp_path / "data")
    before = content(log)
    write = durable.write_all

    def write_all(fd, data, path=""):
        if "dropped-" in str(path):
            raise StorageError("no space left on the device", path=str(path))
        write(fd, data, path)

    Cluster(monkeypatch, lambda run, _: run())
    monkeypatch.setattr(durable, "write_all", write_all)
    report = compact(log, config=CONFIG, now_ms=NOW, strategy="spill", spark=Shuffle())
    assert "no space left" in report.partitions[0].error
    assert content(log) == before


@pytest.mark.parametrize("file", ["00040.log.cleaned", "00040.timeindex.cleaned", "data-", "table-"])
def test_a_disk_that_tasks_filled_left_some_groups_replaced(tmp_path, monkeypatch, expected, file):
    """Tasks need room for files of their own, beside the new segments."""
    log = build(tmp_path / "data")
    before = content(log)
    config = dataclasses.replace(CONFIG, segment_bytes=max(path.stat().st_size for path in log.iterdir()))
    cleaned = set()
    create = durable.create

    def full_create(path, **kwargs):
        cleaned.update(item.name for item in log.glob("*.log.cleaned"))
        if file in str(path) and (len(cleaned) == 2 or "cleaned" in file):
            raise StorageError("no space left on the device", path=str(path))
        return create(path, **kwargs)

    Cluster(monkeypatch, lambda run, _: outcome(run))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "create", full_create)
        patch.setattr(durable, "free_bytes", lambda _: 0)
        report = compact(log, config=config, now_ms=NOW, spark=object())
    assert "no space left" in report.partitions[0].error
    assert content(log) == before
    assert not (log / ".kseg").exists()
    assert not compact(log, config=CONFIG, now_ms=NOW, spark=object()).failed
    assert content(log) == expected


def outcome(run):
    """As on Spark: an error of a task is its result."""
    try:
        return run()
    except KsegError as error:
        return error


@pytest.mark.parametrize("keys", [1, 100_000])
def test_memory_of_a_task_grew_with_the_records_of_a_key(tmp_path, keys):
    """All of a task's keys were compared at once, whatever `memory_budget` said: 115 bytes a record."""
    budget, records = 16 << 20, 1_000_000
    command = [sys.executable, "-m", "tests.compaction.measured_keys", str(tmp_path), str(budget)]
    done = subprocess.run([*command, str(records), str(keys)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["keys"], told["dropped"]) == (keys, records - keys)
    assert told["grown"] < budget + (16 << 20)


@pytest.mark.parametrize("keys", [1, 50, 60_000, 90_000])
def test_a_task_finds_the_offsets_that_are_found_in_process(tmp_path, keys):
    entries = random_entries(90_000, keys)
    expected, dirty = superseded_offsets(entries, 20_000)
    task = ResolveTask(Place(tmp_path, write_nonce(tmp_path)), first_dirty=20_000, divisor=3, room=MIN_ROOM)
    resolved = resolve(task, np.array_split(entries, 9))
    parts = [part.view(np.int64) for part in resolved.dropped.load()]
    assert resolved.keys == dirty
    assert (np.sort(np.concatenate(parts)) == expected).all()
    assert all((np.diff(part) > 0).all() for part in parts)
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["dropped", NONCE]


def test_a_nonce_proves_a_folder(tmp_path):
    nonce = write_nonce(tmp_path)
    check_nonce(tmp_path, nonce)
    for folder, word in ((tmp_path, b"x" * 16), (tmp_path / "missing", nonce)):
        with pytest.raises(JobError, match="does not see"):
            check_nonce(folder, word)
