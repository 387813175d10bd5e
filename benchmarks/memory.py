"""Peak memory of a fresh process that reads a whole 1 GiB segment.

The peak is VmHWM of the process, nothing taken off; what it had after its imports stands beside it. `ru_maxrss` would
not do: a child inherits its parent's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.machine import ROOT
from kseg.types import Codec

LIMIT = 512 << 20
SIZE = 1 << 30
QUICK_SIZE = 128 << 20


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    value = next(line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(value) << 10


def read_all(folder: str) -> dict[str, int]:
    """Read a log to its end in this process and say what that took."""
    import kseg

    base = _status_bytes("VmRSS")
    rows = sum(batch.num_rows for batch in kseg.open_log(folder).read())
    return {"records": rows, "base_rss_bytes": base, "peak_rss_bytes": _status_bytes("VmHWM")}


def _measure(folder: Path) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.memory", str(folder)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result: dict[str, int] = json.loads(answer.stdout)
    return result


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per codec."""
    size = QUICK_SIZE if quick else SIZE
    for codec in (Codec.NONE, Codec.ZSTD):
        if only not in codec.label:
            continue
        folder = data.cached_large_log(codec, size)
        _measure(data.cached_large_log(codec, 1 << 20))  # whoever compiles the kernels first needs memory for that too
        result = _measure(folder)
        peak = result.pop("peak_rss_bytes")
        checks = {"peak_rss_bytes": {"value": peak, "goal": LIMIT, "met": peak < LIMIT}}
        yield {"case": codec.label, "file_bytes": (folder / data.LOG_NAME).stat().st_size, **result, "checks": checks}


if __name__ == "__main__":
    print(json.dumps(read_all(sys.argv[1])))
