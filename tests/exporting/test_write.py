"""A task: bounded files and memory whatever the timestamps, attempts that do not disturb each other, executors that
see another disk."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

import kseg
from kseg.errors import OptionError, StorageError
from kseg.exporting import job, write
from kseg.exporting.target import LocalTarget
from kseg.exporting.write import export_task
from tests.exporting.lake import DAY, append, data_files, make_log, offsets, rows


def test_few_files_are_open_at_a_time(tmp_path, monkeypatch):
    """Each record of another day: with two files open, and little that may wait."""
    open_now, most = set(), 0
    real = write._OpenFile

    class Counted(real):
        def __init__(self, *args):
            nonlocal most
            super().__init__(*args)
            open_now.add(id(self))
            most = max(most, len(open_now))

        def close(self):
            super().close()
            open_now.discard(id(self))

    monkeypatch.setattr(write, "_OpenFile", Counted)
    monkeypatch.setattr(LocalTarget, "max_open_files", 2)
    monkeypatch.setattr(write, "WAITING_BYTES", 100)
    logs, target = make_log(tmp_path / "logs", count=40, step=DAY), tmp_path / "lake"
    append(logs, count=40, step=DAY)  # the same days again, whose files are closed by then
    report = kseg.export(None, logs, target)
    assert most == 2
    assert not open_now
    assert offsets(target) == [("a", 0, i) for i in range(80)]
    assert {row["day"] for row in rows(target)} == {row["day"] for row in rows(target) if row["offset"] < 40}
    assert report.files > 40


def test_timestamps_at_random_are_refused_before_they_fill_a_disk_with_files(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "MAX_DIRECTORIES", 20)
    logs = make_log(tmp_path / "logs", count=30, step=3_600_000)
    with pytest.raises(OptionError, match="topic a are of more than 20 different times by hour"):
        kseg.export(None, logs, tmp_path / "lake", by="hour")
    assert data_files(tmp_path / "lake") == []
    assert kseg.export(None, logs, tmp_path / "lake", by="day").rows == 30


def test_a_task_that_runs_twice_leaves_its_records_once(tmp_path, monkeypatch):
    """Speculation and retries: two attempts succeed, the driver hears of one."""
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"

    def twice(work, tasks, **_):
        results = [(work(task), work(pickle.loads(pickle.dumps(task)))) for task in tasks]
        assert all(one.files[0].file.name != other.files[0].file.name for one, other in results)
        return [other for _, other in results]

    monkeypatch.setattr(job, "run_tasks", twice)
    report = kseg.export(None, logs, target)
    assert offsets(target) == [("a", 0, i) for i in range(30)]
    assert len(data_files(target)) == report.files == 1
    assert list((target / "_kseg" / "staging").iterdir()) == []


def test_an_attempt_that_comes_too_late_changes_nothing(tmp_path, monkeypatch):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"
    seen = []

    def kept(work, tasks, **_):
        seen.extend(tasks)
        return [work(task) for task in tasks]

    monkeypatch.setattr(job, "run_tasks", kept)
    kseg.export(None, logs, target)
    with pytest.raises(StorageError, match="an executor does not see"):
        export_task(seen[0])
    assert offsets(target) == [("a", 0, i) for i in range(30)]


def test_an_executor_with_a_disk_of_its_own_is_refused(tmp_path, monkeypatch):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"

    def elsewhere(work, tasks, **_):
        return [work(dataclasses.replace(task, target=str(tmp_path / "other"))) for task in tasks]

    monkeypatch.setattr(job, "run_tasks", elsewhere)
    with pytest.raises(StorageError, match="an executor does not see what the driver has written there"):
        kseg.export(None, logs, target)
    assert data_files(target) == []


def test_a_file_that_is_not_as_it_was_written_is_not_published(tmp_path, monkeypatch):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"

    def torn(work, tasks, **_):
        results = [work(task) for task in tasks]
        path = target / tasks[0].staging / results[0].files[0].file.name
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        return results

    monkeypatch.setattr(job, "run_tasks", torn)
    with pytest.raises(StorageError, match="the file is not as a task has written it"):
        kseg.export(None, logs, target)
    assert data_files(target) == []
    monkeypatch.undo()
    assert kseg.export(None, logs, target).rows == 30


def test_two_exports_to_one_target_at_once_are_refused(tmp_path, monkeypatch):
    logs, target = make_log(tmp_path / "logs"), tmp_path / "lake"

    def another_meanwhile(work, tasks, **_):
        with pytest.raises(kseg.LockedError, match="another export writes there"):
            kseg.export(None, logs, target)
        return [work(task) for task in tasks]

    monkeypatch.setattr(job, "run_tasks", another_meanwhile)
    assert kseg.export(None, logs, target).rows == 30
