"""Reading files by path and URI."""

from __future__ import annotations

import os
import pickle
import uuid
from pathlib import Path

import fsspec
import numpy as np
import pytest

from kseg.errors import OptionError, StorageError
from kseg.storage import Entry, LocalStore, RateLimiter, open_store

DATA = bytes(range(256)) * 40


@pytest.fixture(params=["path", "file", "memory", "arrow"])
def place(request, tmp_path):
    """The same small tree behind each kind of store: (store, root)."""
    if request.param == "memory":
        root = f"memory:///{uuid.uuid4().hex}"
        filesystem = fsspec.filesystem("memory")
        filesystem.pipe(f"{root}/b.log", DATA)
        filesystem.pipe(f"{root}/a.log", b"")
        filesystem.pipe(f"{root}/sub/c", b"x")
        return open_store(root)
    (tmp_path / "b.log").write_bytes(DATA)
    (tmp_path / "a.log").write_bytes(b"")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c").write_bytes(b"x")
    if request.param == "arrow":
        from pyarrow import fs

        from kseg.storage_arrow import ArrowStore

        return ArrowStore(fs.LocalFileSystem()), str(tmp_path)
    return open_store(tmp_path if request.param == "path" else tmp_path.as_uri())


def test_lists_sorted_with_sizes_and_kinds(place):
    store, root = place
    found = store.list(root)
    assert [(e.name, e.size, e.is_dir) for e in found] == [
        ("a.log", 0, False),
        ("b.log", len(DATA), False),
        ("sub", 0, True),
    ]


def test_stat_says_what_is_there(place):
    store, root = place
    found = store.stat(store.join(root, "b.log"))
    assert isinstance(found, Entry)
    assert (found.name, found.size, found.is_dir) == ("b.log", len(DATA), False)
    assert store.stat(store.join(root, "sub")).is_dir
    assert store.stat(store.join(root, "none")) is None
    assert store.stat(store.join(root, "b.log", "none")) is None


def test_reads_all_or_a_limit(place):
    store, root = place
    path = store.join(root, "b.log")
    assert store.read(path) == DATA
    assert store.read(path, 10) == DATA[:10]
    assert store.read(store.join(root, "sub", "c"), 10) == b"x"


def test_reads_into_the_callers_buffer(place):
    store, root = place
    with store.open(store.join(root, "b.log")) as file:
        assert file.size == len(DATA)
        target = np.zeros(1000, np.uint8)
        assert file.read_into(77, target) == 1000
        assert target.tobytes() == DATA[77:1077]
        view = memoryview(bytearray(100))
        assert file.read_into(len(DATA) - 30, view) == 30
        assert bytes(view[:30]) == DATA[-30:]
        assert file.read_into(len(DATA), target) == 0
        assert file.read_into(len(DATA) + 1000, target) == 0
        assert file.read_into(0, np.empty(0, np.uint8)) == 0
        file.drop_cache(0, len(DATA))
        assert file.identity


@pytest.mark.parametrize("call", ["list", "read", "open"])
def test_what_is_missing_is_one_plain_line(place, call):
    store, root = place
    path = store.join(root, "none")
    with pytest.raises(StorageError) as caught:
        getattr(store, call)(path)
    assert caught.value.path == path
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_directory_does_not_open(place):
    store, root = place
    with pytest.raises(StorageError, match="directory"):
        store.open(store.join(root, "sub"))


def test_a_local_error_says_it_plainly(tmp_path):
    with pytest.raises(StorageError) as caught:
        LocalStore().read(str(tmp_path / "none"))
    assert str(caught.value) == f"{tmp_path}/none: no such file or directory"
    assert not caught.value.retryable


def test_growth_is_seen_after_refresh(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    with LocalStore().open(str(path)) as file:
        with path.open("ab") as more:
            more.write(b"def")
        assert file.size == 3
        assert file.refresh() == 6
        target = bytearray(6)
        assert file.read_into(0, target) == 6
        assert target == b"abcdef"


def test_identity_tells_a_replaced_file(tmp_path):
    path, other = tmp_path / "f", tmp_path / "g"
    path.write_bytes(b"abc")
    other.write_bytes(b"abc")
    with LocalStore().open(str(path)) as file:
        before = file.identity
        other.replace(path)
        with LocalStore().open(str(path)) as again:
            assert again.identity != before
        assert file.identity == before
        file.close()


def test_an_entry_that_vanishes_while_listing_is_left_out(tmp_path):
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "here").write_bytes(b"")
    assert [entry.name for entry in LocalStore().list(str(tmp_path))] == ["here"]


def test_uris():
    store, path = open_store("file:///a%20b/c")
    assert isinstance(store, LocalStore)
    assert path == "/a b/c"
    assert open_store("file://localhost/a")[1] == "/a"
    assert open_store("relative/dir")[1] == str(Path("relative/dir").absolute())
    with pytest.raises(OptionError, match="names no host"):
        open_store("file://host/a")
    with pytest.raises(OptionError, match="nosuch"):
        open_store("nosuch://a/b")


def test_short_reads_are_continued(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(DATA)
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: real(fd, [views[0][:7]], at))
    with LocalStore().open(str(path)) as file:
        target = bytearray(500)
        assert file.read_into(3, target) == 500
        assert target == DATA[3:503]


class _Clock:
    def __init__(self):
        self.now = 100.0

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


def test_the_rate_is_kept_on_average():
    clock = _Clock()
    limiter = RateLimiter(1000, clock=lambda: clock.now, sleep=clock.sleep)
    for _ in range(11):
        limiter.take(500)
    assert clock.now == pytest.approx(105.0)
    clock.now += 60  # a pause earns no credit
    limiter.take(1000)
    limiter.take(1000)
    assert clock.now == pytest.approx(166.0)


def test_no_rate_never_waits():
    RateLimiter(None, sleep=lambda seconds: pytest.fail("slept")).take(1 << 40)
    with pytest.raises(OptionError):
        RateLimiter(0)


def test_a_key_that_ends_with_a_slash_names_what_is_before_it(tmp_path):
    (tmp_path / "topic").mkdir()
    path = LocalStore().join(str(tmp_path), "topic", "")
    assert path == str(tmp_path / "topic")
    assert LocalStore().stat(path).name == "topic"
