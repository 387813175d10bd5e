"""The process's peak of resident memory, measured over a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MIB = 1 << 20


def _status(name: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def resident() -> int:
    """Bytes that are resident now."""
    return _status("VmRSS")


def peak() -> int:
    """The most bytes that were resident since the start, or since the peak was cleared."""
    return _status("VmHWM")


@contextlib.contextmanager
def bounded_growth(limit: int) -> Iterator[None]:
    """Fail where resident memory rises by more than `limit` bytes at any moment inside the block."""
    CLEAR.write_text("5")  # resets the peak to what is resident now
    before = resident()
    yield
    growth = peak() - before
    assert growth < limit, f"resident memory rose by {growth / MIB:.0f} MiB, allowed are {limit / MIB:.0f} MiB"
