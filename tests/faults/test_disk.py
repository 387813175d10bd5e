"""The failing disks themselves: careless jobs are caught, careful ones are not."""

from __future__ import annotations

import errno

import pytest

from kseg import durable
from kseg.errors import StorageError
from tests.faults.disk import each_fault
from tests.faults.forgetful import crash_states, each_crash


@pytest.fixture
def start(tmp_path):
    folder = tmp_path / "start"
    folder.mkdir()
    (folder / "a").write_bytes(b"old")
    return folder


def publish(folder, promise):
    durable.publish(folder / "a", b"new")
    promise(b"new")


def publish_without_fsync(folder, promise):
    with durable.closing(durable.create(folder / "a.tmp")) as fd:
        durable.write_all(fd, b"new")
    durable.rename(folder / "a.tmp", folder / "a")
    durable.fsync_dir(folder)
    promise(b"new")


def publish_without_directory(folder, promise):
    with durable.closing(durable.create(folder / "a.tmp")) as fd:
        durable.write_all(fd, b"new")
        durable.fsync_file(fd)
    durable.rename(folder / "a.tmp", folder / "a")
    promise(b"new")


def overwrite(folder, promise):
    with durable.closing(durable.open_write(folder / "a")) as fd:
        durable.write_at(fd, 0, b"new")
        durable.fsync_file(fd)
    promise(b"new")


def check(folder, end):
    content = (folder / "a").read_bytes()
    assert content == b"new" if end.promised else content in (b"old", b"new")


def test_a_careful_job_survives(start, tmp_path):
    assert each_crash(start, publish, check, folder=tmp_path, tries=20) > 5
    assert each_fault(start, publish, check, folder=tmp_path) > 10


@pytest.mark.parametrize("job", [publish_without_fsync, publish_without_directory, overwrite])
def test_a_careless_job_is_caught(start, tmp_path, job):
    with pytest.raises(AssertionError) as caught:
        each_crash(start, job, check, folder=tmp_path, tries=20)
    assert "not fsynced after operation" in caught.value.__notes__[0]


def test_a_job_that_relies_on_a_write_is_caught(start, tmp_path):
    with pytest.raises(AssertionError) as caught:
        each_fault(start, overwrite, check, folder=tmp_path)
    assert caught.value.__notes__[0].startswith("half at operation")


def test_states_of_two_files_that_were_not_fsynced(tmp_path):
    def job(folder, _):
        for name, data in (("a", b"12"), ("b", b"34")):
            with durable.closing(durable.create(folder / name)) as fd:
                durable.write_at(fd, 0, data[:1])
                durable.write_at(fd, 1, data[1:])
        durable.rename(folder / "b", folder / "c")

    (tmp_path / "start").mkdir()
    states = [tree for tree, _ in crash_states(tmp_path / "start", job, folder=tmp_path, tries=200)]
    assert {} in states
    assert {"a": b"12", "c": b"34"} in states
    assert {"c": b"\x004"} in states  # the second write alone: a hole before it
    assert {"a": b"", "b": b"34"} in states
    assert not [tree for tree in states if {"b", "c"} <= tree.keys()]


def test_a_move_between_directories_is_one_change(tmp_path):
    def job(folder, _):
        durable.make_dir(folder / "sub")
        durable.fsync_dir(folder)
        durable.rename(folder / "a", folder / "sub" / "a")

    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "a").write_bytes(b"1")
    states = [
        tree
        for tree, _ in crash_states(tmp_path / "start", job, folder=tmp_path, states=("all", "synced", "any"), tries=50)
    ]
    assert {"a": b"1", "sub": {}} in states
    assert {"sub": {"a": b"1"}} in states
    assert {"sub": {}} not in states


def test_a_full_disk_stays_full(start, tmp_path):
    errors = []

    def job(folder, _):
        with durable.closing(durable.create(folder / "b")) as fd:
            durable.write_all(fd, b"1234")
        durable.make_dir(folder / "c")

    each_fault(start, job, lambda _, end: errors.append(end.error), folder=tmp_path)
    full = [error for error in errors if isinstance(error, StorageError) and error.errno == errno.ENOSPC]
    assert len(full) == 3


def test_a_file_with_two_names_is_one_file(tmp_path):
    def job(folder, _):
        durable.link(folder / "a", folder / "b")
        with durable.closing(durable.open_write(folder / "b")) as fd:
            durable.write_at(fd, 0, b"new")

    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "a").write_bytes(b"old")
    states = [tree for tree, _ in crash_states(tmp_path / "start", job, folder=tmp_path, tries=50)]
    assert {"a": b"old"} in states
    assert {"a": b"new", "b": b"new"} in states
    assert {tree["a"] == tree["b"] for tree in states if "b" in tree} == {True}

    def check(folder, _):
        if (folder / "b").exists():
            assert (folder / "a").samefile(folder / "b")

    (tmp_path / "checked").mkdir()
    each_crash(tmp_path / "start", job, check, folder=tmp_path / "checked")
