"""Tasks of an erasure that run twice, or on another disk, or whose files were changed: as in `test_tasks.py`."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path

import pytest

import kseg
from kseg.compaction import erase, erase_work, eraser
from kseg.compaction.eraser import EraseTask
from kseg.compaction.output import CleanedSegment
from kseg.log.staging import NONCE
from tests.builders import LogBuilder

SECRET = b"person-4711"


def build(root: Path) -> Path:
    builder = LogBuilder(root, "people")
    for _ in range(3):
        builder.segment().record(b"a", b"1").record(SECRET, b"secret").record(b"b", b"2", codec="lz4")
    return builder.write()


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def log(tmp_path) -> Path:
    return build(tmp_path / "data")


@pytest.fixture
def expected(tmp_path) -> dict[str, bytes]:
    erased = build(tmp_path / "expected")
    assert erase(erased, keys=[SECRET]).is_proof
    return content(erased)


class Cluster:
    """Stands for Spark: tasks go through pickles, and something is done to those that write."""

    def __init__(self, monkeypatch, around) -> None:
        self._around = around
        monkeypatch.setattr(erase_work, "run_tasks", self._run_tasks)

    def _run_tasks(self, work, tasks, **_):
        return [self._run(work, task) for task in tasks]

    def _run(self, work, task):
        def run():
            return work(pickle.loads(pickle.dumps(task)))

        return self._around(run, task) if isinstance(task, EraseTask) else run()


class KilledError(BaseException):
    """An executor was lost: nothing is cleaned up."""


def test_an_attempt_that_began_again_and_died_left_an_empty_segment_and_that_was_told_as_proof(
    log, expected, monkeypatch
):
    digest_of = eraser.digest_of
    attempts = []

    def dies(*_):
        raise KilledError

    def around(run, _):
        def begin_again(segment):  # the first attempt has written its files, and has not told of them
            monkeypatch.setattr(eraser, "digest_of", digest_of)
            with monkeypatch.context() as patch, suppress(KilledError):
                patch.setattr(CleanedSegment, "append", dies)
                patch.setattr(CleanedSegment, "abandon", lambda _: None)
                attempts.append(segment.base_offset)
                run()
            return digest_of(segment)

        monkeypatch.setattr(eraser, "digest_of", begin_again)
        return run()

    Cluster(monkeypatch, around)
    report = erase(log, keys=[SECRET], spark=object())
    assert attempts == [0, 3, 6]
    assert (report.records, report.is_proof) == (3, True)
    assert content(log) == expected
    keys = [row["key"] for batch in kseg.open_log(log).read(columns=["key"]) for row in batch.to_pylist()]
    assert keys == [b"a", b"b"] * 3


@pytest.mark.parametrize("taken", [0, 1])
def test_attempts_of_one_task_share_no_file(log, expected, monkeypatch, taken):
    def twice(run, _):
        results = [run(), run()]
        assert results[0].log != results[1].log
        assert results[0].erasure == results[1].erasure
        return results[taken]

    Cluster(monkeypatch, twice)
    report = erase(log, keys=[SECRET], spark=object())
    assert report.is_proof
    assert content(log) == expected


def test_executors_that_do_not_see_the_directory_are_refused(log, monkeypatch):
    before = content(log)

    def elsewhere(run, task):
        (task.place.folder / NONCE).write_bytes(b"that of another disk")
        return run()

    Cluster(monkeypatch, elsewhere)
    report = erase(log, keys=[SECRET], spark=object())
    assert "does not see the directory" in report.places[0].error
    assert not report.is_proof
    assert content(log) == before


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b"\x99" + data[1:]])
@pytest.mark.parametrize("kind", ["log", "timeindex"])
def test_a_file_that_is_not_what_a_task_wrote_was_put_in_the_place_of_a_segment(log, monkeypatch, kind, spoil):
    before = content(log)

    def spoiled(run, task):
        result = run()
        if task.segment.base_offset == 6:  # others are good, and are not put in their place either
            (path,) = task.place.folder.rglob(f"00000000000000000006.{kind}.cleaned")
            path.write_bytes(spoil(path.read_bytes()))
        return result

    Cluster(monkeypatch, spoiled)
    report = erase(log, keys=[SECRET], spark=object())
    assert "not what the task wrote" in report.places[0].error
    assert not report.is_proof
    assert content(log) == before
    assert not (log / ".kseg").exists()
