"""Kafka's log loader on a folder: which segments are checked, cut, dropped, split, and what is rebuilt for them.

The steps are those of LogLoader (Kafka 4.3.1), with their oddities. A segment whose index is missing is checked while
the files are listed, and what that cuts off drops no later segment. Checking a segment deletes all snapshots behind its
base. The recovery point falls to the log's end where that is lower, and never rises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kseg.errors import IndexFileError
from kseg.index.build import IndexBuilder
from kseg.index.epoch import LeaderEpochs
from kseg.index.txn import TxnIndex
from kseg.log.config import LogConfig
from kseg.log.names import FileKind, segment_file_name
from kseg.log.segment import MAX_SEGMENT_BYTES, too_large_error
from kseg.progress import SILENT, Progress
from kseg.recovery.folder import Content, Folder
from kseg.recovery.producers import ProducerSnapshots, between, remove_strays
from kseg.recovery.recover_segment import (
    EpochCache,
    OffsetOrderError,
    OffsetOverflowError,
    Recovered,
    cut_segment,
    empty_segment,
    recover_segment,
    refused,
)
from kseg.recovery.segments import LoadedSegment
from kseg.recovery.split import plan_split

_SIDECARS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How a log is loaded: what the checkpoints and the marker say, and the settings."""

    clean: bool = False
    recovery_point: int = 0
    log_start: int = 0
    now_ms: int = 0
    config: LogConfig = field(default_factory=LogConfig)


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that went from the end of a segment, and why."""

    base_offset: int
    position: int
    size: int
    next_offset: int
    reason: str


@dataclass(slots=True)
class Loaded:
    """What the loader found and decided; the files are in the folder."""

    log_start: int = 0
    log_end: int = 0
    recovery_point: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    checked: list[int] = field(default_factory=list)
    checked_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    dropped: list[tuple[int, Content]] = field(default_factory=list)
    rewritten: dict[int, list[int]] = field(default_factory=dict)
    """Segments that become one or several new ones, by their old base."""
    notes: list[str] = field(default_factory=list)


SegmentCheck = Callable[[LoadedSegment, ProducerSnapshots, EpochCache, int | None], Recovered]


class Loader:
    """Loads one log; made for one call of `load`.

    Args:
        check: Checks a segment; the last argument is where the next one begins. By default Kafka's way.
    """

    def __init__(
        self,
        folder: Folder,
        options: LoadOptions,
        epochs: LeaderEpochs,
        *,
        check: SegmentCheck | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self._folder = folder
        self._options = options
        self._cache = EpochCache(epochs)
        self._segments: list[LoadedSegment] = []
        self._check = check or self._kafka_check
        self._is_kafkas = check is None
        self._progress = progress
        self.loaded = Loaded()

    def load(self) -> Loaded:
        """Run the loader.

        Raises:
            LogError: A broker cannot load this log.
        """
        options, loaded = self._options, self.loaded
        self._retry(self._load_files)
        self._retry(self._recover_log)
        producers = self._new_producers()
        end = self._drop_all_below_start(producers)
        if not self._segments:
            self._create_segment(options.log_start)
        if end is None:
            end = self._segments[-1].next_offset()
            loaded.recovery_point = min(options.recovery_point, end)
        else:
            loaded.recovery_point = end if options.clean else min(options.recovery_point, end)
        loaded.log_end = end
        loaded.log_start = max(options.log_start, self._segments[0].base_offset)
        loaded.epochs = self._cache.epochs.truncate_from_end(end).truncate_from_start(options.log_start)
        remove_strays(self._folder)
        producers.rebuild(self._segments, loaded.log_start, end, clean=options.clean)
        return loaded

    # -- the passes ----------------------------------------------------------------------------------------------------

    def _retry(self, work: Callable[[], None]) -> None:
        """Do `work`; a segment whose offsets overflow is split, and `work` is done again."""
        while True:
            try:
                return work()
            except OffsetOverflowError as overflow:
                new = plan_split(overflow, self._options.config.index_interval_bytes)
                base = overflow.segment.base_offset
                self.loaded.rewritten[base] = new
                if base not in new:
                    self._folder.remove(base, FileKind.SNAPSHOT)
                kept = [segment for segment in self._segments if segment.base_offset != base]
                kept += [LoadedSegment(self._folder, offset) for offset in new]
                self._segments = sorted(kept, key=lambda segment: segment.base_offset)

    def _load_files(self) -> None:
        """Delete indexes without a log; check segments that have no offset index or a bad transaction index."""
        self._segments = []
        bases = self._folder.bases()
        for name in self._folder.names():
            if name.kind in _SIDECARS and not name.state.value and name.base_offset not in bases:
                self._folder.remove(name.base_offset, name.kind)
        for i, base in enumerate(bases):
            segment = LoadedSegment(self._folder, base)
            if segment.size > MAX_SEGMENT_BYTES:
                raise too_large_error(segment.size, segment.path)
            if self._needs_rebuild(base):
                try:
                    following = bases[i + 1] if i + 1 < len(bases) else None
                    self._recover(segment, self._segments, following)
                except OffsetOrderError as error:
                    raise refused(error) from error
            elif self._folder.get(base, FileKind.TIME_INDEX) is None:
                self._folder.put(base, FileKind.TIME_INDEX, b"")
            self._segments.append(segment)

    def _needs_rebuild(self, base: int) -> bool:
        if self._folder.get(base, FileKind.OFFSET_INDEX) is None:
            return True
        if self._folder.get(base, FileKind.TXN_INDEX) is None:
            return False
        name = segment_file_name(base, FileKind.TXN_INDEX)
        try:
            index = TxnIndex.parse(self._folder.read_bytes(name), name)
        except IndexFileError:
            return True
        return bool((index.columns[2] < base).any())

    def _recover_log(self) -> None:
        """Check the segments from the recovery point on; behind one that is cut, all others go."""
        if self._options.clean:
            return
        unflushed = between(self._segments, self._options.recovery_point)
        for i, segment in enumerate(unflushed):
            following = unflushed[i + 1].base_offset if i + 1 < len(unflushed) else None
            try:
                truncated = self._recover(segment, self._segments, following)
            except OffsetOrderError as error:
                truncated = empty_segment(segment)
                reason = f"offset {error.offset} at byte {error.position} falls back"
                self.loaded.cuts.append(Cut(segment.base_offset, 0, truncated, segment.base_offset, reason))
            if truncated:
                self._drop(unflushed[i + 1 :])
                return

    def _recover(self, segment: LoadedSegment, before: Sequence[LoadedSegment], following: int | None) -> int:
        """Check one segment behind those `before` it; return how many bytes were cut off."""
        producers = self._new_producers(strict=self._is_kafkas)  # else what is before may still be put right
        producers.rebuild(before, self._options.log_start, segment.base_offset, clean=False)
        size = segment.size
        found = self._check(segment, producers, self._cache, following)
        producers.take_snapshot()
        if segment.base_offset not in self.loaded.checked:
            self.loaded.checked.append(segment.base_offset)
            self.loaded.checked_bytes += size
        if found.truncated_bytes:
            reason = "a batch is cut short" if found.problem is None else found.problem.message
            base = segment.base_offset
            self.loaded.cuts.append(Cut(base, found.valid_bytes, found.truncated_bytes, found.next_offset, reason))
        return found.truncated_bytes

    def _kafka_check(
        self, segment: LoadedSegment, producers: ProducerSnapshots, cache: EpochCache, following: int | None
    ) -> Recovered:
        interval = self._options.config.index_interval_bytes
        return recover_segment(segment, producers, cache, interval_bytes=interval, progress=self._progress)

    def _drop(self, segments: Sequence[LoadedSegment]) -> None:
        for segment in segments:
            base = segment.base_offset
            self.loaded.dropped.append((base, self._folder.files[segment.log_name]))
            for kind in (FileKind.LOG, *_SIDECARS, FileKind.SNAPSHOT):
                self._folder.remove(base, kind)
        gone = {segment.base_offset for segment in segments}
        self._segments = [segment for segment in self._segments if segment.base_offset not in gone]

    def _drop_all_below_start(self, producers: ProducerSnapshots) -> int | None:
        """The log's end; where that is below the log start, nothing of the log counts, and there is no end."""
        if not self._segments:
            return None
        end = self._segments[-1].next_offset()
        if end >= self._options.log_start:
            return end
        self.loaded.notes.append(f"the log ends at {end}, before its start {self._options.log_start}: all of it goes")
        self._drop(list(self._segments))
        self._cache.epochs = LeaderEpochs()
        producers.start_at(self._options.log_start)
        return None

    def _create_segment(self, base: int) -> None:
        self._folder.files[segment_file_name(base, FileKind.LOG)] = Content(data=b"")
        segment = LoadedSegment(self._folder, base)
        cut_segment(segment, IndexBuilder(base), b"")
        self._segments = [segment]

    def _new_producers(self, *, strict: bool = True) -> ProducerSnapshots:
        options = self._options
        expiration = options.config.producer_id_expiration_ms
        return ProducerSnapshots(self._folder, now_ms=options.now_ms, expiration_ms=expiration, strict=strict)
