"""Compaction on Spark gives the files that it gives in process, byte for byte, with either strategy."""

from __future__ import annotations

import shutil

import pytest

from kseg.compaction import compact
from tests.compaction.rounds import GrowingLog, Setup
from tests.scale import counts


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize("seed", range(counts(10)))
def test_spark_and_threads_write_the_same_files(spark, oracle, tmp_path, seed):
    setup = Setup(seed)
    log = GrowingLog(oracle, tmp_path, setup)
    for step in log.steps():
        copies = {}
        for strategy in ("memory", "spill"):
            copies[strategy] = tmp_path / f"{strategy}-{step.number}" / "t-0"
            shutil.copytree(log.ours, copies[strategy])
            config = setup.config(step.number, strategy=strategy)
            report = compact(
                copies[strategy], config=config, now_ms=step.now_ms, first_dirty=step.first_dirty, spark=spark
            )
            assert not report.failed
        report = compact(log.ours, config=setup.config(step.number), now_ms=step.now_ms, first_dirty=step.first_dirty)
        expected = files_of(log.ours)
        assert files_of(copies["memory"]) == expected
        assert files_of(copies["spill"]) == expected
        log.first_dirty = max(log.first_dirty, report.partitions[0].checkpoint)
