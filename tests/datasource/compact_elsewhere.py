"""Compact on executors in JVMs of their own: `python -m tests.datasource.compact_elsewhere FOLDER LOG STRATEGY ...`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kseg.compaction import CleanerConfig, compact
from tests.datasource.spark_session import start_session

NOW = 1_800_000_000_000
MASTER = "local-cluster[2,1,1024]"


def config(strategy: str | None = None) -> CleanerConfig:
    """The settings of the test."""
    return CleanerConfig(
        cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_bytes=64 << 10, strategy=strategy
    )


def main(folder: str, *pairs: str) -> None:
    """Compact each log with its strategy, and leave the errors in `results.json`."""
    spark = start_session(Path(folder), master=MASTER)
    errors = []
    for path, strategy in zip(pairs[::2], pairs[1::2], strict=True):
        (done,) = compact(path, config=config(strategy), now_ms=NOW, spark=spark).partitions
        errors.append([done.error, done.skipped, done.strategy])
    spark.stop()
    Path(folder, "results.json").write_text(json.dumps(errors), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
