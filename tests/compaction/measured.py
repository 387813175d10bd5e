"""Compact a log in a process of its own, and say how far its memory rose: `python -m tests.compaction.measured`."""

from __future__ import annotations

import json
import sys

from kseg.compaction import CleanerConfig, compact
from kseg.compaction.report import PartitionCompaction
from kseg.native.warmup import warm_up
from tests.faults import memory

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
WORKERS = 2  # whatever the machine has: buffers are per thread


def run(path: str, budget: str) -> PartitionCompaction:
    """One round within a budget."""
    now = 1_800_000_000_000
    report = compact(path, config=CONFIG, now_ms=now, memory_budget=int(budget), first_dirty=0, workers=WORKERS)
    return report.partitions[0]


def main(small: str, path: str, budget: str) -> None:
    """Compile first, and compact a log of next to nothing: what that leaves is what the process takes anyway."""
    warm_up()
    run(small, budget)
    memory.CLEAR.write_text("5")
    before = memory.resident()
    done = run(path, budget)
    grown = memory.peak() - before
    sys.stdout.write(json.dumps({"error": done.error, "strategy": done.strategy, "keys": done.keys, "grown": grown}))


if __name__ == "__main__":
    main(*sys.argv[1:])
