"""Compact a log in a process of its own, and say how far its memory rose: `python -m tests.compaction.measured`."""

from __future__ import annotations

import json
import sys

from kseg.compaction import CleanerConfig, compact
from kseg.native.warmup import warm_up
from tests.faults import memory

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)


def main(path: str, budget: str) -> None:
    """Compile first: whoever compiles kernels needs memory for that too."""
    warm_up()
    memory.CLEAR.write_text("5")
    before = memory.resident()
    (done,) = compact(
        path, config=CONFIG, now_ms=1_800_000_000_000, memory_budget=int(budget), first_dirty=0
    ).partitions
    grown = memory.peak() - before
    sys.stdout.write(json.dumps({"error": done.error, "strategy": done.strategy, "keys": done.keys, "grown": grown}))


if __name__ == "__main__":
    main(*sys.argv[1:])
