"""The offset index: from a Kafka offset to a byte position in the segment.

An entry is i32 relative offset, i32 position, big-endian: the LAST offset of a batch and the place of that batch's
first byte. It is sparse, and files of older brokers hold the last offset of a whole append instead, so a reader
always scans on from the position. While a segment is active its file is zero-padded to full size; after a crash it
stays so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kseg.errors import IndexFileError
from kseg.types import MAX_OFFSET

ENTRY_SIZE: Final = 8
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_ENTRY = np.dtype([("relative", ">i4"), ("position", ">i4")])


def first_broken(rows: NDArray[np.bool_]) -> int:
    """Where the first True is; the length where there is none."""
    return int(rows.argmax()) if rows.any() else len(rows)


@dataclass(frozen=True, slots=True, eq=False)
class OffsetIndex:
    """Entries of an offset index, as columns."""

    base_offset: int
    offsets: NDArray[np.int64]
    positions: NDArray[np.int64]
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
        relative = entries["relative"].astype(np.int64)
        positions = entries["position"].astype(np.int64)
        broken = (relative < 0) | (relative > MAX_OFFSET - base_offset) | (positions < 0)
        broken[1:] |= (np.diff(relative) <= 0) | (np.diff(positions) <= 0)
        if len(entries) and relative[0] == 0 and positions[0] == 0:
            broken[0] = True  # padding: a segment's first batch is never indexed
        end = first_broken(broken)
        problems = []
        if len(data) % ENTRY_SIZE:
            problems.append(IndexFileError(f"length {len(data)} is no multiple of {ENTRY_SIZE}", path=path))
        if relative[end:].any() or positions[end:].any():
            message = f"entry {end} ({relative[end]}, {positions[end]}) does not follow the entry before it"
            problems.append(IndexFileError(message, path=path, position=end * ENTRY_SIZE))
        return cls(base_offset, relative[:end] + base_offset, positions[:end], path, tuple(problems))

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return len(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.offsets.tolist(), self.positions.tolist(), strict=True)

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset where there is none."""
        return int(self.offsets[-1]) if len(self.offsets) else self.base_offset

    def lookup(self, offset: int) -> tuple[int, int]:
        """The entry with the greatest offset not above `offset`, else (base offset, 0)."""
        slot = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        if slot < 0:
            return self.base_offset, 0
        return int(self.offsets[slot]), int(self.positions[slot])

    def fetch_upper_bound(self, position: int, size: int) -> tuple[int, int] | None:
        """The entry with the smallest position at or above `position + size`: a bound for a fetch, not a tight one."""
        slot = int(np.searchsorted(self.positions, position + size, side="left"))
        if slot == len(self.positions):
            return None
        return int(self.offsets[slot]), int(self.positions[slot])

    def truncated(self, offset: int) -> OffsetIndex:
        """The same without entries at or above `offset`."""
        end = int(np.searchsorted(self.offsets, offset, side="left"))
        return OffsetIndex(self.base_offset, self.offsets[:end], self.positions[:end], self.path)

    def to_bytes(self) -> bytes:
        """The file's bytes, trimmed as Kafka trims them when it seals the segment."""
        entries = np.empty(len(self.offsets), _ENTRY)
        entries["relative"] = self.offsets - self.base_offset
        entries["position"] = self.positions
        return entries.tobytes()

    def check(self, *, log_size: int | None = None, next_offset: int | None = None) -> list[IndexFileError]:
        """All that is wrong: lengths, order, entries that point past the log's end or at offsets it does not have."""
        problems = list(self.parse_problems)
        if len(self.offsets):
            place = (len(self.offsets) - 1) * ENTRY_SIZE
            if log_size is not None and self.positions[-1] >= log_size:
                message = f"last entry points at byte {self.positions[-1]} of a log of {log_size} bytes"
                problems.append(IndexFileError(message, path=self.path, position=place))
            if next_offset is not None and self.last_offset >= next_offset:
                message = f"last entry has offset {self.last_offset}, the segment ends before {next_offset}"
                problems.append(IndexFileError(message, path=self.path, position=place, offset=self.last_offset))
        return problems
