"""The power fails at every change that an export makes: nothing is visible then, or the next run completes it."""

from __future__ import annotations

import functools
import os
import shutil

import pytest

import kseg
from kseg import durable
from kseg.errors import StorageError
from tests.exporting.lake import DAY, append, data_files, make_log, manifests, offsets

CHANGES = (
    "create", "open_append", "write_all", "fsync_file", "fsync_dir", "rename", "unlink", "make_dir", "remove_dir",
)  # fmt: skip
FIRST = [("a", 0, i) for i in range(30)]
ALL = [("a", 0, i) for i in range(45)]


class PowerCutError(BaseException):
    """No handler for errors sees this one."""


class Power:
    """Counts the changes, and cuts the power before, or for a write in the middle of, the one it is told."""

    def __init__(self, monkeypatch, cut_at=None, error=PowerCutError):
        self.changes = 0
        self.cut_at = cut_at
        self.error = error
        for name in CHANGES:
            monkeypatch.setattr(durable, name, functools.partial(self.change, name, getattr(durable, name)))

    def change(self, name, function, *args, **kwargs):
        self.changes += 1
        if self.cut_at is None or self.changes < self.cut_at:
            return function(*args, **kwargs)
        if self.error is StorageError and self.changes > self.cut_at:  # a disk that is full for a moment
            return function(*args, **kwargs)
        if name == "write_all" and self.changes == self.cut_at:
            fd, data, *_ = args
            function(fd, data[: len(data) // 2])
        raise self.error("no space left on the device")


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A target after one run, and more records since, of another day too; how many changes the second run takes."""
    folder = tmp_path_factory.mktemp("start")
    make_log(folder / "logs")
    kseg.export(None, folder / "logs", folder / "lake", by="day")
    append(folder / "logs", count=10, first=30)
    append(folder / "logs", count=5, start=1_767_225_600_000 + DAY)
    shutil.copytree(folder, folder.with_name("counted"))
    with pytest.MonkeyPatch.context() as patch:
        power = Power(patch)
        report = kseg.export(None, folder.with_name("counted") / "logs", folder.with_name("counted") / "lake")
    assert report.files == 2
    assert power.changes > 25
    return folder, power.changes


@pytest.mark.parametrize("error", [PowerCutError, StorageError])
def test_every_change_can_be_the_last(start, tmp_path, monkeypatch, error):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # it is counted as a change; the disk's work is not under test
    folder, changes = start
    states = set()
    for cut_at in range(1, changes + 1):
        place = tmp_path / f"cut-{cut_at}"
        shutil.copytree(folder / "lake", place)
        with monkeypatch.context() as patch, pytest.raises(error):
            Power(patch, cut_at, error)
            kseg.export(None, folder / "logs", place)
        committed = len(manifests_of(place)) == 2
        visible = offsets(place)
        states.add((committed, len(visible)))
        if not committed:
            assert visible == FIRST
            assert len(data_files(place)) == 1
        report = kseg.export(None, folder / "logs", place)
        assert (report.run, report.rows) == ((None, 0) if committed else (2, 15))
        assert offsets(place) == ALL
        assert len(data_files(place)) == 3
        assert sorted(file["path"] for m in manifests(place) for file in m["files"]) == data_files(place)
        assert list((place / "_kseg" / "staging").iterdir()) == []
        shutil.rmtree(place)
    # not committed; committed and nothing moved; some of it moved; all of it
    assert {(False, 30), (True, 30), (True, 45)} <= states
    assert any(committed and 30 < count < 45 for committed, count in states)


def manifests_of(place):
    return sorted((place / "_kseg" / "runs").glob("*.json"))


def test_what_was_committed_and_is_neither_here_nor_there_is_told(start, tmp_path, monkeypatch):
    folder, changes = start
    place = tmp_path / "lake"
    shutil.copytree(folder / "lake", place)
    for cut_at in range(changes, 0, -1):  # the last moment at which files wait
        shutil.rmtree(place)
        shutil.copytree(folder / "lake", place)
        with monkeypatch.context() as patch, pytest.raises(PowerCutError):
            Power(patch, cut_at)
            kseg.export(None, folder / "logs", place)
        waiting = list((place / "_kseg" / "staging").rglob("*.parquet"))
        if waiting:
            break
    assert len(manifests_of(place)) == 2
    waiting[0].unlink()
    with pytest.raises(kseg.LogError, match="run 2 was committed with this file, which is gone"):
        kseg.export(None, folder / "logs", place)
