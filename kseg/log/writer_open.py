"""Open an existing partition for appending: look first, then change.

`inspect` only reads, and refuses what an appender must not touch. `take_over` makes the log ready: the torn tail is cut
off, snapshots that lie behind the log's end are deleted, epochs that begin there are dropped.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from kseg import durable
from kseg.errors import IndexFileError, LogError
from kseg.index.epoch import LeaderEpochs
from kseg.index.txn import TxnIndex
from kseg.log.checkpoints import CheckpointKind, read_checkpoints, read_leader_epochs, write_leader_epochs
from kseg.log.config import LogConfig
from kseg.log.files import live_files, snapshot_offsets, stray_snapshots
from kseg.log.names import FileKind, FileState, parse_segment_file, segment_file_name
from kseg.log.producers import ProducerState
from kseg.log.recovered import Recovery
from kseg.log.segment import Segment
from kseg.log.visibility import replay_producers
from kseg.log.walk import ReadOptions
from kseg.log.writer_segment import ActiveSegment
from kseg.log.writer_session import WriteSession
from kseg.log.writer_tail import Tail, check_unflushed, scan_tail
from kseg.storage import Entry, LocalStore

logger = logging.getLogger(__name__)

_MAX_BATCH_BYTES = 0x7FFFFFFF  # whatever a broker took, an appender has to take


@dataclass(slots=True)
class FoundLog:
    """What `inspect` found; `tail` is None where there are no segments."""

    start_offset: int
    next_offset: int
    segments: list[Segment]
    tail: Tail | None
    aborted: TxnIndex
    producers: ProducerState
    epochs: LeaderEpochs
    stored_epochs: LeaderEpochs | None
    snapshots: list[int]
    recovery: Recovery
    doubtful: list[int]

    @classmethod
    def new(cls, start_offset: int) -> Self:
        """A log without anything in it."""
        state = ProducerState(start_offset)
        recovery = Recovery((), 0, was_clean=True)
        none, no_epochs = TxnIndex.of(()), LeaderEpochs()
        return cls(start_offset, start_offset, [], None, none, state, no_epochs, None, [], recovery, [])

    @property
    def latest_epoch(self) -> int:
        """The last epoch that the log has heard of, -1 where there is none: a leader may have begun without writing."""
        known = (*self.epochs.entries, *(self.stored_epochs or LeaderEpochs()).entries)
        return max((entry.epoch for entry in known), default=-1)

    @property
    def torn_bytes(self) -> int:
        """Bytes at the end of the log that are no sound batch."""
        return 0 if self.tail is None else self.tail.torn_bytes

    @property
    def bases(self) -> set[int]:
        """Base offsets of the segments."""
        return {segment.base_offset for segment in self.segments}


def inspect(directory: Path, config: LogConfig, session: WriteSession) -> FoundLog:
    """Scan the last segment as a broker does that starts, and all that the next batch depends on; change nothing.

    Raises:
        LogError: A replacement of segments was interrupted.
        FormatError: There is damage that is more than a torn tail.
    """
    store = LocalStore()
    entries = store.list(str(directory))
    _refuse_swaps(entries, directory)
    session.check_checkpoints()
    segments = _segments(entries, directory)
    snapshots = snapshot_offsets(entries)
    log_start = read_checkpoints(store, str(directory.parent)).get(CheckpointKind.LOG_START, session.tp) or 0
    stored = _stored_epochs(directory)
    if not segments:
        return replace(FoundLog.new(log_start), stored_epochs=stored, snapshots=snapshots)
    _check_unflushed(segments, session)
    recovery = Recovery(segments, session.recovery_point() or 0, session.was_clean)
    last = segments[-1]
    producers = replay_producers(segments, snapshots, upto=last.base_offset)
    producers.take_aborted()
    epochs = recovery.hear_epochs(stored, with_last=False)
    tail = scan_tail(last, config.index_interval_bytes, producers, epochs)
    aborted = producers.take_aborted()
    start = max(log_start, segments[0].base_offset)
    end = max(tail.next_offset, start)
    if start == end:
        producers = ProducerState(end)
    elif start > segments[0].base_offset or any(last.base_offset < offset <= end for offset in snapshots):
        # a snapshot knows producers whose batches are deleted; a broker that starts forgets those below the log start
        producers = recovery.replay(snapshots, start, end)
        producers.take_aborted()
    doubtful = recovery.doubtful_snapshots(snapshots, producers, start)
    if doubtful:
        producers = recovery.replay([offset for offset in snapshots if offset not in doubtful], start, end)
        producers.take_aborted()
    epochs = tail.epochs.truncate_from_end(end)
    return FoundLog(start, end, segments, tail, aborted, producers, epochs, stored, snapshots, recovery, doubtful)


def take_over(found: FoundLog, directory: Path, config: LogConfig, *, now_ms: int) -> ActiveSegment:
    """Make the log that was found ready for appending."""
    _sort_out_snapshots(found, directory)
    if found.tail is None:
        active = ActiveSegment.create(directory, found.next_offset, config, now_ms=now_ms)
    else:
        if found.torn_bytes:
            durable.truncate(found.segments[-1].path, found.tail.builder.size)
            durable.fsync_file(found.segments[-1].path)
        active = ActiveSegment.reopen(directory, config, found.tail.builder, aborted=found.aborted, now_ms=now_ms)
    if found.epochs != (found.stored_epochs or LeaderEpochs()):
        write_leader_epochs(str(directory), found.epochs)
    return active


def _sort_out_snapshots(found: FoundLog, directory: Path) -> None:
    """Delete the snapshots that a broker deletes, and write those of recovered segments anew, as a broker does."""
    strays = {*stray_snapshots(found.snapshots, found.bases, found.next_offset)}
    strays |= {offset for offset in found.doubtful if offset not in found.bases}
    for offset in sorted(strays):
        durable.unlink(directory / segment_file_name(offset, FileKind.SNAPSHOT))
    sound = [offset for offset in found.snapshots if offset not in found.doubtful]
    for offset in sorted({*found.doubtful} - strays):
        state = found.recovery.replay(sound, found.start_offset, offset, upto=offset)
        durable.publish(directory / segment_file_name(offset, FileKind.SNAPSHOT), state.to_snapshot_bytes())
        sound.insert(0, offset)  # the next one begins with it


def _refuse_swaps(entries: list[Entry], directory: Path) -> None:
    for entry in entries:
        name = parse_segment_file(entry.name)
        if name is not None and name.state is FileState.SWAP:
            message = "a replacement of segments was interrupted here"
            raise LogError(
                message,
                path=str(directory / entry.name),
                hint="'kseg recover' carries it to its end, as a broker does that starts here",
            )


def _segments(entries: list[Entry], directory: Path) -> list[Segment]:
    files = live_files(entries, lambda _, base: base)
    options = ReadOptions(max_batch_bytes=_MAX_BATCH_BYTES)
    last = max(files, default=-1)
    return [Segment(LocalStore(), str(directory), base, found, base == last, options) for base, found in files.items()]


def _check_unflushed(segments: list[Segment], session: WriteSession) -> None:
    """After a crash, check what a broker would recover besides the last segment, and force it to the disk.

    At the end the recovery point moves to the log's end, which says of all these segments that they are sound.
    """
    flushed = session.recovery_point()
    if flushed is None or session.was_clean:
        return
    for segment, following in itertools.pairwise(segments):
        if following.base_offset > flushed:
            check_unflushed(segment)
            durable.fsync_file(segment.path)


def _stored_epochs(directory: Path) -> LeaderEpochs | None:
    """The leader-epoch-checkpoint; one that is broken counts as missing, for it can be rebuilt."""
    try:
        return read_leader_epochs(LocalStore(), str(directory))
    except IndexFileError as error:
        logger.warning("%s; it is rebuilt from the batches", error)
        return None
