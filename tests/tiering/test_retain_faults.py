"""Retention of a tier on disks that fail, fill up and lose power: no record above the log start is lost."""

from __future__ import annotations

import os

import pytest

import kseg
from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.storage import LocalStore
from kseg.tiering import fsck, retain
from kseg.types import TopicPartition
from tests.faults.disk import each_fault
from tests.faults.forgetful import each_crash
from tests.log.written import START, bases
from tests.reference.rows import records_of
from tests.scale import FACTOR
from tests.tiering.cluster import MARKER, NOW, QUICK, make_cluster, run
from tests.tiering.retired import DAY_MS, make_old, marks, objects

LAYOUTS = ["plain", "chunked"]
TP = TopicPartition("a", 0)
HARMLESS = {"retired", "stranger"}  # a local tier may keep the temporary file of a put that died


@pytest.fixture(autouse=True)
def _no_real_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disks of these tests decide what is durable


@pytest.fixture(scope="module")
def start(request, tmp_path_factory):
    """Segments at 0, 10 and 20 are in the tier, those from 10 on are local too."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "data").mkdir()
    make_cluster(folder / "data", segments=4)
    settings = {"remote.storage.enable": True, "local.retention.ms": NOW - START - 10, "retention.ms": -1}
    run(folder / "data", folder / "tier", layout=request.param, delete_local=True, settings=settings)
    assert bases(folder / "data" / "a-0") == [10, 20, 30]
    return folder


@pytest.fixture(scope="module")
def whole(start):
    return records_of(kseg.open_log(start / "data" / "a-0", remote=start / "tier").read())


def expire(folder, now_ms=NOW, **options):
    """Retire what is at 0 and 10, and delete what is local below 20."""
    settings = {
        "remote.storage.enable": True,
        "cleanup.policy": "delete",
        "retention.ms": now_ms - START - 20,
        "local.retention.ms": -1,
        "retention.bytes": -1,
        "local.retention.bytes": -1,
    }
    given = {"topics": ["a"], "settings": settings, "remote_metadata_partitions": 1, "now_ms": now_ms, "retry": QUICK}
    return retain(str(folder / "tier"), folder / "data", workers=1, **{**given, **options})


def job(folder, promise):
    report = expire(folder)
    if report.partitions and report.partitions[0].error is None:
        promise("retired")
    report = expire(folder, now_ms=NOW + DAY_MS, grace_ms=DAY_MS)
    if report.swept_segments == 2 and report.partitions[0].error is None:
        promise("swept")


def checker(whole):
    def check(folder, end):
        data, tier = folder / "data", folder / "tier"
        started = (read_checkpoint(LocalStore(), str(data), CheckpointKind.LOG_START) or {}).get(TP)
        assert started in (0, 20), end
        log = kseg.open_log(data / "a-0", remote=tier)
        assert records_of(log.read(max(started, log.start_offset))) == [r for r in whole if r.offset >= started], end
        assert log.start_offset <= max(started, 10), end
        alone = kseg.open_dir(tier)["a", 0]
        seen = [segment.base_offset for segment in alone.segments]
        assert seen in ([0, 10, 20], [20]), end
        assert records_of(alone.read()) == [r for r in whole if seen[0] <= r.offset < 30], end
        check_fsck(folder, end)
        if "retired" in end.promised:
            assert (started, seen) == (20, [20])
        report = expire(folder)
        assert report.refusals == ()
        assert report.partitions[0].error is None
        make_old(tier)  # marks of which the metadata knows nothing are as old as the store says
        assert [segment.base_offset for segment in kseg.open_dir(tier)["a", 0].segments] == [20], end
        expire(folder, now_ms=NOW + 2 * DAY_MS)
        check_fsck(folder, end, HARMLESS - {"retired"})
        assert (bases(data / "a-0"), marks(tier)) == ([20, 30], []), end
        assert {name[:20] for name in objects(tier) if not name.endswith(".tmp")} == {f"{20:020d}"}, end
        if end.promised == ("retired", "swept"):
            assert (data / MARKER).exists()

    return check


def check_fsck(folder, end, harmless=frozenset(HARMLESS)):
    found = fsck(str(folder / "tier"), metadata=folder / "data", remote_metadata_partitions=1, workers=1)
    assert {finding.kind.value for finding in found.findings} <= harmless, (end, found.findings)
    assert found.is_sound, end


@pytest.mark.parametrize("start", LAYOUTS if FACTOR > 1 else ["plain"], indirect=True)
def test_every_operation_can_fail(start, whole, tmp_path):
    assert each_fault(start, job, checker(whole), folder=tmp_path, every=13) > 100


@pytest.mark.parametrize("start", LAYOUTS if FACTOR > 1 else ["chunked"], indirect=True)
def test_whatever_the_disk_forgets(start, whole, tmp_path):
    assert each_crash(start, job, checker(whole), folder=tmp_path, every=3) > 30
