"""Logs whose indexes are gone, as in a copy of the `.log` files alone: a broker rebuilds them when it starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kseg
from kseg.compaction import erase, repack
from kseg.log.names import CLEAN_SHUTDOWN_FILE
from tests.scale import counts

KEY = b"k7"
LOST = (("index", "timeindex", "txnindex"), ("index", "timeindex", "txnindex", "snapshot"))
JOBS = {
    "repack": lambda directory: repack(directory, codec="zstd"),
    "repack into several": lambda directory: repack(directory, codec="none", segment_bytes=4096),
    "erase": lambda directory: erase(directory, keys=[KEY]),
}


def committed(directory: Path) -> list[tuple[int, bytes | None]]:
    """What a consumer with read_committed sees, without the records that are erased."""
    batches = kseg.open_log(directory).read(isolation="read_committed", columns=["offset", "key"])
    rows = [(row["offset"], row["key"]) for batch in batches for row in batch.to_pylist()]
    return [row for row in rows if row[1] != KEY]


def loaded(oracle, directory: Path, home: Path) -> list[tuple[int, bytes | None]]:
    """The same behind a broker that starts after a clean shutdown, in a copy."""
    copy = shutil.copytree(directory, home / "t-0")
    oracle.load(copy, clean=True, recoveryPoint=10**9, lat=1)
    return committed(copy)


@pytest.mark.parametrize("lost", LOST, ids=["indexes", "indexes and snapshots"])
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("seed", range(counts(2)))
def test_aborted_records_came_back_where_a_segment_without_indexes_was_written_anew(oracle, tmp_path, seed, job, lost):
    directory = tmp_path / "data" / "t-0"
    oracle.gen(directory, seed, 150, txn=0.9, lat=1, keys=20, roll=0.1)
    (directory.parent / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":7}')
    for path in [path for kind in lost for path in directory.glob(f"*.{kind}")]:
        path.unlink()
    truth = loaded(oracle, directory, tmp_path / "before")
    log = kseg.open_log(directory)
    assert log.aborted_transactions(0, log.end_offset)
    report = JOBS[job](directory)
    done = report.places if job == "erase" else report.partitions
    assert [place.error for place in done] == [None]
    assert (directory.parent / CLEAN_SHUTDOWN_FILE).exists()
    assert committed(directory) == truth
    assert loaded(oracle, directory, tmp_path / "after") == truth
    assert [found for found in kseg.verify(directory).findings if found.severity == "damage"] == []
