"""Where a view's work is done: logs by their place, so that a unit of work can travel to another process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self, TypeVar

import pyarrow as pa

from kseg.log.checkpoints import Checkpoints, read_checkpoints
from kseg.log.names import METADATA_TOPIC
from kseg.log.partition import Log
from kseg.log.select import choose_replicas
from kseg.log.walk import ReadOptions
from kseg.storage import Store

UNIT_BYTES: Final = 256 << 20
_OPEN_COST: Final = 1 << 20  # bytes that could be read in the time that it takes to open a log or segment

T = TypeVar("T")


class Unit(Protocol):
    """A piece of a view's work; it can be pickled."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Give the rows of this piece."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A partition directory that can be opened elsewhere."""

    store: Store
    directory: str
    options: ReadOptions = field(default_factory=ReadOptions)

    @classmethod
    def of(cls, log: Log) -> Self:
        """The place of a log."""
        return cls(log.store, log.directory, log.options)

    def open(self, checkpoints: Checkpoints | None = None) -> Log:
        """Open the log as it is now."""
        return Log(self.store, self.directory, options=self.options, checkpoints=checkpoints)


def open_all(places: Iterable[LogPlace]) -> list[Log]:
    """Open logs; the checkpoints of a log directory are read once for all its partitions."""
    checkpoints: dict[str, Checkpoints] = {}
    logs = []
    for place in places:
        parent = place.directory.rpartition("/")[0]
        if parent not in checkpoints:
            checkpoints[parent] = read_checkpoints(place.store, parent)
        logs.append(place.open(checkpoints[parent]))
    return logs


def one_each(logs: Iterable[Log]) -> list[Log]:
    """One log for each partition, by topic and number (`kseg.log.select`, whose table says which replica)."""
    given = list(logs)
    return choose_replicas(given, [log for log in given if log.topic == METADATA_TOPIC])


def pack(items: Iterable[tuple[T, int]], most: int, *, fixed_cost: int = _OPEN_COST) -> Iterator[Sequence[T]]:
    """Put items together, in their order, until their sizes reach `most`; an item is never divided.

    Args:
        fixed_cost: Added to the size of each item.
    """
    held: list[T] = []
    held_size = 0
    for item, size in items:
        if held and held_size + size + fixed_cost > most:
            yield tuple(held)
            held, held_size = [], 0
        held.append(item)
        held_size += size + fixed_cost
    if held:
        yield tuple(held)
