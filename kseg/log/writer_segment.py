"""The segment that is being appended to: its log file on disk, its indexes in memory.

The index files are written when the segment is sealed (roll or close), `.index` last and by rename. Until then the
segment has no `.index` at all: an old one is deleted, durably, before the first byte is appended. A crash so leaves a
segment without an offset index, which a broker's loader (and a reader of kseg) takes as the sign to rebuild all its
indexes from the log; a stale one beside new data would pass, and would hide what was aborted since.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Self

import numpy as np

from kseg import durable
from kseg.errors import StorageError
from kseg.index.build import IndexBuilder, RollLimits, Stop
from kseg.index.txn import TxnIndex
from kseg.log.config import LogConfig
from kseg.log.names import FileKind, segment_file_name
from kseg.native import table as t

_SIDECARS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


class ActiveSegment:
    """The last segment of a log, open for appending."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        builder: IndexBuilder,
        fd: int,
        *,
        aborted: TxnIndex | None,
        now_ms: int,
    ) -> None:
        self.base_offset = builder.base_offset
        self._directory = directory
        self._builder = builder
        self._fd = fd
        self._aborted = aborted
        self._created_ms = now_ms
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        self._segment_ms = config.segment_ms - (random.randrange(jitter) if jitter else 0)
        self._config = config

    @classmethod
    def create(cls, directory: Path, base_offset: int, config: LogConfig, *, now_ms: int) -> Self:
        """Make the file of a new segment, durably; leftovers under its name, which belong to no log, go first."""
        for kind in _SIDECARS:
            durable.unlink(directory / segment_file_name(base_offset, kind), missing_ok=True)
        fd = durable.create(directory / segment_file_name(base_offset, FileKind.LOG))
        durable.fsync_dir(directory)
        builder = IndexBuilder(base_offset, config.index_interval_bytes)
        return cls(directory, config, builder, fd, aborted=None, now_ms=now_ms)

    @classmethod
    def reopen(
        cls, directory: Path, config: LogConfig, builder: IndexBuilder, *, aborted: TxnIndex | None, now_ms: int
    ) -> Self:
        """Go on with an existing segment, all of whose bytes `builder` has seen."""
        path = directory / segment_file_name(builder.base_offset, FileKind.LOG)
        durable.unlink(directory / segment_file_name(builder.base_offset, FileKind.OFFSET_INDEX), missing_ok=True)
        durable.fsync_dir(directory)
        return cls(directory, config, builder, durable.open_write(path), aborted=aborted, now_ms=now_ms)

    @property
    def path(self) -> Path:
        """The log file."""
        return self._directory / segment_file_name(self.base_offset, FileKind.LOG)

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        return self._builder.size

    def take(self, table: t.Table, first_row: int, *, now_ms: int) -> tuple[int, Stop]:
        """Index the rows from `first_row` on that there is room for; return how many, and why no more.

        `write` has to follow with the bytes of these rows.
        """
        limits = RollLimits(
            segment_bytes=self._config.segment_bytes,
            segment_ms=self._segment_ms,
            index_bytes=self._config.segment_index_bytes,
            age_ms=now_ms - self._created_ms,
        )
        return self._builder.add_until_roll(table, table.shape[1] - first_row, limits, first_row=first_row)

    def write(self, data: t.Bytes) -> None:
        """Append the bytes of rows that were taken; a write that fails is taken back as far as the disk lets us."""
        position = self.size - data.nbytes
        try:
            durable.write_at(self._fd, position, data, self.path)
        except StorageError as error:
            try:
                durable.truncate(self._fd, position)
            except StorageError as second:
                error.add_note(f"a torn batch may be left at byte {position}: {second}")
            raise

    def flush(self) -> None:
        """Force what was written to the disk."""
        durable.fsync_file(self._fd)

    def seal(self, aborted: TxnIndex) -> None:
        """Make the segment complete and durable: its log, then its indexes, the offset index last.

        Args:
            aborted: Transactions whose markers were appended since the segment was opened.
        """
        self.flush()
        self._builder.finish()
        self._publish(FileKind.TIME_INDEX, self._builder.time_index.to_bytes())
        columns = aborted.columns if self._aborted is None else np.hstack([self._aborted.columns, aborted.columns])
        if columns.shape[1]:
            self._publish(FileKind.TXN_INDEX, TxnIndex(columns).to_bytes())
        else:
            durable.unlink(self._directory / segment_file_name(self.base_offset, FileKind.TXN_INDEX), missing_ok=True)
        self._publish(FileKind.OFFSET_INDEX, self._builder.offset_index.to_bytes())
        self.close()

    def close(self) -> None:
        """Close the log file; a second call does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            durable.close(fd, self.path)

    def _publish(self, kind: FileKind, data: bytes) -> None:
        durable.publish(self._directory / segment_file_name(self.base_offset, kind), data)
