"""Logs to damage: small ones, complete with every side file, closed as a broker closes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import kseg
from kseg.verification.kinds import Severity

TIME = 1_700_000_000_000


def rows(first: int, count: int) -> pa.Table:
    """Records to append."""
    return pa.table(
        {
            "key": pa.array([b"k%d" % (i % 5) for i in range(first, first + count)], pa.binary()),
            "value": pa.array([b"value-%d" % i for i in range(first, first + count)], pa.binary()),
            "timestamp": pa.array([TIME + i for i in range(first, first + count)], pa.timestamp("ms", tz="UTC")),
        }
    )


def codes(path: Path, severity: Severity | None = Severity.DAMAGE, **options: object) -> set[str]:
    """Codes of what verify finds."""
    report = kseg.verify(path, workers=1, **options)
    return {finding.code for finding in report.findings if severity in (None, finding.severity)}


def found(path: Path, **options: object) -> list[str]:
    """All that is worse than an info, as text."""
    report = kseg.verify(path, workers=1, **options)
    return [f"{f.code} {f.detail}" for f in report.findings if f.severity is not Severity.INFO]


def small_log(root: Path, codec: str = "none", *, interval: int = 0) -> Path:
    """Three segments with plain, idempotent and transactional batches, two leader epochs, and an abort."""
    config = kseg.LogConfig(index_interval_bytes=interval)
    path = root / "small-0"
    with kseg.create_log(path, config=config, clock=lambda: TIME / 1000 + 60) as log:
        log.append(rows(0, 2), codec=codec)
        log.append(rows(2, 2), codec=codec, producer_id=7)
        log.roll()
        log.append(rows(4, 1), codec=codec, producer_id=7, leader_epoch=3)
        log.append(rows(5, 2), codec=codec, producer_id=9, transactional=True)
        log.append_marker(9, commit=False, timestamp_ms=TIME + 7)
        log.append(rows(8, 1), codec=codec, producer_id=7)
        log.roll()
        log.append(rows(9, 3), codec=codec, producer_id=9, transactional=True)
        log.append_marker(9, commit=True, timestamp_ms=TIME + 13)
        log.append(rows(13, 2), codec=codec)
    return path


def batch_places(log: Path) -> list[tuple[int, int]]:
    """Position and size of each batch of a .log file."""
    data = log.read_bytes()
    found, at = [], 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append((at, size))
        at += size
    return found


def flip(file: Path, byte: int, bit: int) -> None:
    """Flip one bit of a file; a second call puts it back."""
    with file.open("r+b") as opened:
        opened.seek(byte)
        value = opened.read(1)[0]
        opened.seek(byte)
        opened.write(bytes([value ^ 1 << bit]))
