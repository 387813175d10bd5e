"""Keys in files: as many as a process may open, each within its share of memory, and none left open."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kseg
from kseg import durable
from kseg.compaction import CleanerConfig, compact
from kseg.compaction.spill import (
    MAX_FILES,
    MIN_ROOM,
    DroppedWriter,
    Resolver,
    SpillFiles,
    open_at_once,
    superseded_offsets,
)
from kseg.errors import StorageError
from kseg.log.names import CLEAN_SHUTDOWN_FILE, LOCK_FILE, SIDE_DIR
from tests.builders import LogBuilder

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
NOW = 1_800_000_000_000
OPEN_FILES = 120


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """A process that may open few files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def content(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def open_below(folder: Path) -> list[str]:
    """The files of a folder that this process has open."""
    names = list(Path("/proc/self/fd").iterdir())
    return [target for target in map(os.path.realpath, names) if target.startswith(str(folder))]


def random_entries(records: int, keys: int, seed: int = 1) -> np.ndarray:
    """Rows of (low hash, high hash, offset); some of them replace none."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(-(2**63), 2**63 - 1, (keys, 2))
    offsets = np.arange(records)
    told = np.where(rng.random(records) < 0.1, ~offsets, offsets)
    return np.column_stack([hashes[rng.integers(0, keys, records)], told])


def test_many_keys_and_a_small_budget_opened_more_files_than_a_process_may(tmp_path, few_descriptors):
    directory, rows = tmp_path / "data" / "orders-0", 500_000
    with kseg.create_log(directory, config=kseg.LogConfig(segment_bytes=8 << 20)) as writer:
        keys = pa.array([b"key-%07d" % (number * 7919 % rows) for number in range(rows)], pa.binary())
        writer.append(pa.table({"key": keys, "value": keys}))
        writer.append(pa.table({"key": keys[: rows // 2], "value": keys[: rows // 2]}))
    copy = shutil.copytree(directory, tmp_path / "copy" / directory.name)
    (spilled,) = compact(
        directory, config=CONFIG, now_ms=NOW, memory_budget=1 << 20, strategy="spill", workers=2
    ).partitions
    assert spilled.error is None
    (in_memory,) = compact(copy, config=CONFIG, now_ms=NOW, strategy="memory").partitions
    assert spilled.keys == in_memory.keys
    assert content(directory) == content(copy)


@pytest.mark.parametrize(("wanted", "budget", "workers"), [(1, 1 << 30, 1), (10**6, 1 << 20, 1), (10**6, 1 << 40, 8)])
def test_files_are_few_enough_for_descriptors_and_buffers(wanted, budget, workers):
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = open_at_once(wanted, budget, workers)
    assert 2 <= count <= max(wanted, 2)
    assert count * workers <= min(soft // 4, MAX_FILES)


@pytest.mark.parametrize("keys", [1, 300, 20_000, 150_000])
@pytest.mark.parametrize("first_dirty", [0, 100_000])
def test_a_file_larger_than_its_share_of_memory_gives_the_same_offsets(tmp_path, keys, first_dirty):
    """Few keys: read part by part; many: divided, and divided again."""
    entries = random_entries(300_000, keys)
    expected, dirty = superseded_offsets(entries, first_dirty)
    path = tmp_path / "keys-00000"
    entries.tofile(path)
    with DroppedWriter(tmp_path / "dropped") as writer:
        assert Resolver(first_dirty, MIN_ROOM, 2, writer.put).resolve(path, 7) == dirty
    assert (np.sort(np.fromfile(writer.file.path, np.int64)) == expected).all()
    starts = (0, *writer.file.ends[:-1])
    for start, end in zip(starts, writer.file.ends, strict=True):
        part = np.fromfile(writer.file.path, np.int64, end - start, offset=8 * start)
        assert (np.diff(part) > 0).all()
    assert [path.name for path in tmp_path.iterdir()] == ["dropped"]


def refuse(fd: int, data: durable.Readable, path: durable.PathLike = "") -> None:
    raise StorageError("no space left on the device", path=os.fspath(path))


def test_files_stayed_open_where_one_could_not_be_written(tmp_path, monkeypatch):
    files = SpillFiles(tmp_path, 8, 1 << 20)
    files.put(random_entries(100, 100))
    monkeypatch.setattr(durable, "write_all", refuse)
    with pytest.raises(StorageError, match="no space left"):
        files.close()
    assert open_below(tmp_path) == []


def test_files_stayed_open_where_one_of_them_could_not_be_made(tmp_path):
    (tmp_path / "keys-00005").touch()
    with pytest.raises(StorageError, match="already exists"):
        SpillFiles(tmp_path, 8, 1 << 20)
    assert open_below(tmp_path) == []


@pytest.fixture
def orders(tmp_path) -> Path:
    """A log directory that was shut down cleanly."""
    builder = LogBuilder(tmp_path / "data").segment().batch(records=50).segment().batch(records=50)
    directory = builder.segment().record(b"k", b"v").write()
    (directory.parent / LOCK_FILE).touch()
    (directory.parent / CLEAN_SHUTDOWN_FILE).write_bytes(b"clean")
    return directory


def full_for(monkeypatch: pytest.MonkeyPatch, is_full: Callable[[str], bool]) -> None:
    """A disk that has no space for some files."""
    write = durable.write_all

    def write_all(fd: int, data: durable.Readable, path: durable.PathLike = "") -> None:
        if is_full(os.fspath(path)):
            refuse(fd, data, path)
        write(fd, data, path)

    monkeypatch.setattr(durable, "write_all", write_all)


def test_the_clean_shutdown_marker_was_lost_where_spilled_keys_filled_the_disk(orders, monkeypatch):
    """A file that is deleted and still open takes its space as before."""
    before = content(orders.parent)
    full_for(monkeypatch, lambda path: "keys-" in path or bool(open_below(orders / SIDE_DIR)))
    (done,) = compact(orders, config=CONFIG, now_ms=NOW, strategy="spill").partitions
    assert "no space left" in done.error
    assert content(orders.parent) == before


def test_a_clean_shutdown_marker_that_cannot_be_put_back_is_told(orders, monkeypatch, caplog):
    full_for(monkeypatch, lambda path: "keys-" in path or CLEAN_SHUTDOWN_FILE in path)
    (done,) = compact(orders, config=CONFIG, now_ms=NOW, strategy="spill").partitions
    assert "no space left on the device; the clean-shutdown marker could not be put back" in done.error
    assert "a broker that starts there checks all logs" in caplog.text


def test_a_dry_run_deleted_the_files_of_a_job_that_was_running(orders, monkeypatch, tmp_path):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    theirs = orders / SIDE_DIR / "work-of-another" / "keys-00000"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"keys")
    before = content(orders.parent)
    times = {path: path.stat().st_mtime_ns for path in (orders, theirs.parent, theirs.parent.parent)}
    (planned,) = compact(orders, config=CONFIG, now_ms=NOW, strategy="spill", dry_run=True).partitions
    assert (planned.error, planned.strategy) == (None, "spill")
    assert content(orders.parent) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert list((tmp_path / "temporary").iterdir()) == []
    (done,) = compact(orders, config=CONFIG, now_ms=NOW, strategy="spill").partitions
    assert (done.bytes_after, done.records_after) == (planned.bytes_after, planned.records_after)
