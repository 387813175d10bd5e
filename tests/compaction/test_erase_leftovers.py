"""Erasure of what repairs have kept: what cannot be searched or deleted is told, and is no proof."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg import durable
from kseg.compaction import erase
from kseg.errors import StorageError
from tests.builders import LogBuilder

SECRET = b"person-4711"
RECORDS = 3


@pytest.fixture(params=["people-0", "people-1"], ids=["beside segments", "alone"])
def kept(tmp_path, request) -> Path:
    """A log file in quarantine; the partition of that name has segments, or nothing else."""
    builder = LogBuilder(tmp_path / "data", "people").segment()
    people = builder.record(b"a", b"1").record(SECRET, b"secret").record(b"b", b"2").write()
    quarantine = tmp_path / "data" / request.param / ".kseg" / "quarantine" / "run"
    quarantine.mkdir(parents=True)
    return Path(shutil.copy(people / "00000000000000000000.log", quarantine))


def test_a_predicate_that_failed_in_quarantine_deleted_it_and_told_that_as_proof(kept, tmp_path):
    rows = RECORDS

    def fails_late(batch):
        nonlocal rows
        rows -= batch.num_rows
        return [[False] * batch.num_rows][0 if rows >= 0 else 7]

    for dry_run in (True, False):
        rows = RECORDS
        report = erase(tmp_path / "data", predicate=fails_late, dry_run=dry_run, workers=1)
        assert kept.exists()
        assert not report.deleted_quarantine
        assert not report.is_proof
        assert "the predicate failed with IndexError" in str(report)


def test_quarantine_that_could_not_be_deleted_was_told_as_deleted_or_ended_the_run(kept, tmp_path, monkeypatch):
    unlink = durable.unlink

    def fail_there(path, *, missing_ok=False):
        if Path(path) == kept:
            raise StorageError("read-only file system", path=str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(durable, "unlink", fail_there)
    report = erase(tmp_path / "data", keys=[SECRET])
    assert kept.exists()
    assert not report.deleted_quarantine
    assert not report.is_proof
    assert f"failed: {kept.parents[3]}" in str(report)
    assert "read-only file system" in str(report)


def test_erasing_one_partition_deleted_the_quarantine_of_others(kept, tmp_path):
    (tmp_path / "data" / "people-1").mkdir(exist_ok=True)
    deleted = tmp_path / "data" / "people-1" / "00000000000000000000.log.deleted"
    shutil.copy(kept, deleted)
    report = erase(tmp_path / "data" / "people-0", keys=[SECRET])
    assert report.is_proof
    assert deleted.exists()
    assert kept.exists() == (kept.parents[3].name == "people-1")


@pytest.mark.parametrize("foreign", ["00000000000000000000.log.bak", "1.log", "notes.txt", ".trash"])
def test_what_is_no_file_of_a_log_was_passed_over_without_a_word(tmp_path, foreign):
    builder = LogBuilder(tmp_path / "data", "people").segment()
    people = builder.record(SECRET, b"secret").record(b"b", b"2").write()
    (people / foreign).mkdir() if foreign == ".trash" else (people / foreign).write_bytes(SECRET)
    for dry_run in (True, False):
        report = erase(people, keys=[SECRET], dry_run=dry_run)
        assert report.not_searched == (str(people / foreign),)
        assert any(line.startswith("NOT SEARCHED") and foreign in line for line in report.lines())
        assert not report.is_proof
    (people / foreign).rmdir() if foreign == ".trash" else (people / foreign).unlink()
    assert erase(people, keys=[SECRET]).is_proof


def test_a_refusal_was_told_with_a_last_look_that_nobody_took(tmp_path):
    root = tmp_path / "data"
    LogBuilder(root, "__cluster_metadata").segment().record(b"a", b"1").write()
    report = erase(root, keys=[SECRET], topics=["__cluster_metadata"])
    assert report.refusals
    assert not any("last look" in line for line in report.lines())
