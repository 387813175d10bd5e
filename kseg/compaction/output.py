"""A segment that is being written to take the place of others: `.cleaned` files, complete and durable at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from kseg import durable
from kseg.errors import StorageError
from kseg.index.build import IndexBuilder
from kseg.index.txn import AbortedTxn, TxnIndex
from kseg.log.names import FileKind, FileState, segment_file_name
from kseg.log.swap import SEGMENT_FILES
from kseg.native import table as t


class CleanedSegment:
    """Takes batches in order; `finish` makes it complete, `abandon` takes its files away."""

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        self._directory = directory
        self.base_offset = base_offset
        self._builder = IndexBuilder(base_offset, index_interval_bytes)
        for kind in SEGMENT_FILES:
            durable.unlink(self._path(kind), missing_ok=True)
        self._log = self._path(FileKind.LOG)
        self._fd = durable.create(self._log)
        self._started = 0

    def _path(self, kind: FileKind) -> Path:
        return self._directory / segment_file_name(self.base_offset, kind, FileState.CLEANED)

    @property
    def log_path(self) -> Path:
        """The log file as long as it is not put in the place of another."""
        return self._path(FileKind.LOG)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._builder.size

    def append(self, data: t.Bytes, table: t.Table) -> None:
        """Write batches that lie back to back in `data`."""
        self._builder.add(table, table.shape[1])
        durable.write_all(self._fd, data, self._log)
        size = self._builder.size
        if size - self._started >= durable.WRITE_BACK_BYTES:
            durable.start_writing(self._fd, self._started, size - self._started)
            self._started = size

    def finish(self, aborted: Iterable[AbortedTxn], mtime_ms: int) -> None:
        """Write the indexes, force everything to the disk, and set the time of the last change."""
        self._builder.finish()
        durable.fsync_file(self._fd)
        self._close()
        transactions = TxnIndex.of(aborted)
        self._write(FileKind.OFFSET_INDEX, self._builder.offset_index.to_bytes())
        self._write(FileKind.TIME_INDEX, self._builder.time_index.to_bytes())
        if len(transactions):
            self._write(FileKind.TXN_INDEX, transactions.to_bytes())
        for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            durable.set_mtime_ms(self._path(kind), mtime_ms)

    def _write(self, kind: FileKind, data: bytes) -> None:
        path = self._path(kind)
        with durable.closing(durable.create(path), path) as fd:
            durable.write_all(fd, data, path)
            durable.fsync_file(fd)

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            durable.close(fd, self._path(FileKind.LOG))

    def abandon(self) -> None:
        """Take everything away that was written."""
        with contextlib.suppress(StorageError):  # what failed before is what counts
            self._close()
        for kind in SEGMENT_FILES:
            durable.unlink(self._path(kind), missing_ok=True)
