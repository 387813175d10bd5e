"""One partition: its segments as one log, read by offset and by time, with a consumer's eyes."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, SupportsIndex, TypeVar

from kseg.errors import FormatError, IndexFileError, LogError, OptionError, StorageError
from kseg.format.arrow import MAX_BATCH_BYTES
from kseg.format.batch import BatchHeader
from kseg.index.epoch import EpochStart, LeaderEpochs
from kseg.index.producer import ProducerEntry
from kseg.index.txn import AbortedTxn
from kseg.log import times
from kseg.log.checkpoints import CheckpointKind, Checkpoints, read_checkpoints, read_leader_epochs
from kseg.log.damage import Damage, Records
from kseg.log.files import has_segments, is_bare, live_files, snapshot_offsets
from kseg.log.metadata import read_clean_shutdown, read_partition_metadata
from kseg.log.names import FileKind, parse_partition_dir
from kseg.log.producers import OpenTransaction, ProducerState
from kseg.log.recovered import Recovery
from kseg.log.scan import headers_within, open_segments, read_records
from kseg.log.segment import Segment
from kseg.log.visibility import aborted_transactions
from kseg.log.walk import ReadOptions
from kseg.schema import select_columns, with_corrupt_column
from kseg.storage import Entry, RateLimiter, Store, open_store
from kseg.types import TopicPartition

Isolation = Literal["read_uncommitted", "read_committed"]
OnCorrupt = Literal["raise", "skip", "column"]
Result = TypeVar("Result")
RETRIES = 5


class Log:
    """A partition directory, opened for reading; nothing is locked and nothing is changed.

    What was found on disk when the log was opened stays until `refresh`: a broker may append, roll, delete and clean
    meanwhile.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        *,
        options: ReadOptions | None = None,
        checkpoints: Checkpoints | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.store = store
        self.directory = directory.rstrip("/") or "/"
        self.options = options or ReadOptions()
        self._given_checkpoints = checkpoints
        self.limiter = limiter or RateLimiter(self.options.max_bytes_per_second)
        name = self.directory.rpartition("/")[2]
        parsed = parse_partition_dir(name)
        self._tp = parsed.topic_partition if parsed else TopicPartition(name, 0)
        self.refresh()
        if not has_segments(self._entries) and not (parsed and is_bare(self._entries)):
            raise LogError("no segments here: not a partition directory", path=self.directory)

    def __repr__(self) -> str:
        known = dict(self.__dict__)  # what was read already: to show a log reads no files, and never fails
        has_ends = known.keys() >= {"start_offset", "end_offset"}
        offsets = f", offsets [{known['start_offset']}, {known['end_offset']})" if has_ends else ""
        segments = f", {len(known['segments'])} segments" if "segments" in known else ""
        return f"Log({self.directory!r}{offsets}{segments})"

    def refresh(self) -> None:
        """Look again at what is on disk; without its last segment it is an empty log, as for a broker."""
        self._entries = self.store.list(self.directory)
        if cached := [name for name in self.__dict__ if name in _CACHED]:
            self._given_checkpoints = None  # they are as old as what is dropped here
            for name in cached:
                del self.__dict__[name]

    @property
    def topic(self) -> str:
        """The topic, by the directory's name."""
        return self._tp.topic

    @property
    def partition(self) -> int:
        """The partition, by the directory's name."""
        return self._tp.partition

    @functools.cached_property
    def topic_id(self) -> str | None:
        """The topic's id from partition.metadata, None where there is none."""
        metadata = read_partition_metadata(self.store, self.directory)
        return None if metadata is None else metadata.topic_id

    @functools.cached_property
    def segments(self) -> list[Segment]:
        """The segments that count, by base offset (see `kseg.log.files`)."""
        files = live_files(self._entries, self._next_offset_of_swap)
        return [
            Segment(
                self.store, self.directory, base, files[base], behind is None, self.options, self.limiter,
                ceiling=behind,
            )
            for base, behind in itertools.zip_longest(files, list(files)[1:])
        ]  # fmt: skip

    def _next_offset_of_swap(self, entry: Entry, base_offset: int) -> int:
        return Segment(self.store, self.directory, base_offset, {FileKind.LOG: entry}, options=self.options).next_offset

    @functools.cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of the log directory around this partition."""
        if self._given_checkpoints is not None:
            return self._given_checkpoints
        parent = self.directory.rpartition("/")[0]
        return read_checkpoints(self.store, parent).told()

    @functools.cached_property
    def was_clean(self) -> bool:
        """Whether a broker that starts here takes all files for what they say; a job that took the marker sets it."""
        return read_clean_shutdown(self.store, self.directory.rpartition("/")[0]) is not None

    @functools.cached_property
    def start_offset(self) -> int:
        """The log start: the checkpoint's, but not before the first segment."""
        first = self.segments[0].base_offset if self.segments else 0
        return max(self.checkpoints.get(CheckpointKind.LOG_START, self._tp) or 0, first)

    @functools.cached_property
    def end_offset(self) -> int:
        """The log end: the next offset to be written."""
        return self.relisting(lambda: max(self.segments[-1].next_offset if self.segments else 0, self.start_offset))

    @functools.cached_property
    def high_watermark(self) -> int:
        """What the checkpoint says was replicated, within the log; the log end where it says nothing."""
        checkpoint = self.checkpoints.get(CheckpointKind.HIGH_WATERMARK, self._tp)
        return self.end_offset if checkpoint is None else min(max(checkpoint, self.start_offset), self.end_offset)

    @functools.cached_property
    def last_stable_offset(self) -> int:
        """Where read_committed stops: the high watermark, or the first offset of an undecided transaction before it."""
        return self.stable_below(self.high_watermark)

    def stable_below(self, visible: int) -> int:
        """The first offset that read_committed must not pass, where `visible` is the end of what may be seen at all."""
        firsts = [txn.first_offset for txn in self.open_transactions()]
        if visible < self.end_offset:
            late = self._state_from(visible).completed_behind(visible)
            firsts += [first for first in late if first < visible]
        unstable = min(firsts, default=visible)
        return min(visible, self._first_batch_offset() if unstable < self.start_offset else unstable)

    def _first_batch_offset(self) -> int:
        """Where the batch begins that the log starts in, or the first behind: undecided from before the log start.

        As UnifiedLog.maybeIncrementFirstUnstableOffset has it, in the files on disk, so it can be below the log start.
        """
        start = self.start_offset
        if not any(segment.base_offset <= start and segment.tier == "local" for segment in self.segments):
            return start
        try:
            header = self.relisting(lambda: next(self.batches(start), None))
        except FormatError:  # readers tell the damage; what is undecided begins here in any case
            return start
        return start if header is None or header.base_offset is None else header.base_offset

    @functools.cached_property
    def _producer_state(self) -> ProducerState:
        return self._state_from(self.end_offset)  # a snapshot beyond it tells of records that a crash has taken

    def _state_from(self, offset: int, *, only_open: bool = True) -> ProducerState:
        """Producer state at the log's end that knows every transaction completed at `offset` or behind it."""
        if self.start_offset == self.end_offset:  # a broker that starts believes no snapshot up to the log start
            return ProducerState(self.end_offset)
        return self.relisting(
            lambda: self._recovery.load_producers(
                snapshot_offsets(self._entries), log_start=self.start_offset, limit=offset, only_open=only_open
            )
        )

    @property
    def _recovery(self) -> Recovery:
        recovery_point = self.checkpoints.get(CheckpointKind.RECOVERY_POINT, self._tp) or 0
        return Recovery(self.segments, recovery_point, self.was_clean)

    def relisting(self, operation: Callable[[], Result]) -> Result:
        """Run `operation`, and again on a new listing of the directory if a broker took a file away meanwhile."""
        for _ in range(RETRIES):
            try:
                return operation()
            except StorageError as error:
                if not error.missing:
                    raise
                self.refresh()
        return operation()

    def producers(self, *, snapshot_limit: int | None = None) -> list[ProducerEntry]:
        """The producers that the log knows, by id, at its end.

        None is left out for being silent: a broker forgets those after producer.id.expiration.ms, by its own clock.

        Args:
            snapshot_limit: Believe no snapshot above this offset, but the batches.
        """
        if snapshot_limit is None:
            return self._known_producers.entries()
        return self._state_from(snapshot_limit, only_open=False).entries()

    @functools.cached_property
    def _known_producers(self) -> ProducerState:
        return self._state_from(self.end_offset, only_open=False)

    @property
    def knows_producers(self) -> bool:
        """Whether snapshots, or the batches behind the newest, tell of any producer; takes no look at the others."""
        return self._producer_state.knows_any

    def open_transactions(self) -> list[OpenTransaction]:
        """Transactions that have no marker yet, by first offset."""
        return self._producer_state.open_transactions()

    def leader_epochs(self) -> list[EpochStart]:
        """Leader epochs and where they begin, as a broker knows them that starts here.

        None of them begins before the log start, or has no offset below the log end. They come from the batches where
        the checkpoint is missing or broken; those of segments that a broker recovers are added.
        """
        start = self.checkpoints.get(CheckpointKind.LOG_START, self._tp) or 0
        return list(self._heard_epochs().truncate_from_end(self.end_offset).truncate_from_start(start).entries)

    @property
    def latest_epoch(self) -> int:
        """The last leader epoch that the log has heard of, -1 where there is none: its leader may not have written."""
        latest = self._heard_epochs().latest
        return -1 if latest is None else latest.epoch

    def _heard_epochs(self) -> LeaderEpochs:
        try:
            stored = read_leader_epochs(self.store, self.directory)
        except IndexFileError:
            stored = None
        return self.relisting(lambda: self._recovery.hear_epochs(stored))

    def aborted_transactions(self, start: int, end: int, *, rebuilt_from: int | None = None) -> list[AbortedTxn]:
        """Aborted transactions that touch `[start, end)`, by marker.

        Those that the indexes list, and those that the replay has seen behind the newest snapshot: a live broker writes
        a marker to the log before the index, and makes the index file with the first. After a crash the index may tell
        of markers that the log has no more: those do not count.

        Args:
            rebuilt_from: Believe neither indexes nor snapshots from this offset on, but the batches.
        """
        start, end = _index("start", start), _index("end", end)
        state = self._producer_state if rebuilt_from is None else self._state_from(rebuilt_from)
        listed = self.relisting(
            lambda: aborted_transactions(self.segments, snapshot_offsets(self._entries), start, end)
        )
        believed = self.end_offset if rebuilt_from is None else rebuilt_from
        listed = [txn for txn in listed if txn.last_offset < believed]
        replayed = [t for t in state.aborted if t.last_offset >= start and t.first_offset < end]
        # of one that began below the log start, the index knows where
        found = {(txn.producer_id, txn.last_offset): txn for txn in (*replayed, *listed)}
        return sorted(found.values(), key=lambda txn: txn.last_offset)

    def offset_for_time(self, ts_ms: int) -> times.TimeMatch | None:
        """Answer Kafka's offsetsForTimes: (timestamp, offset, leader epoch) of the first record at or after a time.

        Like a broker, it looks into one segment only: the first whose greatest timestamp reaches the target.
        """
        target = _index("ts_ms", ts_ms)
        return self.relisting(lambda: times.find(self.segments, target, self.start_offset))

    def batches(self, start: int | None = None, end: int | None = None) -> Iterator[BatchHeader]:
        """Headers of the batches that touch `[start, end)`, control batches included; nothing is decompressed."""
        start = self.start_offset if start is None else _index("start", start)
        end = self.end_offset if end is None else _index("end", end)
        for segment, file, first, limit in open_segments(self, start, end):
            position = segment.find_position(file, first) if first > segment.base_offset else 0
            walker = segment.walk(file, start=position)
            try:
                yield from headers_within(walker, first, limit, to_end=segment.tail_problem is not None)
            except FormatError as error:
                raise error.with_context(path=segment.path) from None
            if not segment.is_last:
                walker.raise_if_torn()

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        columns: Sequence[str] | None = None,
        batch_bytes: int | None = None,
        read_past_high_watermark: bool = False,
        on_corrupt: OnCorrupt = "raise",
    ) -> Records:
        """Read the records of `[start, end)` as a consumer would see them, as Arrow record batches.

        The range is clipped to what is visible: from the log start to the high watermark, or with read_committed to the
        last stable offset. Control records are never given; with read_committed, nor are aborted ones.

        Args:
            columns: Which columns, in which order (`kseg.schema`); by default those of Spark's Kafka source, headers
                last.
            batch_bytes: About how many bytes of the file go into one record batch; by default as many as are read
                fastest, some megabytes.
            read_past_high_watermark: Read to the end of the log, replicated or not.
            on_corrupt: What happens at damaged bytes: `raise` an error after all records before them; `skip` goes on at
                the next sound batch, says so in the log and lists them in `damages` of what is returned; `column` does
                so too, and gives each damaged place as a row, with the column `_corrupt` filled.
        """
        if isolation not in ("read_uncommitted", "read_committed"):
            raise OptionError(f"unknown isolation {isolation!r}; valid values are read_uncommitted, read_committed")
        if batch_bytes is not None and not 1 <= _index("batch_bytes", batch_bytes) <= MAX_BATCH_BYTES:
            raise OptionError(f"batch_bytes must be from 1 to {MAX_BATCH_BYTES}, got {batch_bytes}")
        if on_corrupt not in ("raise", "skip", "column"):
            raise OptionError(f"unknown on_corrupt {on_corrupt!r}; valid values are raise, skip, column")
        schema = select_columns(columns)
        if on_corrupt == "column":
            schema = with_corrupt_column(schema)
        log = self if on_corrupt == "raise" else self.past_damage
        committed = isolation == "read_committed"
        visible = log.end_offset if read_past_high_watermark else log.high_watermark
        if committed:
            visible = log.stable_below(visible)
        first = log.start_offset if start is None else max(_index("start", start), log.start_offset)
        last = visible if end is None else min(_index("end", end), visible)
        damages: list[Damage] = []
        batches = read_records(
            log, first, last, schema=schema, committed=committed, batch_bytes=batch_bytes, damages=damages
        )
        return Records(batches, damages, schema)

    @functools.cached_property
    def past_damage(self) -> Log:
        """The same log for readers that pass over damage: its end, too, is that of the sound batches."""
        if self.options.skip_damage:
            return self
        options = dataclasses.replace(self.options, skip_damage=True)
        return type(self)(
            self.store, self.directory, options=options, checkpoints=self.checkpoints, limiter=self.limiter
        )


def _index(name: str, value: SupportsIndex) -> int:
    """A whole number, whatever integer type it comes in."""
    try:
        return operator.index(value)
    except TypeError:
        raise OptionError(f"{name} must be a whole number, got {value!r}") from None


_CACHED = frozenset(name for name, value in vars(Log).items() if isinstance(value, functools.cached_property))


def read_options(
    max_batch_bytes: int | None = None,
    max_bytes_per_second: float | None = None,
    *,
    drop_page_cache: bool = False,
) -> ReadOptions:
    """How bytes are read, as a caller in Python says it."""
    limit = MAX_BATCH_BYTES if max_batch_bytes is None else _index("max_batch_bytes", max_batch_bytes)
    if not 1 <= limit < 1 << 63:
        raise OptionError(f"max_batch_bytes must be from 1 to {(1 << 63) - 1}, got {limit}")
    return ReadOptions(
        max_batch_bytes=limit,
        max_bytes_per_second=max_bytes_per_second,
        drop_page_cache=drop_page_cache,
    )


def open_log(
    path: str | os.PathLike[str],
    *,
    max_batch_bytes: int | None = None,
    max_bytes_per_second: float | None = None,
    drop_page_cache: bool = False,
) -> Log:
    """Open one partition directory for reading; `kseg.open_log` knows tiers too."""
    store, directory = open_store(path)
    options = read_options(max_batch_bytes, max_bytes_per_second, drop_page_cache=drop_page_cache)
    return Log(store, directory, options=options)
