"""Jobs on executors in JVMs of their own: `python -m tests.datasource.compact_elsewhere FOLDER LOG JOB ...`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kseg.compaction import CleanerConfig, compact, erase, repack
from tests.datasource.spark_session import start_session

NOW = 1_800_000_000_000
MASTER = "local-cluster[2,1,1024]"


def config(strategy: str | None = None) -> CleanerConfig:
    """The settings of the test."""
    return CleanerConfig(
        cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_bytes=64 << 10, strategy=strategy
    )


def run(job: str, path: str, spark: Any = None) -> bool:
    """Do a job, of which a strategy is one, to a log; tell whether something failed."""
    if job == "erase":
        return bool(erase(path, keys=[b"k1", b"k2", b"k3"], spark=spark).failed)
    if job == "repack":
        (packed,) = repack(path, codec="lz4", segment_bytes=16 << 10, spark=spark).partitions
        return packed.error is not None
    (done,) = compact(path, config=config(job), now_ms=NOW, spark=spark).partitions
    return done.error is not None or done.skipped is not None or done.strategy != job


def main(folder: str, *pairs: str) -> None:
    """Do each log's job, and leave in `results.json` which of them failed."""
    spark = start_session(Path(folder), master=MASTER)
    failed = [run(job, path, spark) for path, job in zip(pairs[::2], pairs[1::2], strict=True)]
    spark.stop()
    Path(folder, "results.json").write_text(json.dumps(failed), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
