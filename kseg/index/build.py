"""Build a segment's offset and time index from the batch table, while appending or when rebuilding."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kseg.errors import LogError
from kseg.index.offset import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kseg.index.offset import OffsetIndex
from kseg.index.time import ENTRY_SIZE as TIME_ENTRY_SIZE
from kseg.index.time import TimeIndex
from kseg.native import indexing
from kseg.native.indexing import fill_index_entries
from kseg.native.table import LAST_OFFSET, Table
from kseg.types import NO_TIMESTAMP

DEFAULT_INDEX_INTERVAL_BYTES = 4096
DEFAULT_INDEX_BYTES = 10 * 1024 * 1024
UNLIMITED = 2**62  # far above any true value, and far from overflowing when a size is added
UNLIMITED_MS = 2**63 - 1  # batches can say any time, and their difference is not above this
_ROOM = 4096


class Stop(IntEnum):
    """Why rows were left: the kernel's numbers."""

    NONE = indexing.STOP_NONE
    SEGMENT_BYTES = indexing.STOP_SEGMENT_BYTES
    SEGMENT_MS = indexing.STOP_SEGMENT_MS
    OFFSET_INDEX_FULL = indexing.STOP_OFFSET_INDEX_FULL
    TIME_INDEX_FULL = indexing.STOP_TIME_INDEX_FULL
    OFFSET_RANGE = indexing.STOP_OFFSET_RANGE
    BATCH_TOO_LARGE = indexing.STOP_BATCH_TOO_LARGE
    OUT_OF_ORDER = indexing.STOP_OUT_OF_ORDER
    LOG_TOO_LARGE = indexing.STOP_LOG_TOO_LARGE

    @property
    def rolls(self) -> bool:
        """True where a new segment can take the row."""
        return Stop.SEGMENT_BYTES <= self <= Stop.OFFSET_RANGE


@dataclass(frozen=True, slots=True)
class RollLimits:
    """When a segment is full, by Kafka's settings; what is not given does not limit.

    `segment_ms` is what is left after the jitter is taken off. `age_ms` is the segment's age by the clock, which counts
    only where its first batch has no timestamp.
    """

    segment_bytes: int = UNLIMITED
    segment_ms: int = UNLIMITED_MS
    index_bytes: int = UNLIMITED
    age_ms: int = 0

    def to_array(self) -> NDArray[np.int64]:
        """The kernel's form."""
        limits = np.empty(indexing.LIMIT_FIELDS, np.int64)
        limits[indexing.LIMIT_SEGMENT_BYTES] = min(self.segment_bytes, UNLIMITED)
        limits[indexing.LIMIT_SEGMENT_MS] = min(self.segment_ms, UNLIMITED_MS)
        limits[indexing.LIMIT_OFFSET_ENTRIES] = self.index_bytes // OFFSET_ENTRY_SIZE
        limits[indexing.LIMIT_TIME_ENTRIES] = self.index_bytes // TIME_ENTRY_SIZE
        limits[indexing.LIMIT_AGE_MS] = self.age_ms
        return limits


_NO_LIMITS = RollLimits().to_array()
REASONS = {
    Stop.OFFSET_RANGE: "the offset is below the segment's base offset or more than 2147483647 above it",
    Stop.OUT_OF_ORDER: "the offset is not above that of an indexed batch before it",
    Stop.LOG_TOO_LARGE: "a segment cannot hold more than 2147483647 bytes",
}


class IndexBuilder:
    """Grows the two indexes of one segment by rows of batch tables."""

    def __init__(self, base_offset: int, index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES) -> None:
        self.base_offset = base_offset
        self._state = np.zeros(indexing.STATE_FIELDS, np.int64)
        self._state[indexing.STATE_BASE_OFFSET] = base_offset
        self._state[indexing.STATE_INTERVAL] = index_interval_bytes
        self._state[indexing.STATE_FIRST_TIMESTAMP] = NO_TIMESTAMP
        self._state[indexing.STATE_MAX_TIMESTAMP] = NO_TIMESTAMP
        self._state[indexing.STATE_MAX_TIMESTAMP_OFFSET] = base_offset
        self._state[indexing.STATE_LAST_TIME] = NO_TIMESTAMP
        self._state[indexing.STATE_LAST_TIME_OFFSET] = base_offset
        self._offset_parts: list[NDArray[np.int64]] = []
        self._time_parts: list[NDArray[np.int64]] = []

    @classmethod
    def resume(
        cls,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        *,
        size: int,
        first_timestamp: int = NO_TIMESTAMP,
        index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    ) -> Self:
        """Go on behind the indexes of an existing segment, as a broker does that reopens it.

        The bytes since the last entry count from 0 again, and the greatest timestamp is the last time entry's.
        `size` is that of the log file, `first_timestamp` the greatest of the segment's first batch.
        """
        builder = cls(offset_index.base_offset, index_interval_bytes)
        state = builder._state
        state[indexing.STATE_SIZE] = size
        state[indexing.STATE_FIRST_TIMESTAMP] = first_timestamp
        state[indexing.STATE_OFFSET_ENTRIES] = len(offset_index)
        state[indexing.STATE_LAST_INDEXED] = offset_index.last_offset
        state[indexing.STATE_TIME_ENTRIES] = len(time_index)
        state[[indexing.STATE_LAST_TIME, indexing.STATE_LAST_TIME_OFFSET]] = time_index.last_entry
        state[[indexing.STATE_MAX_TIMESTAMP, indexing.STATE_MAX_TIMESTAMP_OFFSET]] = time_index.last_entry
        builder._offset_parts.append(np.stack([offset_index.offsets, offset_index.positions]))
        builder._time_parts.append(np.stack([time_index.timestamps, time_index.offsets]))
        return builder

    @property
    def size(self) -> int:
        """Bytes of the segment so far."""
        return int(self._state[indexing.STATE_SIZE])

    @property
    def max_timestamp(self) -> int:
        """Greatest timestamp so far, -1 where there is none."""
        return int(self._state[indexing.STATE_MAX_TIMESTAMP])

    def add(self, table: Table, rows: int, first_position: int | None = None, *, first_row: int = 0) -> None:
        """Take `rows` rows, from `first_row` on, which lie back to back in the file, the first at `first_position`.

        Raises:
            LogError: The rows cannot be in one segment with what came before (`add_until_roll` would say why).
        """
        taken, stop = self.add_until_roll(table, rows, None, first_position, first_row=first_row)
        if stop is not Stop.NONE:
            offset = int(table[LAST_OFFSET, first_row + taken])
            raise LogError(REASONS[stop], position=self.size, offset=offset)

    def add_until_roll(
        self,
        table: Table,
        rows: int,
        limits: RollLimits | None,
        first_position: int | None = None,
        *,
        first_row: int = 0,
    ) -> tuple[int, Stop]:
        """Take rows while the segment has room for them; return how many, and why no more."""
        if first_position is not None:
            self._state[indexing.STATE_SIZE] = first_position
        limit_array = _NO_LIMITS if limits is None else limits.to_array()
        room = min(rows, _ROOM)
        taken = 0
        while True:
            offsets = np.empty((2, room), np.int64)
            times = np.empty((2, room), np.int64)
            start = first_row + taken
            count, offset_count, time_count, stop = fill_index_entries(
                table, start, first_row + rows, self._state, limit_array, offsets, times
            )
            taken += int(count)
            self._offset_parts.append(offsets[:, :offset_count].copy())
            self._time_parts.append(times[:, :time_count].copy())
            if stop != indexing.STOP_NO_SPACE:
                return taken, Stop(int(stop))

    def finish(self) -> None:
        """Add the final time entry, as Kafka does when it rolls, closes or recovers a segment; may be called again."""
        state = self._state
        if state[indexing.STATE_MAX_TIMESTAMP] > state[indexing.STATE_LAST_TIME]:
            top = state[[indexing.STATE_MAX_TIMESTAMP, indexing.STATE_MAX_TIMESTAMP_OFFSET]]
            self._time_parts.append(top.reshape(2, 1))
            state[indexing.STATE_TIME_ENTRIES] += 1
            state[[indexing.STATE_LAST_TIME, indexing.STATE_LAST_TIME_OFFSET]] = top

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index so far."""
        offsets, positions = _joined(self._offset_parts)
        return OffsetIndex(self.base_offset, offsets, positions)

    @property
    def time_index(self) -> TimeIndex:
        """The time index so far."""
        timestamps, offsets = _joined(self._time_parts)
        return TimeIndex(self.base_offset, timestamps, offsets)


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """All parts as one array, which then is the list's only part."""
    whole = np.concatenate(parts, axis=1) if parts else np.empty((2, 0), np.int64)
    parts[:] = [whole]
    return whole
