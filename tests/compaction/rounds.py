"""Logs that grow and are cleaned round by round, by Kafka's own cleaner and by kseg side by side."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kseg.compaction import CleanerConfig
from tests.kafka.oracle import Oracle

START_MS = 1_700_000_600_000
STEPS_MS = (100, 700, 5000, 1)
UNLIMITED = 2_147_483_647
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")


@dataclass(frozen=True, slots=True)
class Setup:
    """One kind of log, and how it is cleaned; all of it follows from a seed."""

    seed: int

    @property
    def options(self) -> dict[str, Any]:
        """What the oracle generates."""
        seed = self.seed
        return {
            "codec": CODECS[seed % 5],
            "lat": 1 if seed % 7 == 0 else 0,
            "legacy": 0.3 if seed % 4 == 3 else 0,
            "life": (25, 5, 100)[seed % 3],
            "roll": 0.08,
            "txn": (0.4, 0.9, 0)[seed % 3],
            "keys": (40, 5, 400)[(seed // 3) % 3],
        }

    @property
    def segment_bytes(self) -> int:
        """Small segments make several groups."""
        return 4096 if self.seed % 3 == 1 else 1 << 20

    def expiration_ms(self, number: int) -> int:
        """Producers of some logs expire in every other round."""
        return 1000 if self.seed % 2 and number % 2 else UNLIMITED

    def config(self, number: int, **others: Any) -> CleanerConfig:
        """The settings of a round, for kseg."""
        return CleanerConfig(
            delete_retention_ms=1000,
            index_interval_bytes=256,
            segment_bytes=self.segment_bytes,
            producer_id_expiration_ms=self.expiration_ms(number),
            **others,
        )

    def oracle_options(self, number: int) -> dict[str, Any]:
        """The same for the oracle."""
        options: dict[str, Any] = {"producer.id.expiration.ms": self.expiration_ms(number)}
        if self.segment_bytes == 4096:
            options["internal.segment.bytes"] = 4096
        if self.options["lat"]:
            options["lat"] = 1
        return options


@dataclass(frozen=True, slots=True)
class Step:
    """One round: where it begins, at which clock."""

    number: int
    first_dirty: int
    now_ms: int


class GrowingLog:
    """A generated log whose segments are handed out in four parts to two directories, `theirs` and `ours`.

    Without `snapshots` both sides have to find out for themselves what these say.
    """

    def __init__(
        self, oracle: Oracle, home: Path, setup: Setup, batches: int = 240, *, snapshots: bool = False
    ) -> None:
        self._source = home / "source" / "t-0"
        oracle.gen(self._source, setup.seed, batches, **setup.options)
        self.theirs, self.ours = home / "theirs" / "t-0", home / "ours" / "t-0"
        self.theirs.mkdir(parents=True)
        self.ours.mkdir(parents=True)
        bases = sorted(int(path.stem) for path in self._source.glob("*.log"))
        self._parts = [bases[i * len(bases) // 4 : (i + 1) * len(bases) // 4] for i in range(4)]
        self._setup = setup
        self._snapshots = snapshots
        self.first_dirty = 0

    def steps(self) -> Iterator[Step]:
        """Add a part before each round; whoever cleans sets `first_dirty` to where the round ended."""
        now_ms = START_MS
        for number, part in enumerate(self._parts):
            for base in part:
                for file in self._source.glob(f"{base:020d}.*"):
                    if file.suffix != ".snapshot" or self._snapshots:
                        shutil.copy2(file, self.theirs)
                        shutil.copy2(file, self.ours)
            if len(list(self.ours.glob("*.log"))) > 1:
                first = 0 if self._setup.seed % 6 == 0 else self.first_dirty  # some logs are cleaned from their start
                yield Step(number, first, now_ms)
            now_ms += STEPS_MS[number]
