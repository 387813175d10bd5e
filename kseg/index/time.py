"""The time index: from a timestamp to an offset in the segment.

An entry is i64 timestamp, i32 relative offset, big-endian: the greatest timestamp seen up to some batch, and the last
offset of the earliest batch that carried it. The last entry of a sealed segment is the segment's greatest timestamp.
Padded with zeros while the segment is active, as the offset index is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kseg.errors import IndexFileError
from kseg.index.offset import first_broken
from kseg.types import MAX_OFFSET, NO_TIMESTAMP

ENTRY_SIZE: Final = 12
_ENTRY = np.dtype([("timestamp", ">i8"), ("relative", ">i4")])


@dataclass(frozen=True, slots=True, eq=False)
class TimeIndex:
    """Entries of a time index, as columns."""

    base_offset: int
    timestamps: NDArray[np.int64]
    offsets: NDArray[np.int64]
    path: str | None = None
    parse_problems: tuple[IndexFileError, ...] = ()

    @classmethod
    def empty(cls, base_offset: int, path: str | None = None) -> Self:
        """An index without entries."""
        return cls(base_offset, np.empty(0, np.int64), np.empty(0, np.int64), path)

    @classmethod
    def parse(cls, data: bytes, base_offset: int, path: str | None = None) -> Self:
        """Read a file's bytes; the data end at the padding, or where entries stop to ascend (see `check`)."""
        entries = np.frombuffer(data, _ENTRY, len(data) // ENTRY_SIZE)
        timestamps = entries["timestamp"].astype(np.int64)
        relative = entries["relative"].astype(np.int64)
        broken = (timestamps < 0) | (relative < 0) | (relative > MAX_OFFSET - base_offset)
        broken[1:] |= (timestamps[1:] <= timestamps[:-1]) | (relative[1:] < relative[:-1]) | (relative[1:] == 0)
        if len(entries) > 1 and not timestamps[:2].any() and not relative[:2].any():
            broken[0] = True  # padding; alone, or with an entry behind it, it is a true one: time 0 in the first batch
        end = first_broken(broken)
        problems = []
        if len(data) % ENTRY_SIZE:
            problems.append(IndexFileError(f"length {len(data)} is no multiple of {ENTRY_SIZE}", path=path))
        if timestamps[end:].any() or relative[end:].any():
            message = f"entry {end} ({timestamps[end]}, {relative[end]}) does not follow the entry before it"
            problems.append(IndexFileError(message, path=path, position=end * ENTRY_SIZE))
        return cls(base_offset, timestamps[:end], relative[:end] + base_offset, path, tuple(problems))

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return len(self.timestamps)

    def __len__(self) -> int:
        return len(self.timestamps)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.timestamps.tolist(), self.offsets.tolist(), strict=True)

    @property
    def last_entry(self) -> tuple[int, int]:
        """The last (timestamp, offset); (-1, base offset) where there is none."""
        if not len(self.timestamps):
            return NO_TIMESTAMP, self.base_offset
        return int(self.timestamps[-1]), int(self.offsets[-1])

    @property
    def max_timestamp(self) -> int:
        """Timestamp of the last entry: what Kafka takes for the segment's greatest; -1 where there is none."""
        return self.last_entry[0]

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The entry with the greatest timestamp not above `timestamp`, else (-1, base offset)."""
        slot = int(np.searchsorted(self.timestamps, timestamp, side="right")) - 1
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        return int(self.timestamps[slot]), int(self.offsets[slot])

    def truncated(self, offset: int) -> TimeIndex:
        """The same without entries at or above `offset`."""
        end = int(np.searchsorted(self.offsets, offset, side="left"))
        return TimeIndex(self.base_offset, self.timestamps[:end], self.offsets[:end], self.path)

    def to_bytes(self) -> bytes:
        """The file's bytes, trimmed as Kafka trims them when it seals the segment."""
        entries = np.empty(len(self.timestamps), _ENTRY)
        entries["timestamp"] = self.timestamps
        entries["relative"] = self.offsets - self.base_offset
        return entries.tobytes()

    def check(self, *, next_offset: int | None = None) -> list[IndexFileError]:
        """All that is wrong: lengths, order, entries at offsets that the segment does not have."""
        problems = list(self.parse_problems)
        offset = self.last_entry[1]
        if len(self.offsets) and next_offset is not None and offset >= next_offset:
            message = f"last entry has offset {offset}, the segment ends before {next_offset}"
            place = (len(self.offsets) - 1) * ENTRY_SIZE
            problems.append(IndexFileError(message, path=self.path, position=place, offset=offset))
        return problems
