"""Offsets of batches are under no checksum: a flipped bit of one must end a job, and not lose what it hides."""

from __future__ import annotations

import struct

import pytest

import kseg
from kseg.compaction import CleanerConfig, compact
from kseg.log import walk
from tests.builders import LogBuilder

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
NOW = 1_700_000_000_000
FLIPS = {  # batches, bytes of each value, which one is flipped, to which offset
    "up in the middle of a piece": (700, 5000, 60, 60 + 16384),
    "up to an offset of the next piece": (700, 5000, 60, 60 + 256),
    "down at the start of a piece": (700, 3000, 349, 349 - 256),
    "up at the end of a chunk": (8, 1_200_000, 3, 3 + 64),
}


def write(root, batches, size, flipped=None, to=0):
    """A log of one record a batch, all keys different, with an index; one batch may have another offset."""
    builder = LogBuilder(root)
    for number in range(batches):
        builder.record(b"key-%d" % number, b"v" * size)
    entries, index, position = builder.segments[0].entries, b"", 0
    if flipped is not None:
        entries[flipped].data = to.to_bytes(8, "big") + entries[flipped].data[8:]
    for number, entry in enumerate(entries):
        index += struct.pack(">ii", number, position) if number else b""
        position += len(entry.data)
    path = builder.segment().batch(1).write()
    (path / f"{0:020d}.index").write_bytes(index)
    return path


def run(path):
    (done,) = compact(path, topics=["orders"], config=CONFIG, now_ms=NOW).partitions
    return done


@pytest.fixture(params=["straight", "walk"])
def way(request, monkeypatch):
    """Both ways to go through a file; one is for machines without pread too."""
    if request.param == "walk":
        monkeypatch.setattr(walk, "pread_address", lambda: 0)
    return request.param


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("flip", FLIPS)
def test_a_flipped_offset_ends_the_round(flip, tmp_path):
    path = write(tmp_path, *FLIPS[flip])
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    assert "do not follow" in run(path).error
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("flip", [flip for flip in FLIPS if "down" not in flip])
@pytest.mark.parametrize("until_end", [True, False])
def test_a_flipped_offset_does_not_end_a_read_before_its_time(flip, until_end, tmp_path):
    batches, _, flipped, _ = FLIPS[flip]
    log = kseg.open_log(write(tmp_path, *FLIPS[flip]))
    found = []
    with pytest.raises(kseg.CorruptRecordError, match="do not follow"):
        for batch in log.read(0, batches + 1 if until_end else flipped + 2):
            found += batch["offset"].to_pylist()
    assert found[:flipped] == [*range(len(found[:flipped]))]
    assert len(found) <= flipped + 1  # with what the batch itself says


@pytest.mark.usefixtures("way")
def test_damage_behind_a_range_is_no_matter_of_who_reads_the_range(tmp_path):
    path = write(tmp_path, 700, 5000, 300, 3)
    assert sum(batch.num_rows for batch in kseg.open_log(path).read(0, 299)) == 299
    log = path / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    size = len(content) // 700
    content[300 * size + 100] ^= 1  # about the middle of batch 300
    log.write_bytes(content)
    assert sum(batch.num_rows for batch in kseg.open_log(path).read(0, 299)) == 299


def test_an_index_that_points_behind_the_end_costs_nothing_but_time(tmp_path):
    path = write(tmp_path, 30, 5000)
    size = (path / f"{0:020d}.log").stat().st_size
    (path / f"{0:020d}.index").write_bytes(struct.pack(">ii", 9, size + 70_000))
    done = run(path)
    assert (done.error, done.records_after) == (None, 30)


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("to", [3, 5, 100, 1 << 20])
def test_a_flipped_offset_of_a_segments_last_batch_supersedes_nothing(tmp_path, codec, to):
    """Nothing follows it in its file; the latest value of its key, in the next segment, was taken for superseded."""
    builder = LogBuilder(tmp_path)
    for value in (b"old", b"newer", b"newest"):
        builder.segment().record(b"key", value, codec=codec)
    entry = builder.segments[1].entries[0]
    entry.data = to.to_bytes(8, "big") + entry.data[8:]
    path = builder.segment().batch(1).write()
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    assert "reach into the next segment" in run(path).error
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
