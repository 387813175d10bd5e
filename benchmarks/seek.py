"""Bytes that a read of 1,000 records from the middle of a 1 GiB log takes out of files, index files included.

They are counted by the kernel (rchar in /proc/self/io) in a fresh process that has read another log before, so that
loading code and compiled kernels does not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.machine import ROOT
from kseg.native import headers
from kseg.native import table as t
from kseg.types import Codec

RECORDS = 1_000
ALLOWANCE = 512 << 10
SIZE = 1 << 30
QUICK_SIZE = 128 << 20


def _read_bytes() -> int:
    lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rchar:")))


def _read(folder: str, start: int) -> tuple[int, int, int]:
    """Open a log and read; return bytes of the opening, bytes of the reading, and rows."""
    import kseg

    began = _read_bytes()
    overhead = _read_bytes() - began  # reading the counter counts
    began = _read_bytes()
    log = kseg.open_log(folder)
    opened = _read_bytes()
    rows = sum(batch.num_rows for batch in log.read(start, start + RECORDS))
    return opened - began - overhead, _read_bytes() - opened - overhead, rows


def seek(warm_folder: str, folder: str, start: int) -> dict[str, int]:
    """Measure in this process."""
    _read(warm_folder, 0)
    opening, reading, rows = _read(folder, start)
    return {"open_bytes": opening, "read_bytes": reading, "records": rows}


def _batches(log: Path) -> t.Table:
    content = np.memmap(log, np.uint8, "r")
    table = t.new_table(content.size // t.HEADER_SIZE)
    rows, _, _ = headers.fill_headers(content, 0, content.size, 0, table, 0)
    return table[:, :rows]


def _record_bytes(table: t.Table, start: int, end: int) -> int:
    """Bytes in the file of the records `[start, end)`: of a batch that holds some of them, the same share."""
    base, count, size = table[t.BASE_OFFSET], table[t.COUNT], table[t.SIZE]
    inside = np.clip(np.minimum(base + count, end) - np.maximum(base, start), 0, None)
    return int((inside / count * size).sum())


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per codec."""
    size = QUICK_SIZE if quick else SIZE
    for codec in (Codec.NONE, Codec.ZSTD):
        if only not in codec.label:
            continue
        folder, small = data.cached_large_log(codec, size), data.cached_large_log(codec, 1 << 20)
        table = _batches(folder / data.LOG_NAME)
        start = int(table[t.LAST_OFFSET, -1]) // 2
        command = [sys.executable, "-m", "benchmarks.seek", str(small), str(folder), str(start)]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        result: dict[str, int] = json.loads(answer.stdout)
        wanted = _record_bytes(table, start, start + RECORDS)
        used = result["open_bytes"] + result["read_bytes"]
        check = {"value": used, "goal": wanted + ALLOWANCE, "met": used <= wanted + ALLOWANCE}
        row = {"case": codec.label, "start": start, "wanted_bytes": wanted, **result}
        yield row | {"checks": {"file_bytes_read": check}}


if __name__ == "__main__":
    print(json.dumps(seek(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
