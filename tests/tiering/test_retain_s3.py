"""Retention of a tier on a real S3 server, whose calls fail and which dies."""

from __future__ import annotations

import itertools

import pytest

import kseg
from kseg.tiering import fsck, retain
from kseg.tiering import objects as tier_objects
from kseg.tiering.objects import RetryPolicy
from tests.faults.store import every, failing
from tests.log.written import START, bases
from tests.reference.rows import records_of
from tests.scale import FACTOR
from tests.tiering.cluster import NOW, QUICK, make_cluster, run

LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])


@pytest.fixture
def folder(tmp_path):
    return make_cluster(tmp_path / "data")


def expire(uri, folder, **options):
    """Retire what is at 0 and 10."""
    settings = {"remote.storage.enable": True, "cleanup.policy": "delete", "retention.ms": NOW - START - 20}
    settings |= {"local.retention.ms": -1}
    given = {"topics": ["a"], "settings": settings, "remote_metadata_partitions": 1, "now_ms": NOW, "retry": QUICK}
    return retain(uri, folder, **{**given, **options})


def check_expired(uri, folder, whole):
    log = kseg.open_log(folder / "a-0", remote=uri)
    assert (log.start_offset, records_of(log.read())) == (20, [row for row in whole if row.offset >= 20])
    report = fsck(uri, metadata=folder, remote_metadata_partitions=1, deep=True, retry=QUICK)
    assert (report.segments, report.findings) == (1, ())


@LAYOUTS
def test_objects_go_after_the_grace_period(s3, folder, layout):
    uri = s3.bucket("tier").replace("?", "/some/prefix/?")
    run(folder, uri, layout=layout, delete_local=True)
    whole = records_of(kseg.open_log(folder / "a-0", remote=uri).read())
    report = expire(uri, folder)
    assert (report.remote_segments, report.waiting_segments, report.refusals) == (2, 2, ())
    assert kseg.open_dir(uri)["a", 0].start_offset == 20
    assert expire(uri, folder, grace_ms=0).swept_segments == 2
    check_expired(uri, folder, whole)
    assert "kseg-test-only" not in str(report.to_dict())  # the secret


def test_a_bucket_alone_by_the_store_s_clock(s3, folder):
    uri = s3.bucket("tier")
    run(folder, uri, layout="chunked", archive=True)
    settings = {"cleanup.policy": "delete", "retention.ms": NOW - START - 20}
    given = {"archive": True, "topics": ["a"], "settings": settings, "now_ms": NOW, "retry": QUICK}
    assert retain(uri, **given).waiting_segments == 2
    assert retain(uri, grace_ms=3_600_000, **given).swept_segments == 0
    assert retain(uri, grace_ms=0, **given).swept_segments == 2
    assert fsck(uri, retry=QUICK).findings == ()


def test_one_call_in_five_fails(s3, folder):
    uri = s3.bucket("tier")
    run(folder, uri, layout="chunked", delete_local=True)
    whole = records_of(kseg.open_log(folder / "a-0", remote=uri).read())
    with failing(every(5), "tier") as faults:
        report = expire(uri, folder, grace_ms=0)
    assert faults.failed >= 5
    assert (report.partitions[0].error, report.swept_segments) == (None, 2)
    check_expired(uri, folder, whole)


@pytest.mark.parametrize("after", [1, 3, 5, 7] if FACTOR > 1 else [3])
def test_the_server_dies_while_objects_are_deleted(s3, folder, monkeypatch, after):
    """Only once in a usual run: pyarrow tries for six seconds to connect to a server that is not there."""
    uri = s3.bucket("tier")
    run(folder, uri, layout="chunked", delete_local=True)
    whole = records_of(kseg.open_log(folder / "a-0", remote=uri).read())
    delete, count = tier_objects.TierObjects._delete_once, itertools.count(1)

    def delete_and_die(self, key):
        if next(count) == after:
            s3.kill()
        return delete(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(tier_objects.TierObjects, "_delete_once", delete_and_die)
        report = expire(uri, folder, grace_ms=0, retry=RetryPolicy(1))
    assert report.partitions[0].error
    assert bases(folder / "a-0") == [30]
    s3.start()
    found = fsck(uri, metadata=folder, remote_metadata_partitions=1, deep=True, retry=QUICK)
    assert found.is_sound
    assert {finding.kind.value for finding in found.findings} <= {"retired", "stranger"}  # the clock's object
    log = kseg.open_log(folder / "a-0", remote=uri)
    assert records_of(log.read()) == [row for row in whole if row.offset >= 20]
    assert expire(uri, folder, grace_ms=0).partitions[0].error is None
    report = fsck(uri, metadata=folder, remote_metadata_partitions=1, retry=QUICK)
    assert (report.segments, {finding.kind.value for finding in report.findings} - {"stranger"}) == (1, set())
