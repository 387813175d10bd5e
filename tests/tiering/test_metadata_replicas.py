"""A run that dies between two replicas of the metadata topic is completed by the next one, if it was a run's own."""

from __future__ import annotations

import os
import shutil

import pytest

import kseg
from kseg.compaction.remote import RemoteOptions
from kseg.errors import StorageError
from kseg.settings import replicas as stopped_replicas
from kseg.tiering.metadata_records import DELETE_FINISHED, read_segment_records
from tests.faults.disk import each_fault
from tests.log.written import START, bases
from tests.tiering.cluster import ENABLED, METADATA, NOW, QUICK, make_cluster, rows, run

PLACES = ("data", "other", "third")


@pytest.fixture
def folder(tmp_path):
    return three_brokers(tmp_path)


def three_brokers(folder):
    make_cluster(folder / "data", segments=3)
    for name in PLACES[1:]:
        (folder / name).mkdir()
        shutil.copytree(folder / "data" / f"{METADATA}-0", folder / name / f"{METADATA}-0")
    return folder


def move(folder, **options):
    places = [folder / name for name in PLACES]
    given = {"remote_metadata": places, "delete_local": True, "workers": 1, **options}
    return run(folder / "data", folder / "tier", **given)


def replicas(folder):
    return [
        b"".join(path.read_bytes() for path in sorted((folder / name / f"{METADATA}-0").glob("*.log")))
        for name in PLACES
    ]


def failing(patch, number, error):
    """Let the append to a replica of a number, from 1, fail."""
    append_to, count = stopped_replicas.append_to, 0

    def counted(*args, **options):
        nonlocal count
        count += 1
        if count == number:
            raise error
        return append_to(*args, **options)

    patch.setattr(stopped_replicas, "append_to", counted)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageError("the disk failed")])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_what_is_missing_is_appended(folder, monkeypatch, number, error):
    whole = rows(folder / "data" / "a-0")
    expected = three_brokers(folder / "undisturbed")
    with monkeypatch.context() as patch:
        failing(patch, number, error)
        if isinstance(error, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                move(folder)
        else:
            assert move(folder).partitions[0].error
    assert bases(folder / "data" / "a-0") == [0, 10, 20]  # nothing goes before all replicas know of its copy
    before = replicas(folder)
    assert (len(set(before)) == 1) == (number in (1, 4))
    report = move(folder)
    assert not report.refusals
    assert not report.partitions[0].error
    assert bases(folder / "data" / "a-0") == [20]
    after = replicas(folder)
    assert len(set(after)) == 1
    assert after[0].startswith(max(before, key=len))
    move(expected)
    assert len(after[0]) == len(replicas(expected)[0])
    assert rows(folder / "data" / "a-0", remote=str(folder / "tier")) == whole
    assert not (folder / "data" / "a-0" / ".kseg").exists()


def test_the_next_append_of_a_run_completes_what_one_has_left(tmp_path, monkeypatch):
    """Records of another partition behind a hole would make replicas of one length that are not alike."""
    make_cluster(tmp_path / "data", segments=3, partitions=2)
    (tmp_path / "other").mkdir()
    shutil.copytree(tmp_path / "data" / f"{METADATA}-0", tmp_path / "other" / f"{METADATA}-0")
    given = {"remote_metadata": [tmp_path / "data", tmp_path / "other"], "workers": 1}
    with monkeypatch.context() as patch:
        failing(patch, 2, StorageError("the disk failed"))
        report = run(tmp_path / "data", tmp_path / "tier", **given)
    assert "the disk failed" in report.partitions[0].error
    assert report.partitions[1].error is None
    report = run(tmp_path / "data", tmp_path / "tier", **given)
    assert report.segments == 2
    logs = [(tmp_path / name / f"{METADATA}-0" / f"{0:020d}.log").read_bytes() for name in PLACES[:2]]
    assert logs[0] == logs[1]


def expire(folder):
    """Retention of the tier: what goes is told to all replicas, and swept at once."""
    return kseg.tiering.retain(
        str(folder / "tier"),
        folder / "data",
        topics=["a"],
        settings={**ENABLED, "cleanup.policy": "delete", "retention.ms": NOW - START - 15},
        remote_metadata=[folder / name for name in PLACES],
        remote_metadata_partitions=1,
        grace_ms=0,
        now_ms=NOW,
        workers=1,
    )


def erase(folder):
    options = RemoteOptions(
        remote_metadata=[folder / name for name in PLACES], remote_metadata_partitions=1, grace_ms=0, retry=QUICK
    )
    return kseg.compaction.erase(
        folder / "data", topics=["a"], keys=[b"k11"], remote=str(folder / "tier"), remote_options=options, workers=1
    )


@pytest.mark.parametrize("job", [expire, erase])
def test_other_jobs_are_completed_too(tmp_path, monkeypatch, job):
    """Between any two replicas: the next run leaves what an undisturbed one leaves."""
    start = three_brokers(tmp_path / "start")
    move(start)
    counted = []
    append_to = stopped_replicas.append_to
    with monkeypatch.context() as patch:
        patch.setattr(stopped_replicas, "append_to", lambda *args, **o: counted.append(1) or append_to(*args, **o))
        expected = tmp_path / "expected"
        shutil.copytree(start, expected)
        job(expected)
    unequal = 0
    for number in (n for n in range(1, len(counted) + 1) if n % len(PLACES) != 1):
        folder = tmp_path / str(number)
        shutil.copytree(start, folder)
        with monkeypatch.context() as patch:
            failing(patch, number, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                job(folder)
        unequal += len(set(replicas(folder))) > 1
        report = job(folder)
        assert not report.refusals
        after = replicas(folder)
        assert len(set(after)) == 1
        assert not list(folder.rglob(".kseg"))
        assert states(folder) == states(expected)
        assert rows(folder / "data" / "a-0", remote=str(folder / "tier")) == rows(
            expected / "data" / "a-0", remote=str(expected / "tier")
        )
    assert unequal >= 4  # at DELETE_SEGMENT_STARTED and at DELETE_SEGMENT_FINISHED, in the second and in the third


def states(folder):
    """How many segments are in which state, by offset; ids are drawn at random."""
    found = read_segment_records(kseg.open_log(folder / "third" / f"{METADATA}-0")).values()
    return sorted((record.start_offset, record.state) for record in found if record.state != DELETE_FINISHED)


@pytest.mark.parametrize("change", ["stranger", "no journal", "another prefix"])
def test_what_is_not_its_own_is_refused_as_before(folder, monkeypatch, change):
    with monkeypatch.context() as patch:
        failing(patch, 2, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            move(folder)
    if change == "no journal":
        shutil.rmtree(folder / "data" / f"{METADATA}-0" / ".kseg")
    else:
        place = "data" if change == "stranger" else "third"
        with kseg.append_to(folder / place / f"{METADATA}-0") as writer:
            writer.append(list(kseg.open_log(folder / "data" / "a-0").read(0, 1, columns=["value"])))
    before = replicas(folder)
    report = move(folder)
    assert "differ" in str(report.refusals[0])
    assert replicas(folder) == before
    assert bases(folder / "data" / "a-0") == [0, 10, 20]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_operation_can_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disk of this test decides what is durable
    start = three_brokers(tmp_path / "start")
    whole = rows(start / "data" / "a-0")

    def job(folder, _):
        move(folder)

    def check(folder, _):
        move(folder)
        assert bases(folder / "data" / "a-0") == [20]
        assert len(set(replicas(folder))) == 1
        assert rows(folder / "data" / "a-0", remote=str(folder / "tier")) == whole

    assert each_fault(start, job, check, folder=tmp_path, every=5) > 100
