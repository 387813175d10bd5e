"""From a time to an offset, by Kafka's rule.

The first segment whose greatest timestamp reaches the target is chosen, and only that one is searched: the first
record in offset order, from the log start on, whose timestamp is at or above the target. Control records count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kseg.errors import FormatError, OptionError
from kseg.format.arrow import RecordDecoder
from kseg.log.segment import Segment
from kseg.native import table as t
from kseg.schema import select_columns


class TimeMatch(NamedTuple):
    """The record found for a time; the epoch is None where its batch has none."""

    timestamp: int
    offset: int
    leader_epoch: int | None


def find(segments: Sequence[Segment], target_ms: int, start_offset: int) -> TimeMatch | None:
    """Find the first record at or after a time, in milliseconds since the epoch."""
    if target_ms < 0:
        raise OptionError(f"a time must not be negative, got {target_ms}")
    chosen = next((segment for segment in segments if segment.largest_timestamp >= target_ms), None)
    return None if chosen is None else _find_in(chosen, target_ms, start_offset)


def _find_in(segment: Segment, target_ms: int, start_offset: int) -> TimeMatch | None:
    decoder = RecordDecoder(
        select_columns(["offset", "timestamp"]), topic="", partition=0, max_batch_bytes=segment.options.max_batch_bytes
    )
    _, from_offset = segment.time_index.lookup(target_ms)
    with segment.open() as file:
        position = segment.find_position(file, max(from_offset, start_offset))
        end = segment.sound_size if segment.is_last else None
        walker = segment.walk(file, start=position, end=end, check=True)
        shown = np.zeros(0, np.bool_)
        for chunk in walker:
            shown = np.zeros(chunk.rows, np.bool_) if shown.size < chunk.rows else shown
            reaching = chunk.table[t.MAX_TIMESTAMP, : chunk.rows] >= target_ms
            reaching &= chunk.table[t.LAST_OFFSET, : chunk.rows] >= start_offset
            for row in np.flatnonzero(reaching).tolist():
                rows = range(row, row + 1)
                try:
                    parts = decoder.decode(
                        chunk.data, chunk.file_position, chunk.table, rows, shown, start_offset, 2**63 - 1
                    )
                    for part in parts:
                        stamps = part.column("timestamp").cast("int64").to_numpy()
                        hits = np.flatnonzero(stamps >= target_ms)
                        if hits.size:
                            offset = int(part.column("offset")[int(hits[0])].as_py())
                            epoch = int(chunk.table[t.LEADER_EPOCH, row])
                            return TimeMatch(int(stamps[hits[0]]), offset, epoch if epoch >= 0 else None)
                except FormatError as error:
                    if segment.options.skip_damage:
                        continue
                    raise error.with_context(path=segment.path) from None
    return None
