"""A new log in the place of a deleted one, whose offsets the checkpoint files still list."""

from __future__ import annotations

import shutil

import pytest

import kseg
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, write_checkpoint
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.log.written import clock, numbered

TP, OTHER = TopicPartition("a", 0), TopicPartition("z", 1)


@pytest.fixture
def data(tmp_path):
    """A log directory whose partition `a-0` was deleted with nothing told to the checkpoints."""
    folder = tmp_path / "data"
    folder.mkdir()
    for kind in CheckpointKind:
        write_checkpoint(str(folder), kind, {TP: 1000, OTHER: 7})
    return folder


def listed(data):
    return {kind: read_checkpoint(LocalStore(), str(data), kind) for kind in CheckpointKind}


def test_a_new_log_began_at_the_log_start_of_the_deleted_one(oracle, data, tmp_path):
    """Its records were not to be seen, and a broker that starts deleted them: the log ended before its start."""
    with kseg.create_log(data / "a-0", clock=clock) as writer:
        assert all(offsets == {OTHER: 7} for offsets in listed(data).values())  # as a crash finds them
        writer.append(numbered(3))
    told = listed(data)
    assert told.pop(CheckpointKind.RECOVERY_POINT) == told.pop(CheckpointKind.HIGH_WATERMARK) == {TP: 3, OTHER: 7}
    assert all(offsets == {OTHER: 7} for offsets in told.values())
    log = kseg.open_log(data / "a-0")
    assert (log.start_offset, log.high_watermark, log.end_offset) == (0, 3, 3)
    assert sum(batch.num_rows for batch in log.read()) == 3
    assert not [finding for finding in kseg.verify(data).findings if finding.severity != "info"]
    start = log.checkpoints.get(CheckpointKind.LOG_START, TP) or 0
    loaded = oracle.load(shutil.copytree(data / "a-0", tmp_path / "kafkas" / "a-0"), logStart=start, clean=True)
    assert (loaded["logStart"], loaded["logEnd"]) == (0, 3)


@pytest.mark.parametrize("kind", [CheckpointKind.LOG_START, CheckpointKind.CLEANER])
def test_a_malformed_checkpoint_that_tells_nobody_anything_is_left_alone(data, kind):
    (data / kind.value).write_bytes(b"junk")
    with kseg.create_log(data / "a-0", clock=clock) as writer:
        writer.append(numbered(3))
    assert (data / kind.value).read_bytes() == b"junk"
    assert kseg.open_log(data / "a-0").end_offset == 3


def test_a_checkpoint_that_cannot_be_updated_is_told_before_anything_changes(data):
    (data / CheckpointKind.RECOVERY_POINT.value).write_bytes(b"junk")
    with pytest.raises(kseg.IndexFileError):
        kseg.create_log(data / "a-0")
    assert not (data / "a-0").exists()
    assert read_checkpoint(LocalStore(), str(data), CheckpointKind.LOG_START) == {TP: 1000, OTHER: 7}
