"""Write a partition: Arrow in, segments out, as a broker would have written them.

    with kseg.create_log("data/orders-0") as log:
        log.append(table, codec="zstd")

What a crash leaves at any moment is a log that ends in whole batches or a torn one, and that a broker, or `append_to`,
recovers; `close` makes everything durable.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from kseg.errors import LogError, OptionError
from kseg.format.builder import BATCH_BYTES, MAX_COUNT, BatchOptions, EncodedBatches, encode_batches, encode_marker
from kseg.log.appender import Appender
from kseg.log.config import LogConfig
from kseg.log.writer_input import ArrowData, check_first_offset, iter_pieces
from kseg.log.writer_open import FoundLog, inspect, take_over
from kseg.log.writer_place import (
    check_topic_id,
    make_log_dir,
    make_partition_dir,
    partition_path,
    refuse_content,
)
from kseg.log.writer_producers import check_range, next_sequence
from kseg.log.writer_segment import ActiveSegment
from kseg.log.writer_session import WriteSession
from kseg.native import table as t
from kseg.types import Codec, OffsetRange

logger = logging.getLogger(__name__)

Clock = Callable[[], float]


class LogWriter:
    """A partition, open for appending; made by `create_log` and `append_to`. Not for use by several threads at once.

    As a context manager it closes itself, also when the body raises: what was appended until then stays. One that is
    forgotten gives its lock back with a ResourceWarning, and leaves the log as a crash would.

    Attributes:
        truncated_bytes: How many bytes of a torn tail were cut off when the log was opened.
    """

    def __init__(self, appender: Appender, config: LogConfig, *, clock: Clock, truncated_bytes: int = 0) -> None:
        self._appender = appender
        self._config = config
        self._clock = clock
        self.truncated_bytes = truncated_bytes
        self._finalizer = weakref.finalize(self, appender.drop)
        self._finalizer.atexit = False  # the end of a process gives its locks back

    def __repr__(self) -> str:
        return f"LogWriter({str(self.path)!r}, next offset {self.next_offset})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The partition directory."""
        return self._appender.directory

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets."""
        return self._appender.next_offset

    def append(
        self,
        data: ArrowData,
        *,
        codec: str | Codec = "none",
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        batch_records: int | None = None,
        leader_epoch: int | None = None,
        producer_id: int | None = None,
        producer_epoch: int = 0,
        base_sequence: int | None = None,
        transactional: bool = False,
    ) -> OffsetRange:
        """Encode and write rows; return the offsets they got.

        Columns are key, value, headers, timestamp and offset, each of which may be missing. An `offset` column gives
        the offsets: they must rise, and holes stay holes. Where a row is refused, what stands before it may have been
        written, in whole batches.

        Args:
            codec: none, gzip, snappy, lz4 or zstd.
            level: Of the codec; None is Kafka's default.
            batch_bytes: A batch is closed before its uncompressed bytes would pass this.
            batch_records: The most records of a batch.
            leader_epoch: By default the last one that the log knows, else 0; it cannot fall.
            producer_id: An idempotent producer's id; together with `transactional`, a transaction's.
            base_sequence: Of the first record; by default it follows the producer's last one.
            transactional: The rows count once `append_marker` has committed them.

        Raises:
            OptionError: An option, a column or a value is wrong.
            LogError: The rows contradict the log: an offset below its end, a producer outside its open transaction
                or with an epoch below its last one.
            StorageError: Writing failed; the writer cannot be used any more.
        """
        appender = self._appender
        check_range("batch_bytes", batch_bytes, 63)
        if batch_records is not None:
            check_range("batch_records", batch_records, 31)
        options = BatchOptions(
            codec=Codec.parse(codec),
            level=level,
            batch_bytes=min(batch_bytes, self._config.largest_batch(Codec.parse(codec))),
            batch_records=MAX_COUNT if batch_records is None else batch_records,
            timestamp_type=self._config.timestamp_type,
            leader_epoch=appender.check_epoch(leader_epoch),
            **appender.producer_fields(producer_id, producer_epoch, base_sequence, transactional=transactional),
        )
        start: int | None = None
        for piece in iter_pieces(data, batch_bytes=options.batch_bytes, batch_records=batch_records):
            now_ms = self._now_ms()
            options = replace(options, append_time_ms=now_ms)
            check_first_offset(piece, self.next_offset, self.path)
            encoded = encode_batches(piece, first_offset=self.next_offset, options=options, now_ms=now_ms)
            if encoded.count:
                start = int(encoded.table[t.BASE_OFFSET, 0]) if start is None else start
                appender.write(encoded.data, encoded.table, now_ms=now_ms)
                options = replace(options, base_sequence=next_sequence(encoded.table))
        return OffsetRange(self.next_offset if start is None else start, self.next_offset)

    def append_marker(
        self,
        producer_id: int,
        *,
        commit: bool,
        producer_epoch: int = 0,
        coordinator_epoch: int = 0,
        leader_epoch: int | None = None,
        timestamp_ms: int | None = None,
    ) -> OffsetRange:
        """End a producer's transaction with a COMMIT or ABORT marker, a control record that takes one offset.

        Args:
            timestamp_ms: Of the marker, by default now; a log with LogAppendTime gives it the time of this call.

        Raises:
            LogError: The producer's epoch is below its last one.
        """
        check_range("producer_id", producer_id, 63)
        self._appender.check_producer_epoch(producer_id, producer_epoch)
        check_range("coordinator_epoch", coordinator_epoch, 31)
        if timestamp_ms is not None:
            check_range("timestamp_ms", timestamp_ms, 63)
        if not isinstance(commit, bool | np.bool_):
            raise OptionError(f"commit must be True or False, got {commit!r}")
        start, now_ms = self.next_offset, self._now_ms()
        marker = encode_marker(
            offset=start,
            timestamp=now_ms if timestamp_ms is None else timestamp_ms,
            leader_epoch=self._appender.check_epoch(leader_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=bool(commit),
            coordinator_epoch=coordinator_epoch,
            timestamp_type=self._config.timestamp_type,
            append_time_ms=now_ms,
        )
        self._appender.write_checked(marker, 1, now_ms=now_ms)
        return OffsetRange(start, self.next_offset)

    def append_batches(self, encoded: EncodedBatches) -> OffsetRange:
        """Write batches of magic 2 as they are, with their own offsets, epochs and producers.

        Raises:
            OptionError: It is something else.
            FormatError: The bytes are no whole, sound batches.
            LogError: Their offsets do not rise from the log's end on, or they contradict an open transaction.
        """
        if not isinstance(encoded, EncodedBatches):
            raise OptionError(f"append_batches takes EncodedBatches, got {type(encoded).__name__}")
        before = self.next_offset
        if not encoded.count:
            return OffsetRange(before, before)
        table = self._appender.write_checked(encoded.data, encoded.count, now_ms=self._now_ms())
        return OffsetRange(int(table[t.BASE_OFFSET, 0]), self.next_offset)

    def roll(self) -> None:
        """Seal the segment and start a new one at the next offset; an empty segment stays as it is."""
        self._appender.roll(now_ms=self._now_ms())

    def flush(self) -> None:
        """Force all that was appended to the disk."""
        self._appender.flush()

    def close(self) -> None:
        """Make the log complete and durable, and give its directory back; a second call does nothing.

        The clean-shutdown marker comes back last. After a write that failed the log is only let go: whoever opens it
        next recovers it.
        """
        self._appender.close(now_ms=self._now_ms())

    def _now_ms(self) -> int:
        return _now_ms(self._clock)


def _now_ms(clock: Clock) -> int:
    """The clock's time in milliseconds.

    Raises:
        OptionError: It is no clock.
    """
    try:
        now_ms = int(clock() * 1000)
    except (TypeError, ValueError, OverflowError) as error:
        raise OptionError(f"clock must give seconds since the epoch, as time.time does: {error}") from None
    check_range("the clock's time in ms", now_ms, 63)
    return now_ms


def _checked_config(config: LogConfig | None) -> LogConfig:
    if config is not None and not isinstance(config, LogConfig):
        raise OptionError(f"config must be a LogConfig, got {config!r}")
    return config or LogConfig()


def create_log(
    path: str | os.PathLike[str],
    *,
    config: LogConfig | None = None,
    topic_id: str | None = None,
    start_offset: int = 0,
    clock: Clock = time.time,
) -> LogWriter:
    """Make a partition directory, named like `orders-0`, and open it for appending.

    Args:
        topic_id: Kafka's id of the topic, for partition.metadata; unless given, that of the topic's other
            partitions beside this one, else a random one.
        start_offset: The first offset.
        clock: Seconds since the epoch, for what has no timestamp of its own.

    Raises:
        OptionError: The directory's name is none of a partition, or another argument is wrong.
        LogError: The directory holds something already.
        LockedError: A broker or another job holds the directory around it.
    """
    config, now_ms = _checked_config(config), _now_ms(clock)
    directory, tp = partition_path(path)
    check_range("start_offset", start_offset, 62)
    topic_id = None if topic_id is None else check_topic_id(topic_id)
    make_log_dir(directory.parent)
    with ExitStack() as undo:
        session = WriteSession(directory.parent, tp)
        undo.callback(session.end, failed=True)
        refuse_content(directory)
        session.check_checkpoints()
        session.begin_changes()
        session.drop_checkpoints()  # before there is a log: a broker that saw their log start would delete it
        make_partition_dir(directory, tp.topic, topic_id)
        active = ActiveSegment.create(directory, start_offset, config, now_ms=now_ms)
        undo.pop_all()
    appender = Appender(directory, config, session, FoundLog.new(start_offset), active)
    return LogWriter(appender, config, clock=clock)


def append_to(path: str | os.PathLike[str], *, config: LogConfig | None = None, clock: Clock = time.time) -> LogWriter:
    """Open an existing partition for appending, as a broker would that starts.

    Its last segment is scanned with checksums. A torn or corrupt tail is cut off; how much that was is logged, and is
    `truncated_bytes` of the writer.

    Raises:
        OptionError: The directory's name is none of a partition.
        FormatError: There is damage with sound batches behind it, which cutting would destroy.
        LogError: A replacement of segments was interrupted here.
        LockedError: A broker or another job holds the directory around it.
    """
    config, now_ms = _checked_config(config), _now_ms(clock)
    directory, tp = partition_path(path)
    if not directory.is_dir():
        raise LogError("no such partition directory", path=str(directory), hint="use create_log to make it")
    with ExitStack() as undo:
        session = WriteSession(directory.parent, tp)
        undo.callback(session.end, failed=True)
        found = inspect(directory, config, session)
        session.begin_changes()
        active = take_over(found, directory, config, now_ms=now_ms)
        undo.pop_all()
    if found.torn_bytes:
        logger.warning("%s: cut off %d bytes behind offset %d", active.path, found.torn_bytes, found.next_offset - 1)
    appender = Appender(directory, config, session, found, active)
    return LogWriter(appender, config, clock=clock, truncated_bytes=found.torn_bytes)
