"""Directories of an export, in Hive's way: `topic=orders/day=2026-01-31/hour=05`.

Days and hours are those of a record's timestamp, in UTC. A record without a timestamp, or with one that no calendar of
four-digit years has (microseconds taken for milliseconds, say), is where Hive puts what has no value.
"""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from kseg.exporting.settings import By

UNKNOWN: Final = -1
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
HOUR_MS: Final = 3_600_000
UNIT_MS: Final[dict[By, int]] = {"day": 24 * HOUR_MS, "hour": HOUR_MS}
END_OF_CALENDAR_MS: Final = 253_402_300_800_000  # 10000-01-01
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def directory_of(topic: str, by: By | None, slot: int) -> str:
    """The directory of a topic's records in a slot: a number of days or hours since 1970, or UNKNOWN."""
    names = [f"topic={urllib.parse.quote(topic, safe='')}"]
    if by is not None:
        time = None if slot == UNKNOWN else _EPOCH + datetime.timedelta(milliseconds=slot * UNIT_MS[by])
        names.append(f"day={NO_VALUE if time is None else time.date().isoformat()}")
        if by == "hour":
            names.append(f"hour={NO_VALUE if time is None else f'{time.hour:02d}'}")
    return "/".join(names)


def cut_by_slot(batch: pa.RecordBatch, by: By | None) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a batch by their slots, in their order.

    Most batches lie within one slot and are given as they are. Pieces of others are copies: a slice would keep its
    whole batch in memory for as long as its slot waits to be written.
    """
    if by is None:
        yield UNKNOWN, batch
        return
    column = batch.column("timestamp").view(pa.int64())
    times = (column.fill_null(UNKNOWN) if column.null_count else column).to_numpy(zero_copy_only=True)
    first, last, unit = int(times.min()), int(times.max()), UNIT_MS[by]
    if first >= 0 and last < END_OF_CALENDAR_MS and first // unit == last // unit:
        yield first // unit, batch
        return
    slots = np.where((times < 0) | (times >= END_OF_CALENDAR_MS), UNKNOWN, times // unit)
    order = np.argsort(slots, kind="stable")
    edges = np.flatnonzero(np.diff(slots[order])) + 1
    for rows in np.split(order, edges):
        yield int(slots[rows[0]]), batch.take(pa.array(rows))
