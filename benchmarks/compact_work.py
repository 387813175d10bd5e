"""Copies of logs that are compacted again and again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import keyed_data
from benchmarks.anchors import Anchor
from benchmarks.keyed_data import KeyedCase
from kseg.compaction import CleanerConfig, compact

NOW_MS = 1_800_000_000_000
READ_BYTES = 1 << 20
CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)


def read_all(folder: Path) -> None:
    """Have all files of a folder in the page cache: some machines page out what was not used for a minute."""
    room = memoryview(bytearray(READ_BYTES))
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            while file.readinto(room):
                pass


@dataclass(slots=True)
class Work:
    """Copies of a case's partitions that one contestant after the other may change."""

    case: KeyedCase
    home: Path
    seconds: float = 0.0

    def fresh(self) -> list[Path]:
        """New copies: logs are links to those in the cache, which no cleaner changes, but replaces."""
        shutil.rmtree(self.home / "data", ignore_errors=True)
        copies = []
        for source in keyed_data.cached_partitions(self.case):
            target = self.home / "data" / source.name
            target.mkdir(parents=True)
            for file in source.iterdir():
                (os.link if file.suffix == ".log" else shutil.copy2)(file, target / file.name)
            copies.append(target)
        os.sync()  # what others have written is on the disk, which would else be busy with it for a while
        for target in copies:
            read_all(target)
        return copies

    def run_kseg(self, workers: int, clock: Callable[[], float]) -> int:
        """One round by kseg."""
        return self.compact(self.fresh(), workers, clock)

    def compact(self, copies: Sequence[Path], workers: int, clock: Callable[[], float]) -> int:
        """The same for copies that are there already."""
        path = copies[0].parent
        began = clock()
        report = compact(path, topics=[keyed_data.TOPIC], config=CONFIG, now_ms=NOW_MS, workers=workers)
        self.seconds = clock() - began
        failed = [done.error or done.skipped for done in report.partitions if done.error or done.skipped]
        if failed:
            raise RuntimeError(failed[0])
        return sum(done.checkpoint or 0 for done in report.partitions)

    def run_java(self, jvm: Anchor, threads: int) -> int:
        """One round by Kafka's cleaner."""
        return jvm.call(" ".join([str(threads), str(NOW_MS), *(str(path) for path in self.fresh())]))

    def last_seconds(self) -> float:
        """Of kseg's last run."""
        return self.seconds
