"""Bytes that a read of one hundredth of a log's time takes out of files, planning and index files included.

It is the plan and the read of `format("kseg")` with startingTimestamp and endingTimestamp, in a fresh process that has
read another log before; counted by the kernel, as in benchmarks/seek.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks import data
from benchmarks.machine import ROOT
from benchmarks.seek import _batches, _read_bytes
from kseg.native import table as t
from kseg.types import Codec

SIZE = 1 << 30
QUICK_SIZE = 128 << 20
RANGE = 0.01
LIMIT = 0.03


def _read(folder: str, start_ms: int, end_ms: int) -> tuple[int, int]:
    """Plan and read; return bytes and rows."""
    from kseg.datasource.planning import plan_read
    from kseg.log.plan import read_splits
    from kseg.options import parse_source_options
    from kseg.schema import RECORD_SCHEMA

    times = {"startingTimestamp": str(start_ms), "endingTimestamp": str(end_ms)}
    began = _read_bytes()
    overhead = _read_bytes() - began  # reading the counter counts
    began = _read_bytes()
    tasks = plan_read(parse_source_options({"path": folder, **times}))
    rows = sum(batch.num_rows for splits in tasks for batch in read_splits(splits, RECORD_SCHEMA))
    return _read_bytes() - began - overhead, rows


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per codec."""
    size = QUICK_SIZE if quick else SIZE
    for codec in (Codec.NONE, Codec.ZSTD):
        if only not in codec.label:
            continue
        folder, small = data.cached_large_log(codec, size), data.cached_large_log(codec, 1 << 20)
        table = _batches(folder / data.LOG_NAME)
        first, last = int(table[t.BASE_TIMESTAMP].min()), int(table[t.MAX_TIMESTAMP].max())
        start = (first + last) // 2
        span = (last - first) * RANGE
        command = [sys.executable, "-m", "benchmarks.time_range", str(small), str(folder), str(start), str(int(span))]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        used, rows = json.loads(answer.stdout)
        file_bytes = (folder / data.LOG_NAME).stat().st_size
        limit = int(file_bytes * LIMIT)
        row = {"case": codec.label, "file_bytes": file_bytes, "records": rows}
        yield row | {"checks": {"file_bytes_read": {"value": used, "goal": limit, "met": used <= limit}}}


if __name__ == "__main__":
    _read(sys.argv[1], 0, 1 << 60)
    print(json.dumps(_read(sys.argv[2], int(sys.argv[3]), int(sys.argv[3]) + int(sys.argv[4]))))
