"""The checkpoint files of a log directory."""

from __future__ import annotations

import pytest

import kseg
from kseg.errors import IndexFileError
from kseg.log.checkpoints import (
    CheckpointKind,
    read_checkpoints,
    read_leader_epochs,
    update_checkpoint,
    write_leader_epochs,
)
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.builders import LogBuilder

STORE = LocalStore()
ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 3)


def test_golden_checkpoints(golden):
    found = read_checkpoints(STORE, str(golden / "before"))
    assert found.problems == ()
    assert found.get(CheckpointKind.HIGH_WATERMARK, TopicPartition("plain", 1)) == 1518
    assert found.get(CheckpointKind.LOG_START, TopicPartition("plain", 1)) is None
    assert set(found.offsets) == set(CheckpointKind)


def test_an_update_leaves_the_others(tmp_path):
    kind = CheckpointKind.HIGH_WATERMARK
    update_checkpoint(str(tmp_path), kind, {ORDERS: 5, USERS: 7})
    update_checkpoint(str(tmp_path), kind, {ORDERS: 6})
    assert (tmp_path / "replication-offset-checkpoint").read_bytes() == b"0\n2\norders 0 6\nusers 3 7\n"
    update_checkpoint(str(tmp_path), kind, {ORDERS: None})
    found = read_checkpoints(STORE, str(tmp_path))
    assert found.offsets == {kind: {USERS: 7}}


def test_the_same_offsets_were_other_bytes_where_they_came_in_another_order(tmp_path):
    for tp, offset in ((USERS, 7), (TopicPartition("orders", 10), 9), (ORDERS, 5)):
        update_checkpoint(str(tmp_path), CheckpointKind.CLEANER, {tp: offset})
    written = (tmp_path / CheckpointKind.CLEANER.value).read_bytes()
    assert written == b"0\n3\norders 0 5\norders 10 9\nusers 3 7\n"


def test_a_malformed_file_is_told_and_not_overwritten_unasked(tmp_path):
    path = tmp_path / CheckpointKind.CLEANER.value
    path.write_bytes(b"0\n9\n")
    found = read_checkpoints(STORE, str(tmp_path))
    assert found.get(CheckpointKind.CLEANER, ORDERS) is None
    assert str(path) in str(found.problems[0])
    with pytest.raises(IndexFileError):
        update_checkpoint(str(tmp_path), CheckpointKind.CLEANER, {ORDERS: 1})
    assert path.read_bytes() == b"0\n9\n"
    update_checkpoint(str(tmp_path), CheckpointKind.CLEANER, {ORDERS: 1}, replace_malformed=True)
    assert path.read_bytes() == b"0\n1\norders 0 1\n"


def test_leader_epochs(golden, tmp_path):
    epochs = read_leader_epochs(STORE, str(golden / "before" / "plain-0"))
    assert [tuple(entry) for entry in epochs.entries] == [(0, 0)]
    assert read_leader_epochs(STORE, str(tmp_path)) is None
    write_leader_epochs(str(tmp_path), epochs.assign(3, 20))
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n3 20\n"


@pytest.mark.parametrize("opened", [kseg.open_log, lambda path: kseg.open_dir(path.parent).partitions[0]])
def test_a_reader_is_warned_that_the_high_watermark_is_not_known(tmp_path, caplog, opened):
    path = LogBuilder(tmp_path).segment().batch(5).write()
    (tmp_path / CheckpointKind.HIGH_WATERMARK.value).write_bytes(b"0\n9\n")
    log = opened(path)
    assert log.high_watermark == 5
    [warning] = caplog.messages
    assert warning.startswith(f"{tmp_path / CheckpointKind.HIGH_WATERMARK.value}")
    assert warning.endswith("; it counts as empty, as it does for a broker")
