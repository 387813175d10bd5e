"""Who may read and write what jobs put in the place of a broker's files."""

from __future__ import annotations

import os
import stat

import pytest

from kseg.compaction import CleanerConfig, compact, erase, repack
from tests.builders import LogBuilder

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
JOBS = {
    "compact": lambda path: compact(path, config=CONFIG),
    "erase": lambda path: erase(path, keys=[b"k1"]),
    "repack": lambda path: repack(path, codec="lz4"),
    "repack to several": lambda path: repack(path, codec="none", segment_bytes=2000),
}


def with_records(log):
    return [path for path in log.iterdir() if path.suffix != ".snapshot"]


@pytest.fixture
def open_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("job", JOBS)
def test_new_segments_could_be_read_by_everybody_where_the_old_ones_could_not(tmp_path, open_umask, job):
    builder = LogBuilder(tmp_path / "data", "orders")
    for number in range(3):
        builder.segment()
        for i in range(30):
            builder.record(b"k%d" % (i % 7), b"v%d-%d" % (number, i))
    log = builder.segment().record(b"z", b"end").write()
    checkpoint = log.parent / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n0\n")
    old = [checkpoint, *log.iterdir()]
    for path in old:
        path.chmod(0o600)
    inodes = {path.stat().st_ino for path in log.iterdir()}
    JOBS[job](log)
    assert {path.stat().st_ino for path in log.iterdir()} - inodes, "nothing was written"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (checkpoint, *with_records(log))} == {0o600}
