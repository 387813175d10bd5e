"""Append encoded batches to a partition: roll, index, follow producers and epochs, and finish durably.

Every change to the log goes through here, batch tables in and bytes out; `kseg.log.writer` is the part that users see.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kseg import durable
from kseg.errors import CorruptRecordError, LogError, OptionError, StorageError, UnsupportedError
from kseg.format.batch import checksum_error, offset_shown
from kseg.index.build import Stop
from kseg.log.checkpoints import write_leader_epochs
from kseg.log.config import LogConfig
from kseg.log.files import snapshot_offsets, stray_snapshots
from kseg.log.names import MAX_OFFSET, FileKind, segment_file_name
from kseg.log.writer_open import FoundLog
from kseg.log.writer_producers import ProducerFields, check_producer_epoch, check_range, producer_fields
from kseg.log.writer_segment import ActiveSegment
from kseg.log.writer_session import WriteSession
from kseg.native import table as t
from kseg.native.headers import WALKED, fill_headers, scan_checksums
from kseg.native.memory import as_array
from kseg.storage import LocalStore
from kseg.types import Codec


class Appender:
    """Owns a partition's active segment, producer state and epochs from open to close."""

    def __init__(
        self, directory: Path, config: LogConfig, session: WriteSession, found: FoundLog, active: ActiveSegment
    ) -> None:
        self.directory = directory
        self.next_offset = found.next_offset
        self._start_offset = found.start_offset
        self._config = config
        self._session = session
        self._active = active
        self._bases = {*found.bases, active.base_offset}
        self._producers = found.producers
        self._producers.end_offset = self.next_offset
        self._epochs = found.epochs
        self._latest_epoch = found.latest_epoch
        self._failed = False
        self._closed = False

    # -- what a batch may say ------------------------------------------------------------------------------------------

    def check_epoch(self, leader_epoch: int | None) -> int:
        """The epoch for new batches; without a wish the last one known, else 0."""
        if leader_epoch is None:
            return max(self._latest_epoch, 0)
        check_range("leader_epoch", leader_epoch, 31)
        if leader_epoch < self._latest_epoch:
            raise OptionError(f"leader_epoch {leader_epoch} is below the log's last one, {self._latest_epoch}")
        return leader_epoch

    def producer_fields(
        self, producer_id: int | None, producer_epoch: int, base_sequence: int | None, *, transactional: bool
    ) -> ProducerFields:
        """Check who wants to write; see `writer_producers.producer_fields`."""
        return producer_fields(
            self._producers,
            producer_id,
            producer_epoch,
            base_sequence,
            transactional=transactional,
            path=self.directory,
        )

    def check_producer_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Check the epoch of a marker; see `writer_producers.check_producer_epoch`."""
        check_producer_epoch(self._producers, producer_id, producer_epoch, self.directory)

    # -- writing -------------------------------------------------------------------------------------------------------

    def write_checked(self, data: bytes | t.Bytes, rows: int, *, now_ms: int) -> t.Table:
        """Write whole batches of magic 2 after a look at what they are; return their table."""
        data = as_array(data)
        table = t.new_table(rows)
        filled, end, status = fill_headers(data, 0, len(data), 0, table, 0)
        if status != WALKED or filled != rows:
            raise CorruptRecordError(f"{len(data)} bytes are not {rows} whole batches", position=int(end))
        self._check_batches(data, table)
        self.write(data, table, now_ms=now_ms)
        return table

    def _check_batches(self, data: t.Bytes, table: t.Table) -> None:
        strange = (table[t.MAGIC] != 2) | (table[t.ATTRIBUTES] & t.CODEC_MASK > Codec.ZSTD) | (table[t.COUNT] < 0)
        if strange.any():
            row = int(strange.argmax())
            raise UnsupportedError(
                "only batches of magic 2 with a known codec are written",
                position=int(table[t.POSITION, row]),
                offset=offset_shown(table, row),
            )
        bad_row, computed = scan_checksums(data, 0, table, 0, table.shape[1])
        if bad_row >= 0:
            raise checksum_error(table, bad_row, computed)
        before = np.append(self.next_offset - 1, table[t.LAST_OFFSET, :-1])
        wrong = (table[t.BASE_OFFSET] <= before) | (table[t.LAST_OFFSET] < table[t.BASE_OFFSET])
        if wrong.any():
            row = int(wrong.argmax())
            message = f"offsets must rise from {int(before[row]) + 1} on"
            raise LogError(message, path=str(self.directory), offset=int(table[t.BASE_OFFSET, row]))
        if (table[t.PRODUCER_ID] >= 0).any():
            # A trial on a copy: a broker refuses to load a log in which a producer left its open transaction.
            self._producers.only(table[t.PRODUCER_ID]).add(table, table.shape[1])

    def write(self, data: t.Bytes, table: t.Table, *, now_ms: int) -> None:
        """Write batches that are known to be sound and in order, rolling where a segment is full."""
        if int(table[t.LAST_OFFSET, -1]) >= MAX_OFFSET:
            raise OptionError(f"offset {table[t.LAST_OFFSET, -1]} is too large")
        row = 0
        while row < table.shape[1]:
            with self._changing():
                taken, stop = self._active.take(table, row, now_ms=now_ms)
                if taken:
                    self._write_rows(data, table, row, taken)
                row += taken
                if stop.rolls:
                    self._roll(int(table[t.BASE_OFFSET, row]), now_ms)
            if stop is not Stop.NONE and not stop.rolls:
                raise OptionError(
                    f"a batch of {table[t.SIZE, row]} bytes is larger than segment_bytes, {self._config.segment_bytes}",
                    path=str(self.directory),
                    offset=int(table[t.BASE_OFFSET, row]),
                )

    def _write_rows(self, data: t.Bytes, table: t.Table, row: int, rows: int) -> None:
        last = row + rows - 1
        epochs = self._epochs.assign_batches(table, rows, first_row=row)
        if epochs is not self._epochs:  # before the data, as a broker does: an epoch without data is dropped on loading
            write_leader_epochs(str(self.directory), epochs)
            self._epochs = epochs
            self._latest_epoch = max(self._latest_epoch, epochs.entries[-1].epoch)
        end = int(table[t.POSITION, last] + table[t.SIZE, last])
        self._active.write(data[int(table[t.POSITION, row]) : end])
        self._producers.add(table, rows, first_row=row)
        self.next_offset = int(table[t.LAST_OFFSET, last]) + 1

    def roll(self, *, now_ms: int) -> None:
        """Start a new segment at the next offset, unless this one is empty."""
        if self._active.size:
            with self._changing():
                self._roll(self.next_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        if base_offset == self._active.base_offset:
            raise LogError("a segment without a batch is full", path=str(self._active.path))
        self._active.seal(self._producers.take_aborted())
        self._producers.end_offset = base_offset
        self._snapshot(now_ms)
        self._active = ActiveSegment.create(self.directory, base_offset, self._config, now_ms=now_ms)
        self._bases.add(base_offset)

    def _snapshot(self, now_ms: int) -> None:
        """Write the producers' state; Kafka has no snapshot at the very start of a log."""
        self._producers.forget_completed(self._producers.end_offset)
        offset = self._producers.end_offset
        if offset > self._start_offset:
            lasting = self._producers.copy()  # this writer goes on with all of them: they write through it
            lasting.expire(now_ms, self._config.producer_id_expiration_ms)
            path = self.directory / segment_file_name(offset, FileKind.SNAPSHOT)
            durable.publish(path, lasting.to_snapshot_bytes())

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Whatever ends a change early leaves memory and disk apart: no further change is made then."""
        self._session.check_process()
        if self._failed or self._closed:
            state = "closed" if self._closed else "unusable since a write failed"
            raise LogError(f"the writer is {state}", path=str(self.directory))
        self._failed = True
        yield
        self._failed = False

    # -- the end -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Force what was written to the disk; sealed segments are there already."""
        with self._changing():
            self._active.flush()

    def close(self, *, now_ms: int) -> None:
        """Finish durably, in this order: segment, snapshot, checkpoints, marker, lock; after a failure only let go.

        In a forked child it only closes the child's own file: the log is still its parent's to finish.
        """
        if self._closed:
            return
        if not self._session.is_own:
            self._closed = True
            self._active.close()
            return
        try:
            if not self._failed:
                with self._changing():
                    self._finish(now_ms)
        finally:
            self._closed = True
            try:
                self._active.close()
            finally:
                self._session.end(failed=self._failed)

    def drop(self) -> None:
        """Give back file and lock, and write nothing: whoever opens the log next recovers it."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(StorageError):
            self._active.close()
        if self._session.is_own:
            self._session.drop()
            message = f"the writer of {str(self.directory)!r} was never closed: its log is as after a crash"
            warnings.warn(message, ResourceWarning, stacklevel=2)

    def _finish(self, now_ms: int) -> None:
        self._active.seal(self._producers.take_aborted())
        self._producers.end_offset = self.next_offset
        self._snapshot(now_ms)
        snapshots = snapshot_offsets(LocalStore().list(str(self.directory)))
        for offset in stray_snapshots(snapshots, self._bases, self.next_offset):
            durable.unlink(self.directory / segment_file_name(offset, FileKind.SNAPSHOT))
        durable.fsync_dir(self.directory)
        self._session.move_checkpoints(self.next_offset)
