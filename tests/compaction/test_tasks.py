"""Tasks that run twice, or on another disk, or whose files were changed: the log is whole, or it is left alone."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kseg.compaction import CleanerConfig, compact, spark
from kseg.errors import JobError
from kseg.log.staging import NONCE, check_nonce, write_nonce
from tests.builders import LogBuilder

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


def test_a_nonce_proves_a_folder(tmp_path):
    nonce = write_nonce(tmp_path)
    check_nonce(tmp_path, nonce)
    for folder, word in ((tmp_path, b"x" * 16), (tmp_path / "missing", nonce)):
        with pytest.raises(JobError, match="does not see"):
            check_nonce(folder, word)
