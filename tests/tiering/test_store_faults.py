"""Every call to the tier's store in turn fails: nothing is lost, a second run finishes, a reader never lies."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import fsspec
import pytest

from kseg.errors import KsegError, StorageError
from kseg.storage_retry import RetryPolicy
from kseg.tiering import fsck, restore, tier
from tests.faults.store import at, down_from, failing
from tests.log.written import bases
from tests.scale import FACTOR
from tests.tiering.cluster import make_cluster, rows, run

LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])
TWICE = RetryPolicy(2, first_pause_s=0.0)
FAULTS = ("down", "denied", "answer", "once")
STEPS = {"down": 1} if FACTOR > 1 else {"down": 3, "denied": 7, "answer": 7, "once": 7}
ALL_PLACES = [(kind, layout) for kind in ("local", "memory") for layout in ("plain", "chunked")]
S3_STEPS = {} if FACTOR > 1 else {"down": 5, "denied": 11, "answer": 7, "once": 11}
PLACES = pytest.mark.parametrize(("kind", "layout"), ALL_PLACES if FACTOR > 1 else [ALL_PLACES[0], ALL_PLACES[3]])


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(tier, "RetryPolicy", lambda: TWICE)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return make_cluster(tmp_path_factory.mktemp("start"), segments=3)


@pytest.fixture(scope="module")
def whole(start):
    return rows(start / "a-0")


_numbers = itertools.count()


class Place:
    """A cluster and a tier of its own for each fault; `root` is how the store names the tier."""

    def __init__(self, kind, start, folder, server=None):
        self.data = folder / f"data-{next(_numbers)}"
        shutil.copytree(start, self.data)
        if kind == "local":
            self.uri = self.root = str(folder / f"tier-{self.data.name}")
        elif kind == "s3":
            self.uri, self.root = server.bucket(self.data.name), self.data.name
        else:
            self.uri, self.root = f"memory://{self.data.name}", f"/{self.data.name}"
        self._kind = kind

    def copy(self, server=None):
        """The same cluster and tier once more; on S3 by the server's own files."""
        twin = Place(self._kind, self.data, self.data.parent, server)
        shutil.copytree(self._files(server), twin._files(server), dirs_exist_ok=True)
        return twin

    def _files(self, server):
        return Path(self.root) if server is None else server.folder / self.root

    def close(self):
        shutil.rmtree(self.data)
        shutil.rmtree(self.data.with_name(self.data.name + "-back"), ignore_errors=True)
        if self._kind == "local":
            shutil.rmtree(self.root, ignore_errors=True)
        elif self._kind == "memory":
            fsspec.filesystem("memory").rm(self.root, recursive=True)

    def move(self, layout):
        return run(self.data, self.uri, layout=layout, delete_local=True, workers=1, retry=TWICE)

    def check(self, whole):
        """Every record is local, or comes back from the tier."""
        first = bases(self.data / "a-0")[0]
        assert rows(self.data / "a-0") == [row for row in whole if row.offset >= first]
        if first:
            back = self.data.with_name(self.data.name + "-back")
            restore(self.uri, back, metadata=self.data, retry=TWICE)
            found = [row for row in rows(back / "a-0") if row.offset < first]
            assert found == [row for row in whole if row.offset < first]
            shutil.rmtree(back)

    def check_moved(self, whole):
        assert bases(self.data / "a-0") == [20]
        found = fsck(self.uri, metadata=self.data, remote_metadata_partitions=1, deep=True, retry=TWICE)
        assert found.segments == 2
        assert [finding for finding in found.findings if not finding.keys[0].startswith(".kseg-clock-")] == []
        self.check(whole)


def each_call(make, job, check, steps=STEPS):
    """Run a job once for each call and fault; `check(place, fault, error)` judges. Return how many faults were met."""
    done = 0
    for fault in FAULTS:
        for number in itertools.count(1, steps.get(fault, 1)):
            place = make()
            decide = down_from(number) if fault == "down" else at(number, fault)
            error = None
            with failing(decide, place.root) as faults:
                try:
                    job(place)
                except KsegError as raised:
                    error = raised
            try:
                if not faults.failed:
                    break
                check(place, fault, error)
            except BaseException as problem:
                problem.add_note(f"{fault} at call {number}: {error}")
                raise
            finally:
                place.close()
            done += 1
    return done


@PLACES
def test_offload_and_delete(start, whole, tmp_path, kind, layout):
    reports = []

    def job(place):
        reports.clear()
        reports.append(place.move(layout))

    def check(place, fault, error):
        place.check(whole)
        if fault == "once":
            assert error is None
            assert reports[0].deleted_segments == 2
        elif fault != "answer":
            assert error is not None or reports[0].refusals or reports[0].partitions[0].error
        report = place.move(layout)
        assert not [found.error for found in report.partitions if found.error]
        place.check_moved(whole)

    assert each_call(lambda: Place(kind, start, tmp_path), job, check) > 10


def try_restore(make, whole, steps=STEPS):
    def job(place):
        report = restore(place.uri, place.data, topics=["a"], metadata=place.data, retry=TWICE, workers=1)
        assert report.segments in (0, 2)
        if report.partitions[0].error:
            raise KsegError(report.partitions[0].error)

    def check(place, fault, error):
        assert (error is None) == (fault in ("once", "answer"))
        place.check(whole)
        job(place)
        assert bases(place.data / "a-0") == [0, 10, 20]
        assert rows(place.data / "a-0") == whole

    return each_call(make, job, check, steps)


@PLACES
def test_restore(start, whole, tmp_path, kind, layout):
    def make():
        place = Place(kind, start, tmp_path)
        place.move(layout)
        return place

    assert try_restore(make, whole) > 10


@LAYOUTS
def test_restore_from_s3(start, whole, tmp_path, layout, s3):
    moved = Place("s3", start, tmp_path, s3)
    moved.move(layout)
    assert try_restore(lambda: moved.copy(s3), whole, S3_STEPS) > 4


@PLACES
def test_reading(start, whole, tmp_path, kind, layout):
    place = Place(kind, start, tmp_path)
    place.move(layout)
    found = []

    def job(place):
        tier._open_tier.cache_clear()
        found[:] = rows(place.data / "a-0", remote=place.uri)

    def check(_, fault, error):
        if fault in ("once", "answer"):
            assert error is None
            assert found == whole
        else:
            assert isinstance(error, StorageError)
            assert "ACCESS_DENIED" in str(error) if fault == "denied" else "(tried 2 times" in str(error)

    place.close, close = lambda: None, place.close
    try:
        assert each_call(lambda: place, job, check, steps={}) > 30
    finally:
        close()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@LAYOUTS
def test_offload_and_delete_on_s3(start, whole, tmp_path, layout, s3):
    def check(place, fault, error):
        place.check(whole)
        assert error is None or fault in ("down", "denied")
        place.move(layout)
        place.check_moved(whole)

    assert each_call(lambda: Place("s3", start, tmp_path, s3), lambda place: place.move(layout), check) > 30


def try_fsck(make, whole, steps=STEPS):
    reports = []

    def job(place):
        reports.clear()
        options = {"metadata": place.data, "remote_metadata_partitions": 1, "delete_orphans": True, "retry": TWICE}
        reports.append(fsck(place.uri, **options))

    def check(place, fault, error):
        if fault in ("once", "answer"):
            assert sum(finding.deleted for finding in reports[0].findings) == 2
        else:
            assert error is not None or not reports[0].is_sound
        place.check(whole)
        fsck(place.uri, metadata=place.data, remote_metadata_partitions=1, delete_orphans=True, retry=TWICE)
        place.check_moved(whole)

    return each_call(make, job, check, steps)


@LAYOUTS
def test_fsck_deletes_orphans_and_nothing_else(start, whole, tmp_path, layout):
    """What a run that died has left of an orphan is an orphan still, in either layout."""

    moved, twin = Place("local", start, tmp_path), Place("local", start, tmp_path)
    moved.move(layout)
    run(twin.data, twin.uri, layout=layout, archive=True, retry=TWICE)
    for path in Path(twin.root).rglob("*.*"):
        os.utime(path, (1, 1))
    shutil.copytree(twin.root, moved.root, dirs_exist_ok=True)
    assert try_fsck(moved.copy, whole) > 10


@LAYOUTS
def test_fsck_deletes_orphans_and_nothing_else_on_s3(start, whole, tmp_path, layout, s3):
    moved, twin = Place("s3", start, tmp_path, s3), Place("s3", start, tmp_path, s3)
    moved.move(layout)
    run(twin.data, twin.uri, layout=layout, archive=True, retry=TWICE)
    orphans = s3.folder / twin.root
    for path in orphans.rglob("*.*"):
        os.utime(path, (1, 1))
    shutil.copytree(orphans, s3.folder / moved.root, dirs_exist_ok=True)
    assert try_fsck(lambda: moved.copy(s3), whole, S3_STEPS) > 4
