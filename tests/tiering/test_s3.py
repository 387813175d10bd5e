"""The jobs of tiering against a real S3 server, which is killed, and whose calls fail."""

from __future__ import annotations

import pytest

import kseg
from kseg.compaction import RemoteOptions, compact, erase
from kseg.tiering import fsck, restore, tier
from kseg.tiering import objects as tier_objects
from kseg.tiering.objects import RetryPolicy
from tests.faults.store import every, failing
from tests.log.written import bases
from tests.reference.rows import records_of
from tests.tiering.cluster import QUICK, make_cluster, rows, run

LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])


@pytest.fixture
def folder(tmp_path):
    return make_cluster(tmp_path / "data", per_segment=60, partitions=2)


def sound(uri, folder, *, retry=QUICK, **options):
    return fsck(uri, metadata=folder, remote_metadata_partitions=1, deep=True, retry=retry, **options)


def check_moved(uri, folder, whole, tmp_path, *, segments=6, active=180, retry=QUICK):
    """Everything sealed is in the bucket alone, and comes back."""
    report = sound(uri, folder, retry=retry)
    assert (report.segments, report.findings) == (segments, ())
    for partition, expected in enumerate(whole):
        assert bases(folder / f"a-{partition}") == [active]
        restore(uri, tmp_path / "new", metadata=folder, partition=partition, retry=retry)
        assert rows(tmp_path / "new" / f"a-{partition}") == [row for row in expected if row.offset < active]


@LAYOUTS
def test_there_and_back(s3, folder, tmp_path, layout):
    uri = s3.bucket("tier").replace("?", "/some/prefix/?")
    whole = [rows(folder / f"a-{partition}") for partition in range(2)]
    report = run(folder, uri, layout=layout, delete_local=True)
    assert report.refusals == ()
    assert (report.segments, report.deleted_segments) == (6, 6)
    check_moved(uri, folder, whole, tmp_path)
    assert "kseg-test-only" not in str(report.to_dict())  # the secret


@LAYOUTS
def test_one_call_in_five_fails(s3, folder, tmp_path, layout, monkeypatch):
    """Offload, fsck, restore and reading get over it."""
    uri = s3.bucket("tier")
    whole = [rows(folder / f"a-{partition}") for partition in range(2)]
    patient = RetryPolicy(first_pause_s=0.0, attempts=10)  # calls of other threads may take the good turns
    monkeypatch.setattr(tier, "RetryPolicy", lambda: patient)
    with failing(every(5), "tier") as faults:
        report = run(folder, uri, layout=layout, delete_local=True, retry=patient)
        assert report.deleted_segments == 6
        assert faults.failed > 10
        check_moved(uri, folder, whole, tmp_path, retry=patient)
        for partition, expected in enumerate(whole):
            assert rows(folder / f"a-{partition}", remote=uri) == expected
            committed = {"isolation": "read_committed"}
            assert rows(folder / f"a-{partition}", remote=uri, **committed) == [
                r for r in expected if r.offset % 60 > 54
            ]
    assert faults.failed > 30


@pytest.mark.parametrize(("layout", "after"), [("plain", 2), ("plain", 9), ("chunked", 1), ("chunked", 4)])
def test_a_server_that_dies_in_the_middle(s3, tmp_path, layout, after, monkeypatch):
    """Nothing local goes; the next run, once the server is back, finishes under the same ids.

    The log is small: pyarrow tries for six seconds to connect to a server that is not there.
    """
    folder = make_cluster(tmp_path / "data", segments=3)
    uri = s3.bucket("tier")
    whole = rows(folder / "a-0")
    put, count = tier_objects.TierObjects._put_once, 0

    def put_and_die(self, key, pieces):
        nonlocal count
        count += 1
        if count == after:
            s3.kill()
        return put(self, key, pieces)

    with monkeypatch.context() as patch:
        patch.setattr(tier_objects.TierObjects, "_put_once", put_and_die)
        report = run(folder, uri, layout=layout, delete_local=True, workers=1, retry=RetryPolicy(1))
    assert report.partitions[0].error
    proved = {segment.base_offset for segment in report.partitions[0].segments if segment.verified}
    assert {0, 10} - set(bases(folder / "a-0")) <= proved
    s3.start()
    assert sound(uri, folder).is_sound
    begun = {finding.segment_id for finding in sound(uri, folder).findings}
    report = run(folder, uri, layout=layout, delete_local=True)
    assert not [partition.error for partition in report.partitions if partition.error]
    done = {segment.segment_id for partition in report.partitions for segment in partition.segments}
    assert begun <= done
    check_moved(uri, folder, [whole], tmp_path, segments=2, active=20)


@LAYOUTS
def test_erasure_of_a_cluster_and_compaction_of_an_archive(s3, folder, layout):
    uri = s3.bucket("tier").replace("?", "/some/prefix/?")
    whole = [rows(folder / f"a-{partition}") for partition in range(2)]
    run(folder, uri, layout=layout, delete_local=True)
    options = RemoteOptions(remote_metadata_partitions=1, retry=QUICK)
    report = erase(folder, remote=uri, keys=[b"k1", b"k61"], topics=["a"], remote_options=options)
    assert (report.failed, report.refusals, report.left, report.records) == ((), (), 0, 4)
    assert len(report.lingering) == 4
    assert "kseg-test-only" not in str(report.to_dict())  # the secret
    for partition, expected in enumerate(whole):
        log = kseg.open_log(folder / f"a-{partition}", remote=uri)
        assert records_of(log.read()) == [row for row in expected if row.key not in (b"k1", b"k61")]
    now = RemoteOptions(remote_metadata_partitions=1, retry=QUICK, grace_ms=0)
    assert erase(folder, remote=uri, keys=[b"k1", b"k61"], topics=["a"], remote_options=now).is_proof
    assert (sound(uri, folder).segments, sound(uri, folder).findings) == (6, ())

    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
    archive = {"archive": True, "topics": ["a"], "settings": settings, "remote_options": now}
    done = compact(uri, **archive)
    assert [p.error or p.skipped for p in done.partitions] == [None, None]
    assert [len(p.retired) for p in done.partitions] == [2, 2]
    found = fsck(uri, deep=True, retry=QUICK)
    assert (found.segments, found.findings) == (4, ())
    assert all("nothing to clean" in p.skipped for p in compact(uri, **archive).partitions)
