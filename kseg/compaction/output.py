"""Segments that are being written to take the place of others: `.cleaned` files, complete and durable at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from kseg import durable
from kseg.compaction.config import MAX_INT32, MAX_INT64, CleanerConfig
from kseg.compaction.tasks import File, write_file
from kseg.errors import StorageError
from kseg.index.build import IndexBuilder, RollLimits, Stop
from kseg.index.txn import AbortedTxn, TxnIndex
from kseg.log.names import FileKind, FileState, segment_file_name
from kseg.log.swap import SEGMENT_FILES
from kseg.native import table as t


def remove_cleaned(directory: Path, base_offset: int) -> None:
    """Take the files of a segment away that is not in the place of another yet."""
    for kind in SEGMENT_FILES:
        durable.unlink(directory / segment_file_name(base_offset, kind, FileState.CLEANED), missing_ok=True)


class CleanedSegment:
    """Takes batches in order; `finish` makes it complete, `abandon` takes its files away."""

    def __init__(self, directory: Path, builder: IndexBuilder, like: Path | None = None) -> None:
        """Create it; who may read and write it is as for `like`, or for the segment whose name it will have."""
        self._directory = directory
        self.base_offset = builder.base_offset
        self.builder = builder
        remove_cleaned(directory, self.base_offset)
        self._log = self._path(FileKind.LOG)
        self._fd = durable.create(self._log)
        if like is not None:
            durable.take_mode(self._log, like)
        self._started = 0
        self.indexes: tuple[File, ...] = ()

    def _path(self, kind: FileKind) -> Path:
        return self._directory / segment_file_name(self.base_offset, kind, FileState.CLEANED)

    @property
    def log_path(self) -> Path:
        """The log file as long as it is not put in the place of another."""
        return self._path(FileKind.LOG)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.builder.size

    def append(self, data: t.Bytes, table: t.Table) -> None:
        """Write batches that lie back to back in `data`."""
        self.builder.add(table, table.shape[1])
        self.write(data)

    def write(self, data: t.Bytes) -> None:
        """Write batches that the builder has taken already."""
        durable.write_all(self._fd, data, self._log)
        size = self.builder.size
        if size - self._started >= durable.WRITE_BACK_BYTES:
            durable.start_writing(self._fd, self._started, size - self._started)
            self._started = size

    def finish(self, aborted: Iterable[AbortedTxn], mtime_ms: int) -> None:
        """Write the indexes, force everything to the disk, and set the time of the last change."""
        self.builder.finish()
        durable.fsync_file(self._fd)
        self._close()
        transactions = TxnIndex.of(aborted)
        contents = {
            FileKind.OFFSET_INDEX: self.builder.offset_index.to_bytes(),
            FileKind.TIME_INDEX: self.builder.time_index.to_bytes(),
        }
        if len(transactions):
            contents[FileKind.TXN_INDEX] = transactions.to_bytes()
        self.indexes = tuple(
            write_file(self._path(kind), [np.frombuffer(data, np.uint8)]) for kind, data in contents.items()
        )
        for file in self.indexes:
            durable.take_mode(file.path, self._log)
        for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            durable.set_mtime_ms(self._path(kind), mtime_ms)

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            durable.close(fd, self._path(FileKind.LOG))

    def abandon(self) -> None:
        """Take everything away that was written."""
        with contextlib.suppress(StorageError):  # what failed before is what counts
            self._close()
        remove_cleaned(self._directory, self.base_offset)


class Roller:
    """Says which segment batches belong to: the last one, or a new one where that is full, as Kafka's log rolls.

    The first segment has the base offset that it is given, each other one that of its first batch. A batch that is
    larger than a segment may be has one of its own.
    """

    def __init__(self, base_offset: int, config: CleanerConfig) -> None:
        self._interval = config.index_interval_bytes
        self._limits = RollLimits(segment_bytes=config.segment_bytes, index_bytes=config.segment_index_bytes)
        self._last_offset = base_offset - 1
        self.builder = IndexBuilder(base_offset, self._interval)
        self.segments = 1

    def place(self, table: t.Table) -> Iterator[tuple[IndexBuilder, range]]:
        """Take batches; give the builders of their segments, each with the rows that it has taken.

        Raises:
            LogError: A batch fits no segment.
        """
        row, rows = 0, table.shape[1]
        while row < rows:
            taken, stop = self.builder.add_until_roll(table, rows - row, self._limits, first_row=row)
            if not taken and self.builder.size and (stop.rolls or stop is Stop.BATCH_TOO_LARGE):
                self.builder = IndexBuilder(self._base_offset(table, row), self._interval)
                self.segments += 1
                continue
            if not taken:  # a segment has one batch at least
                self.builder.add(table, 1, first_row=row)
                taken = 1
            yield self.builder, range(row, row + taken)
            row += taken
            self._last_offset = int(table[t.LAST_OFFSET, row - 1])

    def _base_offset(self, table: t.Table, row: int) -> int:
        first = int(table[t.BASE_OFFSET, row])
        if first > self._last_offset:
            return first
        least = int(table[t.LAST_OFFSET, row]) - MAX_INT32  # a legacy wrapper of which only the end is known
        return max(least, self._last_offset + 1)


class CleanedSegments:
    """Takes batches in order, for as many segments as they need; all of them have the same time of the last change.

    An aborted transaction is listed by the segment that has its marker.
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: CleanerConfig,
        *,
        aborted: Sequence[AbortedTxn],
        mtime_ms: int,
    ) -> None:
        self._directory = directory
        self._aborted = aborted
        self._mtime_ms = mtime_ms
        self._roller = Roller(base_offset, config)
        self._segments = [CleanedSegment(directory, self._roller.builder)]

    @property
    def base_offsets(self) -> list[int]:
        """Of the segments so far."""
        return [segment.base_offset for segment in self._segments]

    @property
    def size(self) -> int:
        """Bytes so far."""
        return sum(segment.size for segment in self._segments)

    def append(self, data: t.Bytes, table: t.Table) -> None:
        """Write batches that lie back to back in `data`."""
        start = 0
        for builder, rows in self._roller.place(table):
            if builder is not self._segments[-1].builder:
                self._finish_last(builder.base_offset)
                self._segments.append(CleanedSegment(self._directory, builder, like=self._segments[0].log_path))
            end = start + int(table[t.SIZE, rows.start : rows.stop].sum())
            self._segments[-1].write(data[start:end])
            start = end

    def finish(self) -> None:
        """Make the last one complete too."""
        self._finish_last(MAX_INT64)

    def _finish_last(self, next_base: int) -> None:
        listed = [txn for txn in self._aborted if txn.last_offset < next_base]
        self._aborted = [txn for txn in self._aborted if txn.last_offset >= next_base]
        self._segments[-1].finish(listed, self._mtime_ms)

    def abandon(self) -> None:
        """Take everything away that was written."""
        for segment in self._segments:
            segment.abandon()
