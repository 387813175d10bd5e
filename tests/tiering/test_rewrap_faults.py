"""Key rotation on stores and disks that fail: every segment stays readable, and the next run finishes."""

from __future__ import annotations

import functools
import os
import shutil

import pytest

from kseg.errors import StorageError
from kseg.tiering import crypto, fsck, rewrap
from kseg.tiering import objects as tier_objects
from kseg.tiering.fsck_report import Kind
from kseg.tiering.objects import RetryPolicy
from kseg.tiering.rewrap_report import Status
from tests.faults.disk import each_fault
from tests.faults.forgetful import each_crash
from tests.faults.store import at, failing
from tests.tiering.cluster import QUICK
from tests.tiering.rewrapped import SUFFIX, data_keys, key_ids, manifests, read

ONCE = RetryPolicy(1)


@pytest.fixture(scope="module")
def keys(rewrap_keys):
    return rewrap_keys


@pytest.fixture
def tier(golden, tmp_path):
    return shutil.copytree(golden / "aiven" / "encrypted" / "remote", tmp_path / "tier")


def check_readable(tier, keys, ciphers):
    """Every segment can be read with one of the keys, and fsck says what to do about the rest."""
    assert data_keys(tier, keys) == ciphers
    found = fsck(str(tier), deep=False)
    assert {finding.kind for finding in found.findings} <= {Kind.REWRAP, Kind.STRANGER}
    assert found.is_sound
    kept = {finding.keys[0] for finding in found.findings if finding.kind is Kind.REWRAP}
    assert kept == {path.relative_to(tier).as_posix() for path in tier.rglob(f"*{SUFFIX}")}
    assert all("run 'kseg rewrap' again" in f.text for f in found.findings if f.kind is Kind.REWRAP)


def check_finished(tier, keys, ciphers):
    report = rewrap(str(tier), keys=keys, to="new")
    assert report.failed == 0
    assert set(key_ids(tier)) == {"new"}
    assert not list(tier.rglob(f"*{SUFFIX}"))
    assert data_keys(tier, keys) == ciphers


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", ["once", "answer"])
def test_every_call_of_the_store_can_fail(tier, keys, tmp_path, kind):
    for path in (path for manifest in manifests(tier)[2:] for path in tier.rglob(f"{manifest.stem}.*")):
        path.unlink()
    ciphers, number, failed = data_keys(tier, keys), 0, 1
    while failed:
        number += 1
        work = shutil.copytree(tier, tmp_path / f"fault-{number}")
        with failing(at(number, kind), str(work)) as faults:
            try:
                report = rewrap(str(work), keys=keys, to="new", retry=ONCE, workers=1)
                assert report.failed == faults.failed
            except StorageError:
                assert faults.failed
        failed = faults.failed
        check_readable(work, keys, ciphers)
        check_finished(work, keys, ciphers)
    assert number > 2 * 6  # calls a segment


@pytest.fixture(scope="module")
def start(golden, tmp_path_factory):
    """A tier of one encrypted segment."""
    folder = tmp_path_factory.mktemp("start")
    source = golden / "aiven" / "encrypted" / "remote"
    (first, *_) = manifests(source)
    target = folder / "tier" / first.parent.relative_to(source)
    target.mkdir(parents=True)
    for path in first.parent.glob(f"{first.stem}.*"):
        shutil.copy(path, target)
    return folder


@pytest.fixture
def quick(monkeypatch):
    """Keys are parsed once, which takes longest; the disks of these tests decide what is durable."""
    monkeypatch.setattr(crypto, "_import_key", functools.lru_cache(crypto._import_key))
    monkeypatch.setattr(os, "fsync", lambda _: None)


def job_with(keys):
    def job(folder, promise):
        report = rewrap(str(folder / "tier"), keys=keys, to="new", retry=QUICK, workers=1)
        if not report.failed:
            promise("rewrapped")

    return job


def checker(keys, ciphers):
    def check(folder, end):
        check_readable(folder / "tier", keys, ciphers)
        if end.promised:
            assert key_ids(folder / "tier") == ["new"]
        check_finished(folder / "tier", keys, ciphers)

    return check


@pytest.mark.usefixtures("quick")
def test_every_operation_of_a_disk_can_fail(start, keys, tmp_path):
    ciphers = data_keys(start / "tier", keys)
    assert each_fault(start, job_with(keys), checker(keys, ciphers), folder=tmp_path) > 20


@pytest.mark.usefixtures("quick")
def test_whatever_a_disk_forgets(start, keys, tmp_path):
    ciphers = data_keys(start / "tier", keys)
    assert each_crash(start, job_with(keys), checker(keys, ciphers), folder=tmp_path) > 5


@pytest.mark.parametrize("left", [None, b"", b'{"version":"1","chunkInd'])
def test_a_store_that_tears_what_it_replaces(tier, keys, left):
    """The manifest is lost, and its copy is there: fsck says so, no orphan is deleted, and a run puts it right."""
    (path, *_) = manifests(tier)
    ciphers = data_keys(tier, keys)
    path.rename(f"{path}{SUFFIX}")
    if left is not None:
        path.write_bytes(left)
    found = fsck(str(tier))
    assert not found.is_sound
    assert any("run" in f.text and "kseg rewrap" in f.text for f in found.findings)
    assert not [f for f in found.findings if f.kind in (Kind.ORPHAN, Kind.STRANGER)]
    check_finished(tier, keys, ciphers)


def test_what_is_left_of_a_segment_that_is_gone(tier, keys):
    """A manifest must not come back without its segment; fsck says that the copy can go."""
    (path, *_) = manifests(tier)
    path.rename(f"{path}{SUFFIX}")
    path.with_suffix(".log").unlink()
    rewrap(str(tier), keys=keys, to="new")
    assert not path.exists()
    assert [finding.kind for finding in fsck(str(tier)).findings if "rewrap" in finding.text] == []
    path.with_suffix(".indexes").unlink()
    (found,) = [finding for finding in fsck(str(tier)).findings if finding.kind is Kind.STRANGER]
    assert found.text.endswith("of a segment that is gone: delete it")


def test_a_copy_with_another_data_key_is_not_dropped(tier, keys):
    first, second, *_ = manifests(tier)
    copy = first.with_name(first.name + SUFFIX)
    shutil.copy(second, copy)
    rewrap(str(tier), keys=keys, to="key1")
    assert copy.exists()
    assert read(tier, keys) > 8000  # readers do not see it
    report = rewrap(str(tier), keys=keys, to="key1")
    assert ["another data key" in found.error for found in report.segments if found.error] == [True]


def test_a_segment_that_is_deleted_meanwhile_does_not_come_back(tier, keys, monkeypatch):
    """A manifest alone would promise a segment."""
    (path, *_) = manifests(tier)
    put = tier_objects.TierObjects._put_once

    def put_and_lose(self, key, pieces):
        for part in (".log", ".indexes", ".rsm-manifest") if path.stem in key and key.endswith(SUFFIX) else ():
            path.with_suffix(part).unlink()
        return put(self, key, pieces)

    monkeypatch.setattr(tier_objects.TierObjects, "_put_once", put_and_lose)
    report = rewrap(str(tier), keys=keys, to="new", workers=1)
    assert [found.status for found in report.segments].count(Status.GONE) == 1
    assert not list(tier.rglob(f"{path.stem}*"))
