"""Small log files to mutate: Kafka's own vectors, heads of segments that real brokers wrote, and built ones."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from tests.builders import LogBuilder
from tests.reference import batch as v2
from tests.reference import codecs, vectors

GOLDEN = Path(__file__).parent.parent / "golden"
GOLDEN_BYTES = 2500  # the first batches of a golden segment up to so many bytes, but at least one
GOLDEN_LARGEST = 20_000


@dataclass(frozen=True)
class Seed:
    """A sound segment file: a name to show, its base offset, its bytes."""

    name: str
    base: int
    data: bytes


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(GOLDEN_LARGEST)
    entries, _ = v2.walk(data)
    end = 0
    for position, size in entries:
        if end and position + size > GOLDEN_BYTES:
            break
        end = position + size
    return data[:end]


def _golden() -> list[Seed]:
    found = []
    for path in sorted(GOLDEN.glob("*/*/*.log")):
        head = _head(path)
        if head:
            found.append(Seed(f"golden {path.parent.parent.name}/{path.parent.name}", int(path.stem), head))
    return found


def _vectors() -> list[Seed]:
    return [Seed(f"vector {index}", 0, data) for index, data in enumerate(vectors.every_entry())]


def _built() -> list[Seed]:
    unused = Path("unused")
    logs: list[tuple[str, LogBuilder]] = []
    for codec in codecs.NAMES:
        logs.append((f"built {codec}", LogBuilder(unused).batch(3).batch(8, codec=codec).batch(2, codec=codec)))
        logs.append((f"built append time {codec}", LogBuilder(unused).append_time(6, codec=codec).batch(2)))
        producer = {"producer_id": 7, "producer_epoch": 1}
        transaction = LogBuilder(unused).transaction(4, codec=codec, **producer).control("abort", **producer).batch(3)
        logs.append((f"built transaction {codec}", transaction))
    for magic in (0, 1):
        for codec in codecs.NAMES[:4]:
            log = LogBuilder(unused).legacy(4, magic=magic, codec=codec).legacy(3, magic=magic).batch(3)
            logs.append((f"built legacy {magic} {codec}", log))
    logs.append(
        ("built empty", LogBuilder(unused).batch(2).empty(5, producer_id=3, producer_epoch=0, base_sequence=2).batch(2))
    )
    logs.append(("built horizon", LogBuilder(unused).batch(5, flags=v2.HORIZON_BIT, base_timestamp=1 << 42).batch(1)))
    logs.append(("built large", LogBuilder(unused).batch(40, codec="lz4").batch(60, codec="zstd")))
    return [Seed(name, 0, log.segments[0].data) for name, log in logs]


@functools.cache
def seeds() -> tuple[Seed, ...]:
    """All seeds, in a fixed order."""
    return tuple(_built() + _vectors() + _golden())
