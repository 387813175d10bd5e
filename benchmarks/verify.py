"""Verify whole segments, one thread: against the crc32c package's own rate, and against kafka-dump-log.

Both `kseg` (headers, checksums, indexes) and `kseg-deep` (every record too) are measured. Rates are bytes of log a
second. `crc32c` reads the same cached file in pieces and does nothing but the checksum; kafka-dump-log runs with deep
iteration in a warm JVM, and what it prints goes nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from benchmarks import data
from benchmarks.anchors import Anchor
from benchmarks.measure import Contestant, Effort, Goal, compare, take_turns, warm_up
from kseg.types import Codec

CHUNK_BYTES = 1 << 20
COPIES = {Codec.NONE: 10, Codec.LZ4: 5, Codec.ZSTD: 3, Codec.SNAPPY: 5, Codec.GZIP: 4}
CRC_RATIO = 0.5
DUMP_RATIO = 20.0


def verify_with_kseg(folder: Path, *, deep: bool) -> int:
    """Verify a log on one thread; return its bytes."""
    import kseg

    report = kseg.verify(folder, deep=deep, workers=1)
    if not report.is_sound:
        raise ValueError(str(report))
    return report.bytes


def checksum_only(log: Path) -> int:
    """Read a file in pieces, and compute one checksum."""
    buffer = np.empty(CHUNK_BYTES, np.uint8)
    value = size = 0
    with log.open("rb", buffering=0) as file:
        while got := file.readinto(buffer):
            value = crc32c.crc32c(buffer[:got].data, value)
            size += got
    return size


def measure_case(case: data.Case, effort: Effort) -> dict[str, Any]:
    """All contestants on one log; Java gets a small one, for it is slow."""
    folder = data.cached_log(case)
    log = folder / data.LOG_NAME
    size = log.stat().st_size
    with Anchor("DumpAnchor") as jvm:
        contestants = [
            Contestant("kseg", lambda: verify_with_kseg(folder, deep=False)),
            Contestant("kseg-deep", lambda: verify_with_kseg(folder, deep=True)),
            Contestant("crc32c", lambda: checksum_only(log)),
            Contestant("dump-log", lambda: jvm.call(str(log)) * size, jvm.last_seconds),
        ]
        for contestant in contestants:
            warm_up(contestant, effort)
        take_turns(contestants, effort)
    row = {"case": case.name, "file_bytes": size}
    row |= compare(contestants, [Goal("crc32c", CRC_RATIO), Goal("dump-log", DUMP_RATIO)])
    deep = compare([contestants[1], contestants[3]], [Goal("dump-log", DUMP_RATIO)])
    row["deep_ratios"] = deep["ratios"]
    return row


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per case."""
    effort = Effort.of(quick=quick)
    for case in data.cases(quick=quick, copies=COPIES):
        if only in case.name:
            yield measure_case(case, effort)
