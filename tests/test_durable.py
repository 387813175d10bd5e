"""Changing local files."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

from kseg import durable
from kseg.errors import StorageError


def test_create_refuses_what_exists(tmp_path):
    path = tmp_path / "f"
    with durable.closing(durable.create(path), path) as fd:
        durable.write_all(fd, b"abc")
    with pytest.raises(StorageError, match=r"f: already exists"):
        durable.create(path)
    durable.close(durable.create(path, exclusive=False))
    assert path.read_bytes() == b""


def test_append_write_at_and_truncate(tmp_path):
    path = tmp_path / "f"
    with durable.closing(durable.open_append(path), path) as fd:
        durable.write_all(fd, np.arange(5, dtype=np.uint8))
        durable.write_all(fd, memoryview(b"xyz"))
        durable.write_all(fd, b"")
        durable.fsync_file(fd)
    with durable.closing(durable.open_write(path), path) as fd:
        durable.write_at(fd, 1, b"AB")
        durable.truncate(fd, 7)
    assert path.read_bytes() == b"\x00AB\x03\x04xy"
    durable.truncate(path, 9)
    durable.fsync_file(path)
    assert path.read_bytes() == b"\x00AB\x03\x04xy\x00\x00"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    write, pwrite = os.write, os.pwrite
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    path = tmp_path / "f"
    with durable.closing(durable.create(path), path) as fd:
        durable.write_all(fd, b"0123456789")
        durable.write_at(fd, 5, b"abcdefgh")
    assert path.read_bytes() == b"01234abcdefgh"


@pytest.mark.parametrize("advice", ["taken", "refused", "unknown"])
def test_pieces_are_written_out_while_more_come(tmp_path, monkeypatch, advice):
    told = []

    def advise(fd, start, length, how):
        told.append((start, length))
        if advice == "refused":
            raise OSError(22, "no")

    monkeypatch.setattr(durable, "WRITE_BACK_BYTES", 100)
    if advice == "unknown":
        monkeypatch.delattr(os, "posix_fadvise")
    else:
        monkeypatch.setattr(os, "posix_fadvise", advise)
    pieces = [b"a" * 70, memoryview(b"b" * 70), np.zeros(170, np.uint8), b"", b"c"]
    path = tmp_path / "f"
    with durable.closing(durable.create(path), path) as fd:
        durable.write_pieces(fd, iter(pieces), path)
    assert path.read_bytes() == b"a" * 70 + b"b" * 70 + bytes(170) + b"c"
    assert told == ([] if advice == "unknown" else [(0, 100), (100, 200)])


def test_names_and_times(tmp_path):
    durable.make_dir(tmp_path / "d")
    durable.make_dir(tmp_path / "d", exist_ok=True)
    path = tmp_path / "d" / "f"
    path.write_bytes(b"x")
    durable.set_mtime_ms(path, 1_700_000_000_123)
    assert path.stat().st_mtime_ns == 1_700_000_000_123_000_000
    durable.rename(path, tmp_path / "g")
    durable.fsync_dir(tmp_path / "d")
    durable.unlink(tmp_path / "g")
    durable.unlink(tmp_path / "g", missing_ok=True)
    durable.remove_dir(tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda path: durable.unlink(path),
        lambda path: durable.rename(path, path.with_name("x")),
        lambda path: durable.truncate(path, 1),
        lambda path: durable.open_write(path),
        lambda path: durable.fsync_file(path),
        lambda path: durable.fsync_dir(path),
        lambda path: durable.set_mtime_ms(path, 1),
        lambda path: durable.make_dir(path / "below"),
        lambda path: durable.remove_dir(path),
    ],
)
def test_errors_name_the_path(tmp_path, change):
    with pytest.raises(StorageError, match="none") as caught:
        change(tmp_path / "none")
    assert "no such file or directory" in str(caught.value)


def test_publish_syncs_before_the_rename_and_the_directory_after(tmp_path, monkeypatch):
    steps = []
    for name in ("create", "write_all", "fsync_file", "rename", "fsync_dir"):
        real = getattr(durable, name)

        def step(*args, _name=name, _real=real, **kwargs):
            steps.append(_name)
            return _real(*args, **kwargs)

        monkeypatch.setattr(durable, name, step)
    path = tmp_path / "c"
    path.write_bytes(b"old")
    durable.publish(path, b"new")
    assert steps == ["create", "write_all", "fsync_file", "rename", "fsync_dir"]
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


class _PowerCut(Exception):
    pass


@pytest.mark.parametrize("name", ["create", "write_all", "fsync_file", "rename", "fsync_dir"])
@pytest.mark.parametrize("error", [_PowerCut(), StorageError("no space left on the device")])
def test_a_failed_publish_leaves_old_or_new(tmp_path, monkeypatch, name, error):
    path = tmp_path / "c"
    path.write_bytes(b"old")

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(durable, name, fail)
    with pytest.raises(type(error)):
        durable.publish(path, b"new")
    assert path.read_bytes() == (b"new" if name == "fsync_dir" else b"old")
    monkeypatch.undo()
    durable.publish(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_what_takes_the_place_of_a_file_could_be_read_by_more(tmp_path):
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(b"0")
    path.chmod(0o640)
    durable.publish(path, b"1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    segment = tmp_path / "00000000000000000000.log"
    segment.touch(0o600)
    os.close(durable.create(f"{segment}.cleaned"))
    assert stat.S_IMODE((tmp_path / f"{segment.name}.cleaned").stat().st_mode) == 0o600
