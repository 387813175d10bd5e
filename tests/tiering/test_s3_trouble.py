"""A real S3 server that is slow, silent, full, drops connections or goes away: nothing is lost, nothing hangs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import kseg
from kseg import storage_arrow
from kseg.errors import StorageError
from kseg.storage_retry import RetryPolicy
from kseg.tiering import restore, tier
from tests.faults.kill import killed
from tests.log.written import bases
from tests.reference.rows import records_of
from tests.s3.proxy import Proxy
from tests.scale import FACTOR
from tests.tiering.cluster import make_cluster, rows, run
from tests.tiering.test_s3 import check_moved, sound

LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])
ONE_TRY = RetryPolicy(1)
PATIENT = RetryPolicy(attempts=30, first_pause_s=0.1, longest_pause_s=0.3)


@pytest.fixture(autouse=True)
def _patient_readers(monkeypatch):
    tier._open_tier.cache_clear()
    monkeypatch.setattr(tier, "RetryPolicy", lambda: PATIENT)


@pytest.fixture
def folder(tmp_path):
    return make_cluster(tmp_path / "data", segments=3, per_segment=60)


def check_both_levels(folder, uri, whole):
    assert rows(folder / "a-0", remote=uri) == whole
    committed = [row for row in whole if row.offset % 60 > 54]
    assert rows(folder / "a-0", remote=uri, isolation="read_committed") == committed


@LAYOUTS
def test_a_slow_server(s3, folder, tmp_path, layout):
    s3.bucket("tier")
    whole = rows(folder / "a-0")
    with Proxy(s3.address, delay_s=0.005, bytes_per_second=1e6) as proxy:
        uri = s3.uri("tier", proxy.address)
        assert run(folder, uri, layout=layout, delete_local=True).deleted_segments == 2
        check_both_levels(folder, uri, whole)
        check_moved(uri, folder, [whole], tmp_path, segments=2, active=120)
        assert proxy.connections


@pytest.mark.parametrize("layout", ["plain", "chunked"] if FACTOR > 1 else ["chunked"])
def test_connections_that_break(s3, folder, tmp_path, layout):
    s3.bucket("tier")
    whole = rows(folder / "a-0")
    with Proxy(s3.address, drop_every=3 if FACTOR > 1 else 8) as proxy:
        uri = s3.uri("tier", proxy.address)
        assert run(folder, uri, layout=layout, delete_local=True, retry=PATIENT).deleted_segments == 2
        check_both_levels(folder, uri, whole)
        check_moved(uri, folder, [whole], tmp_path, segments=2, active=120, retry=PATIENT)
        assert proxy.dropped


def test_a_silent_server_is_an_error_after_a_while(s3, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(storage_arrow, "SILENCE_S", 1.0)
    monkeypatch.setattr(tier, "RetryPolicy", lambda: ONE_TRY)
    uri = s3.bucket("tier")
    whole = rows(folder / "a-0")
    log = kseg.open_log(folder / "a-0")
    s3.freeze()
    began = time.monotonic()
    report = run(folder, uri, delete_local=True, retry=ONE_TRY)
    assert "Timeout" in (report.partitions[0].error or str(report.refusals))
    assert time.monotonic() - began < 60
    assert bases(folder / "a-0") == [0, 60, 120]
    s3.thaw()
    assert run(folder, uri, delete_local=True).deleted_segments == 2
    s3.freeze()
    with pytest.raises(StorageError, match="Timeout"):
        rows(folder / "a-0", remote=uri)
    assert time.monotonic() - began < 90
    s3.thaw()
    assert log.end_offset == 180
    check_moved(uri, folder, [whole], tmp_path, segments=2, active=120)


@LAYOUTS
def test_a_full_disk_of_the_server(s3, folder, tmp_path, layout):
    uri = s3.bucket("tier")
    whole = rows(folder / "a-0")
    size = (folder / "a-0" / f"{0:020d}.log").stat().st_size
    s3.limit_files(400 if layout == "chunked" else size // 2)
    report = run(folder, uri, layout=layout, delete_local=True, compression=False, retry=RetryPolicy(2, 0.0))
    assert report.partitions[0].error
    assert (report.segments, report.deleted_segments) == (0, 0)
    assert bases(folder / "a-0") == [0, 60, 120]
    s3.limit_files(None)
    assert sound(uri, folder).is_sound
    assert run(folder, uri, layout=layout, delete_local=True, compression=False).deleted_segments == 2
    check_moved(uri, folder, [whole], tmp_path, segments=2, active=120)


def _back_soon(s3):
    """Kill the server; it is back in a moment."""
    s3.kill()
    timer = threading.Timer(0.3, s3.start)
    timer.start()
    return timer


@LAYOUTS
def test_readers_and_restore_get_over_a_server_that_comes_back(s3, folder, tmp_path, layout):
    uri = s3.bucket("tier")
    whole = rows(folder / "a-0")
    run(folder, uri, layout=layout, delete_local=True)
    batches = kseg.open_log(folder / "a-0", remote=uri).read(batch_bytes=1)
    first = next(batches)
    timer = _back_soon(s3)
    assert records_of([first, *batches]) == whole
    timer.join()
    timer = _back_soon(s3)
    restore(uri, tmp_path / "new", metadata=folder, retry=PATIENT)
    timer.join()
    assert rows(tmp_path / "new" / "a-0") == [row for row in whole if row.offset < 120]


def offload_there(folder: Path, promise) -> None:
    """For a process of its own that is killed: the tier's URI is in a file."""
    uri, layout = (folder / "where").read_text().split("\n")
    run(folder / "data", uri, layout=layout, delete_local=True, workers=1)
    promise("moved")


@pytest.mark.parametrize(
    ("layout", "number"),
    [(layout, number) for layout in ("plain", "chunked") for number in range(10, 120, 12)]
    if FACTOR > 1
    else [("plain", 25), ("chunked", 60)],
)
def test_kseg_is_killed(s3, tmp_path, layout, number):
    folder = make_cluster(tmp_path / "data", segments=3)
    uri = s3.bucket("tier")
    whole = rows(folder / "a-0")
    (tmp_path / "where").write_text(f"{uri}\n{layout}")
    killed("tests.tiering.test_s3_trouble", "offload_there", tmp_path, number)
    assert rows(folder / "a-0", remote=uri) == whole
    report = run(folder, uri, layout=layout, delete_local=True)
    assert not [found.error for found in report.partitions if found.error]
    check_moved(uri, folder, [whole], tmp_path, segments=2, active=20)
