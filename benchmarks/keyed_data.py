"""Logs of keyed records for compaction, of which a known share is superseded; kept in the cache folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import kseg
from benchmarks.data import make_records
from kseg.types import Codec
from tests.kafka.jars import cache_dir, published

VERSION = 1
SEED = 6
TOPIC = "keyed"
RECORD_BYTES = 265  # about, with key and overhead
VALUE_BYTES = 240
BLOCK = 100_000
BATCH_RECORDS = 100
SEGMENT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class KeyedCase:
    """One kind of log; `size` is that of all partitions together, before compression."""

    codec: Codec
    superseded: int
    partitions: int
    size: int

    @property
    def name(self) -> str:
        """Short and unique: `lz4-75%-4p` has four partitions in which three records of four are superseded."""
        return f"{self.codec.label}-{self.superseded}%-{self.partitions}p"

    @property
    def records(self) -> int:
        """Of one partition."""
        return self.size // self.partitions // RECORD_BYTES

    @property
    def goal(self) -> float:
        """How many times as fast as Kafka's cleaner kseg has to be."""
        return 3.0 if self.codec is Codec.NONE or self.superseded > 50 else 1.5

    def of_size(self, size: int) -> KeyedCase:
        """The same of another size."""
        return replace(self, size=size)


def cases(size: int, *, quick: bool) -> list[tuple[KeyedCase, int]]:
    """All kinds, with the number of cores; several cores and partitions only where most records are superseded."""
    codecs = Codec.NONE, Codec.LZ4, Codec.ZSTD
    found = [(KeyedCase(codec, superseded, 1, size), 1) for codec in codecs for superseded in (75, 5)]
    if not quick:
        several = ((4, 1), (1, 2), (4, 2))
        found += [(KeyedCase(codec, 75, partitions, size), cores) for partitions, cores in several for codec in codecs]
    return found


def cache_home() -> Path:
    """The folder of all data of benchmarks; it is made where it is missing."""
    home = cache_dir().parent / "benchmarks"
    home.mkdir(parents=True, exist_ok=True)
    return home


def cached_partitions(case: KeyedCase) -> list[Path]:
    """The partition directories of a case, sealed segments and an active one each; made when first asked for."""
    target = cache_home() / f"keyed-v{VERSION}" / f"{case.name}-{case.size >> 20}"
    if not target.exists():
        with published(target) as folder:
            if folder is not None:
                for number in range(case.partitions):
                    _write(folder / f"{TOPIC}-{number}", case, number)
    return sorted(target.glob(f"{TOPIC}-*"))


def _write(path: Path, case: KeyedCase, seed: int) -> None:
    with kseg.create_log(path, config=kseg.LogConfig(segment_bytes=SEGMENT_BYTES)) as writer:
        for rows in _blocks(case, seed):
            writer.append(rows, codec=case.codec.label, batch_records=BATCH_RECORDS)
        writer.roll()
        writer.append(pa.table({"key": [b"end"], "value": [b"end"]}))


def _blocks(case: KeyedCase, seed: int) -> Iterator[pa.Table]:
    """Records whose keys are drawn evenly from a quarter as many keys, or are new ones but for a few."""
    rng = np.random.default_rng([SEED, seed])
    values = make_records(BLOCK, VALUE_BYTES)
    for start in range(0, case.records, BLOCK):
        count = min(BLOCK, case.records - start)
        if case.superseded > 50:
            keys = rng.integers(0, case.records * (100 - case.superseded) // 100, count)
        else:
            keys = np.arange(start, start + count)
            old = rng.random(count) < case.superseded / 100
            keys[old] = rng.integers(0, max(start, 1), int(old.sum()))
        names = pa.array([b"key-%010d" % key for key in keys.tolist()], pa.binary())
        stamps = values["timestamp"].slice(0, count)
        yield pa.table({"key": names, "value": values["value"].slice(0, count), "timestamp": stamps})
