"""Compare keys as a task of Spark does, in a process of its own: `python -m tests.compaction.measured_keys`.

Says how far its memory rose.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from kseg.compaction.spark import resolved_rows
from kseg.compaction.tasks import Place, Resolved, ResolveTask
from kseg.log.staging import write_nonce
from tests.faults import memory

ROWS = 10_000  # of a batch that Spark gives


def batches(records: int, keys: int) -> Iterator[pa.RecordBatch]:
    """Records of as many keys, in turn."""
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, (2, keys))
    for first in range(0, records, ROWS):
        offsets = np.arange(first, min(first + ROWS, records))
        yield pa.record_batch([*hashes[:, offsets % keys], offsets], names=["low", "high", "offset"])


def run(folder: Path, budget: int, records: int, keys: int) -> Resolved:
    """Compare the keys of some records within a budget."""
    folder.mkdir()
    task = ResolveTask(Place(folder, write_nonce(folder)), first_dirty=0, divisor=1, room=budget)
    (answer,) = resolved_rows(task, batches(records, keys), "t-0")
    resolved: Resolved = pickle.loads(answer.column(0)[0].as_py())
    return resolved


def main(folder: str, budget: str, records: str, keys: str) -> None:
    """Few records first: what these leave is what the process takes anyway."""
    run(Path(folder, "few"), int(budget), ROWS, min(int(keys), ROWS))
    memory.CLEAR.write_text("5")
    before = memory.resident()
    resolved = run(Path(folder, "many"), int(budget), int(records), int(keys))
    grown = memory.peak() - before
    dropped = sum(size for size, _ in resolved.dropped.parts) // 8
    sys.stdout.write(json.dumps({"grown": grown, "keys": resolved.keys, "dropped": dropped}))


if __name__ == "__main__":
    main(*sys.argv[1:])
