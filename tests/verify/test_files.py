"""Checkpoints, leftovers and directories that do not belong: the code that each gets."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from kseg.errors import StorageError
from kseg.storage import LocalStore
from tests.verify.copies import codes, found, small_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return small_log(tmp_path)


def all_codes(path: Path) -> set[str]:
    return codes(path, None)


def write_checkpoint(root: Path, name: str, offset: int, topic: str = "small") -> None:
    (root / name).write_text(f"0\n1\n{topic} 0 {offset}\n")


def test_checkpoints_against_the_data(log, tmp_path):
    end = kseg.open_log(log).end_offset
    for name, code in (
        ("replication-offset-checkpoint", "KS603"),
        ("log-start-offset-checkpoint", "KS602"),
        ("recovery-point-offset-checkpoint", "KS604"),
        ("cleaner-offset-checkpoint", "KS605"),
    ):
        before = (tmp_path / name).read_bytes() if (tmp_path / name).exists() else None
        write_checkpoint(tmp_path, name, end)
        assert found(tmp_path) == []
        write_checkpoint(tmp_path, name, end + 1)
        assert code in all_codes(tmp_path)
        (tmp_path / name).write_text("0\n2\nsmall 0 1\n")
        assert "KS601" in codes(tmp_path)
        (tmp_path / name).unlink() if before is None else (tmp_path / name).write_bytes(before)
    write_checkpoint(tmp_path, "replication-offset-checkpoint", end - 1)
    assert codes(log) == {"KS606"}, "in the middle of a batch"
    write_checkpoint(tmp_path, "log-start-offset-checkpoint", 10)
    assert "KS303" in all_codes(log)
    write_checkpoint(tmp_path, "cleaner-offset-checkpoint", 1, topic="gone")
    assert "KS607" in all_codes(tmp_path)


def test_files_that_do_not_belong(log, tmp_path):
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    assert found(tmp_path) == []
    for name, code in (
        ("small-0/00000000000000000000.log.deleted", "KS701"),
        ("small-0/00000000000000000000.log.cleaned", "KS702"),
        ("small-0/00000000000000000077.index", "KS703"),
        ("small-0/leader-epoch-checkpoint.tmp", "KS704"),
        ("notes.txt", "KS704"),
    ):
        (tmp_path / name).touch()
        assert code in all_codes(tmp_path)
        (tmp_path / name).unlink()
    for name, code in (("backup", "KS705"), ("small-1.0123456789abcdef-delete", "KS706"), ("small-0/x", "KS704")):
        (tmp_path / name).mkdir()
        assert code in all_codes(tmp_path)
        (tmp_path / name).rmdir()
    (log / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    assert codes(tmp_path) == {"KS707"}
    (tmp_path / "meta.properties").write_text("version=9\n")
    assert codes(tmp_path) == {"KS707"}


def test_a_segment_that_cannot_be_read_is_damage(log, monkeypatch):
    """Such as on a disk with bad sectors: nothing was looked at, so nothing is sound."""

    def fail(self: LocalStore, path: str) -> None:
        raise StorageError("input/output error", path=path)

    monkeypatch.setattr(LocalStore, "open", fail)
    assert "KS709" in all_codes(log)
    assert not kseg.verify(log).is_sound
