"""Checkpoints, leftovers and directories that do not belong: the code that each gets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kseg
from kseg.errors import StorageError
from kseg.storage import LocalStore
from kseg.verification.kinds import Severity
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


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_side_file_that_cannot_be_read_hides_nothing_else(log, tmp_path, monkeypatch, name):
    """A bad sector there is no reason to say nothing of the records."""
    shutil.copytree(log, tmp_path / "other-0")
    read = LocalStore.read

    def fail(self: LocalStore, path: str, *limits: int) -> bytes:
        if path == f"{log}/{name}":
            raise StorageError("input/output error", path=path)
        return read(self, path, *limits)

    monkeypatch.setattr(LocalStore, "read", fail)
    report = kseg.verify(tmp_path)
    assert [(f.code, f.path) for f in report.findings if f.code == "KS708"] == [("KS708", f"{log}/{name}")]
    assert (report.partitions, report.segments) == (2, 6)


@pytest.mark.parametrize(("compared", "step"), [(False, 1), (True, 7)])
def test_a_partition_that_vanishes_at_any_moment_hides_nothing_of_the_others(
    log, tmp_path, monkeypatch, compared, step
):
    """A topic that is deleted while a broker's directory is verified is no error, and no damage."""
    source = tmp_path / "source"
    for name in ("first-0", "small-0", "third-0"):
        shutil.copytree(log, source / name)
    copy = shutil.copytree(source, tmp_path / "copy") if compared else None
    (source / "third-0" / f"{4:020d}.log").write_bytes(b"damaged" * 50)
    before = {f.code for f in kseg.verify(source, against=copy, workers=1).findings if f.topic == "third"}
    assert before
    seen, moment, root = 0, 0, source
    for method in ("list", "stat", "read", "open"):
        real = getattr(LocalStore, method)

        def counted(self: LocalStore, *words: object, real=real) -> object:
            nonlocal seen
            seen += 1
            if seen == moment:
                (root / "small-0").rename(root / f"small-0.{'a' * 32}-delete")
            return real(self, *words)

        monkeypatch.setattr(LocalStore, method, counted)
    while seen >= moment:
        root = tmp_path / str(moment)
        shutil.copytree(source, root)
        seen, moment = 0, moment + step
        report = kseg.verify(root, against=copy, workers=1)
        assert {f.code for f in report.findings if f.topic == "third"} == before, moment
        assert {f.topic for f in report.findings if f.severity is Severity.DAMAGE} == {"third"}, moment
        shutil.rmtree(root)
    assert moment > 50


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("segment", [0, 1, -1], ids=["first", "middle", "last"])
def test_a_listing_amid_a_brokers_renames_is_no_alarm(log, monkeypatch, suffix, segment):
    """KS204 or KS209 was told of a log that a broker was rolling or cleaning: an index came behind the .log."""
    index = sorted(log.glob(f"*{suffix}"))[segment].name
    listed = LocalStore.list

    def look(without):
        """Codes that are told, and the number of listings, of which the first `without` lack the index."""
        calls = 0

        def list_amid(store, path):
            nonlocal calls
            calls += 1
            return [entry for entry in listed(store, path) if entry.name != index or calls > without]

        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "list", list_amid)
            return codes(log, None) & {"KS204", "KS209"}, calls

    told, listings = look(without=0)
    assert told == set()
    for without in range(1, listings):
        assert look(without)[0] == set(), without
    assert look(without=1_000)[0] != set()  # it is not there at all
