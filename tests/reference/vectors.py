"""The bytes of tests/vectors.txt, which Kafka's own classes wrote, by name."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from tests.reference.codecs import NAMES
from tests.reference.record import NO_TIMESTAMP_TYPE, Record

PATH = Path(__file__).parent.parent / "vectors.txt"

BATCH_RECORDS = (
    Record(100, 1000, b"k1", b"v1"),
    Record(101, 1007, b"k2", None),
    Record(102, 1014, None, b"v3", ((b"h", b"x"),)),
)


@functools.cache
def lines() -> tuple[str, ...]:
    """All lines."""
    return tuple(PATH.read_text().splitlines())


def _hex_after(prefix: str) -> bytes:
    for line in lines():
        if line.startswith(prefix):
            return bytes.fromhex(line[len(prefix) :].strip())
    raise KeyError(prefix)


def batch(codec: str) -> bytes:
    """`BATCH_RECORDS` as a batch of magic 2, base offset 100, leader epoch 3."""
    return _hex_after(f"{codec} ")


def named(prefix: str) -> bytes:
    """The bytes behind a line's start, such as `commit marker:`."""
    return _hex_after(prefix)


def filtered(title: str) -> bytes:
    """The batch that the cleaner left, by the title of its block."""
    rest = iter(lines())
    for line in rest:
        if line.startswith(f"FILTER {title}"):
            return bytes.fromhex(next(later for later in rest if later.startswith("   hex")).split()[1])
    raise KeyError(title)


@functools.cache
def message_sets() -> tuple[tuple[int, str, bytes], ...]:
    """Magic, codec and bytes of every legacy message set."""
    found = (re.fullmatch(r"magic([01]) (\w+) ([0-9a-f]+)", line) for line in lines())
    return tuple((int(match[1]), match[2], bytes.fromhex(match[3])) for match in found if match)


def message_records(magic: int) -> list[Record]:
    """What every message set of that magic holds."""
    if magic == 0:
        return [
            Record(100, -1, b"k1", b"v1", (), NO_TIMESTAMP_TYPE),
            Record(101, -1, b"k2", None, (), NO_TIMESTAMP_TYPE),
        ]
    return [Record(100, 1000, b"k1", b"v1"), Record(101, 1007, b"k2", None)]


def every_entry() -> list[bytes]:
    """All batches and message sets, for seeds."""
    found = [batch(codec) for codec in NAMES]
    found += [named("txn pid=9 ep=1 seq=5:"), named("commit marker:"), named("abort marker:")]
    found += [filtered(title) for title in ("keep all", "keep 100 only", "keep none RETAIN_EMPTY")]
    return found + [data for _, _, data in message_sets()]
