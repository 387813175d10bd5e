"""Recover an unflushed log after a crash, against Kafka's own log loader on a copy of it.

Both check every batch, cut nothing, and rebuild indexes, producer state and snapshots. The files are in the page cache.
A broker loads a log on one thread; kseg checks its batches on all cores. So seconds are those of the clock on the wall:
run this on an idle machine. `cpu` is the ratio of processor time.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kseg
from benchmarks import data
from benchmarks.anchors import Anchor
from benchmarks.measure import Contestant, Effort, Goal, compare, take_turns, warm_up
from kseg.types import Codec

SIZE = 1 << 30
QUICK_SIZE = 128 << 20
BATCH_BYTES = (16 << 10, 4 << 10, 1 << 10)  # what a busy producer sends, and what quieter ones send
GOALS = (Goal("java", 3.0),)


class Watch:
    """The wall's clock for contestants, and the least processor time of each."""

    def __init__(self, jvm: Anchor) -> None:
        self._jvm = jvm
        self._elapsed = 0.0
        self.cpu: dict[str, float] = {}

    def contestant(self, name: str, run: Callable[[], int]) -> Contestant:
        """A contestant whose runs are timed here."""
        return Contestant(name, lambda: self._time(name, run), lambda: self._elapsed)

    def _time(self, name: str, run: Callable[[], int]) -> int:
        wall, cpu = time.perf_counter(), time.process_time()
        done = run()
        self._elapsed = time.perf_counter() - wall
        spent = self._jvm.seconds if name == "java" else time.process_time() - cpu
        self.cpu[name] = min(spent, self.cpu.get(name, spent))
        return done


def crashed_copy(source: Path, target: Path) -> Path:
    """A log as a crash leaves it: the indexes are not to be trusted, and there is no snapshot."""
    target.mkdir(parents=True)
    shutil.copy(source / data.LOG_NAME, target / data.LOG_NAME)
    for suffix in (".index", ".timeindex"):
        (target / data.LOG_NAME).with_suffix(suffix).write_bytes(b"")
    return target


def recover_with_kseg(directory: Path) -> int:
    """Recover, and forget the indexes again, so that the next run has the same to do."""
    end = kseg.recover(directory, as_kafka=True).partitions[0].end_offset
    for path in directory.iterdir():
        if path.suffix in (".index", ".timeindex"):
            path.write_bytes(b"")
        elif path.suffix == ".snapshot":
            path.unlink()
    return end


def measure(codec: Codec, batch_bytes: int, size: int, effort: Effort) -> dict[str, Any]:
    """Both on copies of one log."""
    source = data.cached_large_log(codec, size, batch_bytes)
    with tempfile.TemporaryDirectory(prefix="kseg-recover-") as folder, Anchor("LoadAnchor") as jvm:
        watch = Watch(jvm)
        ours = crashed_copy(source, Path(folder, "ours", f"{data.TOPIC}-0"))
        theirs = crashed_copy(source, Path(folder, "theirs", f"{data.TOPIC}-0"))
        contestants = [
            watch.contestant("kseg", lambda: recover_with_kseg(ours)),
            watch.contestant("java", lambda: jvm.call(f"load {theirs}")),
        ]
        for contestant in contestants:
            warm_up(contestant, effort)
        take_turns(contestants, effort)
    cpu = watch.cpu["java"] / watch.cpu["kseg"]
    case = f"{codec.label}-{batch_bytes}-{size >> 20}MiB"
    return {"case": case, "log_bytes": size, "cpu": round(cpu, 3)} | compare(contestants, GOALS)


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per size of batch; records a second stand for bytes, as both have the same log."""
    effort = Effort.of(quick=quick)
    for batch_bytes in BATCH_BYTES:
        if only in f"none-{batch_bytes}":
            yield measure(Codec.NONE, batch_bytes, QUICK_SIZE if quick else SIZE, effort)
