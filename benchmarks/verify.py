"""Verify whole segments, one thread: against the crc32c package's own rate, and against kafka-dump-log.

`kseg` looks at headers, checksums and indexes, `kseg-deep` at every record too. Rates are bytes of log a second.
`crc32c` reads the same cached file in pieces and does nothing but the checksum. kafka-dump-log runs with deep
iteration: `dump-log` on the same file, in a JVM that was warmed on a smaller one and prints nowhere, `dump-log-program`
on the smaller one, as people start it, with the JVM's own start, its compiler and what it prints to /dev/null.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from benchmarks import data
from benchmarks.anchors import Anchor
from benchmarks.measure import Contestant, Effort, Goal, compare, take_turns, warm_up
from kseg.types import Codec
from tests.kafka.jars import class_path, java, kafka_libs

CHUNK_BYTES = 1 << 20
CRC_RATIO = 0.5
DUMP_RATIO = 20.0
SIZE, QUICK_SIZE = 512 << 20, 128 << 20
JAVA_SIZE = 32 << 20


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind of log: a large one, and a smaller one for who is slow."""

    name: str
    large: Path
    small: Path


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


class DumpProgram:
    """kafka-dump-log as a program of its own; counts the processor time of its process."""

    def __init__(self, log: Path) -> None:
        tool = "org.apache.kafka.tools.DumpLogSegments"
        self._command = [java(), "-cp", class_path(kafka_libs()), tool, "--deep-iteration", "--files", str(log)]
        self._size = log.stat().st_size
        self.seconds = 0.0

    def run(self) -> int:
        """Run it once; return the bytes of the log."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return self._size

    def last_seconds(self) -> float:
        """Processor seconds of the last run."""
        return self.seconds


def measure(subject: Subject, effort: Effort) -> dict[str, Any]:
    """All contestants on one kind of log."""
    log, small = subject.large / data.LOG_NAME, subject.small / data.LOG_NAME
    size = log.stat().st_size
    program = DumpProgram(small)
    with Anchor("DumpAnchor") as jvm:
        deep = Contestant("kseg-deep", lambda: verify_with_kseg(subject.large, deep=True))
        warm_up(Contestant("dump-log", lambda: jvm.call(str(small)), jvm.last_seconds), effort)
        dump = Contestant("dump-log", lambda: jvm.call(str(log)) * size, jvm.last_seconds)
        contestants = [
            Contestant("kseg", lambda: verify_with_kseg(subject.large, deep=False)),
            deep,
            Contestant("crc32c", lambda: checksum_only(log)),
            dump,
        ]
        for contestant in contestants[:3]:
            warm_up(contestant, effort)
        take_turns(contestants, effort)
    started = Contestant("dump-log-program", program.run, program.last_seconds)
    started.seconds = [started.once() for _ in range(2)]
    row = {"case": subject.name, "file_bytes": size}
    goals = [Goal("crc32c", CRC_RATIO), Goal("dump-log", DUMP_RATIO)]
    row |= compare([*contestants, started], goals)
    row["deep_ratios"] = compare([deep, dump, started], [])["ratios"]
    return row


def subjects(size: int) -> Iterator[tuple[str, Callable[[], Subject]]]:
    """Batches of 16 KiB as producers send them, and batches of one small record."""
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        name = f"{codec.label}-16KiB"

        def large(name: str = name, codec: Codec = codec) -> Subject:
            return Subject(name, data.cached_large_log(codec, size), data.cached_large_log(codec, JAVA_SIZE))

        yield name, large

    def tiny() -> Subject:
        case = data.Case(Codec.NONE, 1, 100, 20_000)
        few = data.Case(Codec.NONE, 1, 100, 20_000, 5)
        many = data.Case(Codec.NONE, 1, 100, 20_000, size // (190 * case.records))
        return Subject("none-1x100", data.cached_log(many), data.cached_log(few))

    yield "none-1x100", tiny


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per kind of log."""
    effort = Effort.of(quick=quick)
    for name, make in subjects(QUICK_SIZE if quick else SIZE):
        if only in name:
            yield measure(make(), effort)
