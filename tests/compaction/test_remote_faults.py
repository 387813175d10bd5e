"""Rewriting a tier on disks that fail, fill up and lose power, and with a store that fails: old or new, once; a second
run finishes; what is left over is listed, and goes with a sweep."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil

import pytest

import kseg
from kseg.compaction import RemoteOptions, compact, erase
from kseg.errors import KsegError
from kseg.tiering import fsck
from kseg.tiering.objects import RetryPolicy
from tests.faults.disk import End, each_fault, noted
from tests.faults.forgetful import each_crash
from tests.faults.store import at, failing
from tests.reference.rows import records_of
from tests.scale import FACTOR
from tests.tiering.cluster import MARKER, NOW, QUICK, make_cluster, run
from tests.tiering.retired import make_old

ONCE = RetryPolicy(attempts=1)
pytestmark = pytest.mark.timeout(300 * FACTOR)  # a soak has every fault
KEYS = [b"k1", b"k12", b"k22"]
LAYOUTS = ["plain", "chunked"]
EVERY = 31  # of some hundred faults; their kinds alternate, and this is no multiple of their number


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


@pytest.fixture(scope="module", params=LAYOUTS)
def start(request, tmp_path_factory):
    """Two segments in the tier, and one more that is local."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "data").mkdir()
    make_cluster(folder / "data", segments=3)
    run(folder / "data", folder / "tier", layout=request.param, delete_local=True, workers=1)
    (folder / "staging").mkdir()
    return folder


def read(folder, *, alone=False):
    log = (
        kseg.open_dir(folder / "tier")["a", 0] if alone else kseg.open_log(folder / "data/a-0", remote=folder / "tier")
    )
    return records_of(log.read())


def options_for(folder, **others):
    return RemoteOptions(**{"remote_metadata_partitions": 1, "staging": folder / "staging", "retry": QUICK, **others})


def erase_all(folder, promise, **others):
    report = erase(
        folder / "data",
        remote=str(folder / "tier"),
        keys=KEYS,
        topics=["a"],
        remote_options=options_for(folder, **others),
        workers=1,
    )
    if not report.failed:
        promise("erased")


def check_between(folder, whole, left):
    """What is read is the old or the new, in order, and nothing is there twice."""
    for alone in (False, True):
        end = 20 if alone else 2**63
        rows = read(folder, alone=alone)
        assert [row for row in rows if row in left] == [row for row in left if row.offset < end]
        assert [row for row in whole if row in rows] == rows


def checker(whole):
    left = [row for row in whole if row.key not in KEYS]

    def check(folder, end):
        check_between(folder, whole, left)
        if end.promised:
            assert read(folder) == left
            assert (folder / "data" / MARKER).exists()
        erase_all(folder, end.promised.count)
        assert read(folder) == left
        assert read(folder, alone=True) == [row for row in left if row.offset < 20]
        check_swept(folder, left)

    return check


def check_swept(folder, left):
    """All that is left over is known, and a sweep takes it."""
    given = {"metadata": folder / "data", "remote_metadata_partitions": 1}
    kinds = {finding.kind.value for finding in fsck(str(folder / "tier"), **given).findings}
    assert kinds <= {"retired", "unfinished", "stranger"}
    make_old(folder / "tier")
    report = erase(
        folder / "data",
        remote=str(folder / "tier"),
        keys=KEYS,
        topics=["a"],
        remote_options=options_for(folder, grace_ms=0),
        workers=1,
    )
    assert (report.records, report.lingering, report.is_proof) == (0, (), True)
    found = fsck(str(folder / "tier"), deep=True, **given)
    # a local tier may keep the temporary file of a put that died
    assert [finding for finding in found.findings if finding.kind.value != "stranger"] == []
    assert found.segments == 2
    assert read(folder) == left


def test_every_operation_can_fail(start, tmp_path):
    assert each_fault(start, erase_all, checker(read(start)), folder=tmp_path, every=EVERY) > 100


@pytest.mark.parametrize("seed", range(FACTOR))
def test_whatever_the_disk_forgets(start, tmp_path, seed):
    states = ("synced", "random") if FACTOR > 1 else ("synced",)
    assert each_crash(start, erase_all, every_so_often(checker(read(start))), folder=tmp_path, seed=seed, states=states)


def every_so_often(check):
    """Check one state of some; all in a soak."""
    seen = itertools.count()
    return lambda folder, end: check(folder, end) if next(seen) % (EVERY if FACTOR == 1 else 1) == 0 else None


def test_every_call_of_the_store_can_fail(start, tmp_path):
    check = checker(read(start))
    shutil.copytree(start, tmp_path / "whole")
    with failing(at(0, "once"), str(tmp_path / "whole" / "tier")) as calls:
        erase_all(tmp_path / "whole", str)
    assert calls.count > 40
    for number in range(1, calls.count + 1, 1 if FACTOR > 1 else 11):
        place = tmp_path / str(number)
        shutil.copytree(start, place)
        promised = []
        with failing(at(number, "once"), str(place / "tier")) as faults, contextlib.suppress(KsegError):
            erase_all(place, promised.append, retry=ONCE)
        assert faults.failed == 1
        with noted(f"call {number}"):
            check(place, End(f"call {number}", tuple(promised)))
        shutil.rmtree(place)


# -- compaction of an archive ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=LAYOUTS)
def archive(request, tmp_path_factory):
    """Three segments in a bucket: the first two become one."""
    folder = tmp_path_factory.mktemp("archive")
    (folder / "data").mkdir()
    make_cluster(folder / "data", segments=4)
    run(folder / "data", folder / "tier", layout=request.param, archive=True, workers=1)
    shutil.rmtree(folder / "data")
    (folder / "staging").mkdir()
    return folder


def compact_all(folder, promise, **options):
    report = compact(
        folder / "tier",
        archive=True,
        topics=["a"],
        settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0},
        now_ms=NOW,
        remote_options=RemoteOptions(staging=folder / "staging", retry=QUICK, **options),
        workers=1,
    )
    if not report.failed:
        promise("compacted")


def test_compaction_of_a_bucket_can_fail_anywhere(archive, tmp_path):
    whole = read(archive, alone=True)
    shutil.copytree(archive, tmp_path / "other")
    compact_all(tmp_path / "other", str)
    left = read(tmp_path / "other", alone=True)
    assert 0 < len(left) < len(whole)

    def check(folder, end):
        rows = read(folder, alone=True)
        assert rows in (whole, left)
        if end.promised:
            assert rows == left
        compact_all(folder, str)
        assert read(folder, alone=True) == left
        assert {finding.kind.value for finding in fsck(str(folder / "tier")).findings} <= {"retired", "stranger"}
        make_old(folder / "tier")
        compact_all(folder, str, grace_ms=0)
        assert read(folder, alone=True) == left
        found = fsck(str(folder / "tier"), deep=True)
        assert [finding for finding in found.findings if finding.kind.value != "stranger"] == []
        assert found.segments == 2

    assert each_fault(archive, compact_all, check, folder=tmp_path, every=EVERY) > 50
