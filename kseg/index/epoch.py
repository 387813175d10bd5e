"""Leader epochs: which leader's term wrote which offsets of a partition, and the checkpoint that keeps them.

The rules are those of Kafka's LeaderEpochFileCache: epochs and start offsets both ascend strictly.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from kseg.errors import IndexFileError
from kseg.index.checkpoint import format_lines, parse_epochs
from kseg.native.table import BASE_OFFSET, LEADER_EPOCH, Table

UNDEFINED: Final = (-1, -1)


class EpochStart(NamedTuple):
    """A leader epoch and the first offset written under it."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """Epochs of a partition, ascending; methods that change something give a new value."""

    entries: tuple[EpochStart, ...] = ()

    @classmethod
    def parse(cls, data: bytes, path: str | None = None) -> Self:
        """Read a leader-epoch-checkpoint; entries that do not ascend push out earlier ones, as in a broker.

        Raises:
            IndexFileError: The file is malformed or holds a negative number.
        """
        epochs = cls()
        for epoch, offset in parse_epochs(data, path):
            if epoch < 0 or offset < 0:
                raise IndexFileError(f"epoch {epoch} at offset {offset} is negative", path=path)
            epochs = epochs.assign(epoch, offset)
        return epochs

    def to_bytes(self) -> bytes:
        """The checkpoint's bytes."""
        return format_lines(self.entries)

    @property
    def latest(self) -> EpochStart | None:
        """The last entry."""
        return self.entries[-1] if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> Self:
        """Say that `epoch` began at `start_offset`; entries that contradict it go."""
        latest = self.latest
        if latest is not None and epoch == latest.epoch and start_offset >= latest.start_offset:
            return self
        kept = list(self.entries)
        while kept and (kept[-1].epoch >= epoch or kept[-1].start_offset >= start_offset):
            kept.pop()
        return type(self)((*kept, EpochStart(epoch, start_offset)))

    def assign_batches(self, table: Table, rows: int, *, first_row: int = 0) -> Self:
        """Take the epochs of batches, as recovery does: those that are greater than all before."""
        values = table[LEADER_EPOCH, first_row : first_row + rows]
        if not len(values):
            return self
        floor = self.latest.epoch if self.latest is not None else -1
        before = np.maximum.accumulate(np.append(floor, values[:-1]))
        epochs = self
        for row in np.flatnonzero(values > before):
            epochs = epochs.assign(int(values[row]), int(table[BASE_OFFSET, first_row + row]))
        return epochs

    def truncate_from_end(self, end_offset: int) -> Self:
        """Drop epochs that begin at or behind `end_offset`."""
        return type(self)(tuple(entry for entry in self.entries if entry.start_offset < end_offset))

    def truncate_from_start(self, start_offset: int) -> Self:
        """Drop epochs before the one that holds `start_offset`, which from now on begins there."""
        dropped = [entry for entry in self.entries if entry.start_offset <= start_offset]
        if not dropped:
            return self
        first = EpochStart(dropped[-1].epoch, start_offset)
        return type(self)((first, *self.entries[len(dropped) :]))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Answer OffsetsForLeaderEpoch: (greatest known epoch not above `epoch`, where it ended), else (-1, -1)."""
        latest = self.latest
        if latest is None or epoch < 0 or epoch > latest.epoch:
            return UNDEFINED
        if epoch == latest.epoch:
            return epoch, log_end_offset
        higher = bisect.bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        floor = self.entries[higher - 1].epoch if higher else epoch
        return floor, self.entries[higher].start_offset

    def epoch_of(self, offset: int) -> int | None:
        """The epoch under which an offset was written, None where that is not known."""
        slot = bisect.bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[slot - 1].epoch if slot else None
