"""An export to an object store: the same protocol, a move being a copy."""

from __future__ import annotations

import itertools

import fsspec
import pyarrow.parquet as pq
import pytest

import kseg
from kseg.errors import ConflictError
from kseg.exporting import job, publish
from kseg.exporting.target import ArrowTarget
from tests.exporting.lake import append, make_log

_numbers = itertools.count()


@pytest.fixture
def target():
    """A prefix in memory, reached through fsspec as other stores are."""
    name = f"/lake-{next(_numbers)}"
    yield f"memory:/{name}"
    store = fsspec.filesystem("memory")
    if store.exists(name):
        store.rm(name, recursive=True)


def names(target):
    root = target.removeprefix("memory:/")
    found = fsspec.filesystem("memory").find(root)
    return sorted(path.removeprefix(f"{root}/") for path in found)


def exported(target):
    store = fsspec.filesystem("memory")
    found = []
    for name in names(target):
        if not name.startswith("_"):
            with store.open(f"{target.removeprefix('memory:/')}/{name}") as file:
                found += pq.ParquetFile(file).read(columns=["offset"]).column("offset").to_pylist()
    return sorted(found)


def test_runs_add_what_is_new(tmp_path, target):
    logs = make_log(tmp_path / "logs")
    assert kseg.export(None, logs, target, dry_run=True).rows == 0
    assert kseg.export(None, logs, target).rows == 30
    append(logs, count=5)
    assert kseg.export(None, logs, target).rows == 5
    assert exported(target) == list(range(35))
    assert [name for name in names(target) if name.startswith("_kseg/runs")] == [
        "_kseg/runs/00000001.json",
        "_kseg/runs/00000002.json",
    ]
    assert not [name for name in names(target) if "staging" in name]


def test_a_run_that_was_committed_is_completed(tmp_path, target, monkeypatch):
    logs = make_log(tmp_path / "logs")

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArrowTarget, "move", cut)
        with pytest.raises(KeyboardInterrupt):
            kseg.export(None, logs, target)
    assert exported(target) == []
    report = kseg.export(None, logs, target)
    assert (report.run, report.completed) == (None, 1)
    assert exported(target) == list(range(30))


def test_a_run_that_was_not_committed_leaves_nothing(tmp_path, target, monkeypatch):
    logs = make_log(tmp_path / "logs")

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(job, "check_staged", cut)
        with pytest.raises(KeyboardInterrupt):
            kseg.export(None, logs, target)
    assert names(target) == []
    assert kseg.export(None, logs, target).rows == 30


def test_another_export_that_was_quicker_is_found_out(tmp_path, target, monkeypatch):
    logs = make_log(tmp_path / "logs")
    real = publish.check_staged

    def another_meanwhile(*args):
        with monkeypatch.context() as patch:
            patch.setattr(job, "check_staged", real)
            patch.setattr(job, "remove_leftovers", lambda _: None)
            kseg.export(None, logs, target)
        real(*args)

    monkeypatch.setattr(job, "check_staged", another_meanwhile)
    with pytest.raises(ConflictError, match="another export has written this meanwhile"):
        kseg.export(None, logs, target)
    assert exported(target) == list(range(30))
    assert not [name for name in names(target) if "staging" in name]


def test_other_objects_are_left_alone(tmp_path, target):
    fsspec.filesystem("memory").pipe(f"{target.removeprefix('memory:/')}/precious", b"mine")
    with pytest.raises(kseg.OptionError, match="holds other files, such as 'precious'"):
        kseg.export(None, make_log(tmp_path / "logs"), target)
