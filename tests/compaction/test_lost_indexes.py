"""Logs whose indexes are gone, as in a copy of the `.log` files alone: a broker rebuilds them when it starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import CleanerConfig, compact, erase, repack
from kseg.log.names import CLEAN_SHUTDOWN_FILE
from tests.scale import counts

KEY = b"k7"
NOW_MS = 1_800_000_000_000
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


def values(keys: list[str]) -> pa.Table:
    return pa.table({"key": keys, "value": ["v"] * len(keys), "timestamp": [NOW_MS - 1000] * len(keys)})


@pytest.mark.parametrize("lost", [False, True])
def test_one_lost_index_overruled_the_sound_transaction_indexes_of_other_segments(oracle, tmp_path, lost):
    """The batches tell of an abort that no index lists; of segments that are not rebuilt a broker asks the index."""
    directory = tmp_path / "data" / "t-0"
    with kseg.create_log(directory, clock=lambda: NOW_MS / 1000) as writer:
        writer.append(values(["a", "b"]), producer_id=3, transactional=True)
        writer.roll()
        writer.append_marker(3, commit=False)
        writer.append(values(["c", "z"]), batch_records=1)
        for keys in (["c", "d"], ["c", "d", "e"], ["f", "c"]):
            writer.roll()
            writer.append(values(keys))
    for path in (*directory.glob("*.txnindex"), *directory.glob("*.snapshot")):
        path.unlink()
    for kind, offset in (("log-start", 2), ("recovery-point", 12)):
        (directory.parent / f"{kind}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    if lost:
        (directory / f"{5:020d}.index").unlink()
    kafkas = shutil.copytree(directory, tmp_path / "kafkas" / "t-0")
    oracle.clean(kafkas, 3, NOW_MS, logStart=2, recoveryPoint=12, **{"delete.retention.ms": 1000})
    config = CleanerConfig(delete_retention_ms=1000)
    (done,) = compact(directory, config=config, first_dirty=3, now_ms=NOW_MS).partitions
    assert (done.error, done.skipped) == (None, None)
    assert oracle.dump(directory) == oracle.dump(kafkas)
