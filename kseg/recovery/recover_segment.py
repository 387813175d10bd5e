"""Check one segment from its start, cut it at its first bad batch, and rebuild its indexes.

By Kafka's rule (LogSegment.recover): a batch is bad if its size or checksum is wrong. Offsets are looked at only as far
as the indexes need them. The segment's side of the producer state and of the leader epochs is rebuilt on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kseg.errors import FormatError, LogError
from kseg.index.build import IndexBuilder, Stop
from kseg.index.epoch import LeaderEpochs
from kseg.log.markers import check_markers, has_markers
from kseg.log.names import FileKind
from kseg.log.segment_scan import scan_segment
from kseg.native import table as t
from kseg.progress import SILENT, Progress
from kseg.recovery.parallel import walk_checked
from kseg.recovery.producers import ProducerSnapshots
from kseg.recovery.segments import LoadedSegment, check_last_offset, walk_chunks


class OffsetOverflowError(Exception):
    """A batch's offset is too far from the segment's base for its indexes; inside the planner only."""

    def __init__(self, segment: LoadedSegment, position: int, offset: int) -> None:
        super().__init__(position)
        self.segment, self.position, self.offset = segment, position, offset


class OffsetOrderError(Exception):
    """A batch's offset is not above an indexed one's before it; inside the planner only."""

    def __init__(self, segment: LoadedSegment, position: int, offset: int) -> None:
        super().__init__(position)
        self.segment, self.position, self.offset = segment, position, offset


@dataclass(slots=True)
class EpochCache:
    """The leader epochs while a log is loaded."""

    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)

    def assign(self, table: t.Table, rows: int) -> None:
        """Take the epochs of batches that are greater than all before."""
        self.epochs = self.epochs.assign_batches(table, rows)


@dataclass(slots=True)
class Recovered:
    """What the check of a segment found."""

    valid_bytes: int
    truncated_bytes: int
    next_offset: int
    problem: FormatError | None


def recover_segment(
    segment: LoadedSegment,
    producers: ProducerSnapshots,
    cache: EpochCache,
    *,
    interval_bytes: int,
    progress: Progress = SILENT,
) -> Recovered:
    """Check a segment and put its new log, offset, time and transaction index into the folder.

    Raises:
        OffsetOverflowError: The segment has to be split.
        OffsetOrderError: The segment cannot be indexed.
        LogError: A broker cannot load it.
    """
    is_marked = False
    builder = IndexBuilder(segment.base_offset, interval_bytes)
    producers.state.take_aborted()

    def take(table: t.Table, rows: int) -> None:
        nonlocal is_marked
        check_last_offset(table, rows, segment.path)
        is_marked = is_marked or has_markers(table, rows)
        cache.assign(table, rows)
        producers.add_recovered(table, rows, segment.path)
        progress.advance(int(table[t.SIZE, :rows].sum()))

    with segment.open() as file:
        found = scan_segment(walk_checked(file, segment.base_offset), builder, take)
        if is_marked and producers.strict:
            for chunk in walk_chunks(file, end=builder.size, check=False):
                check_markers(chunk, segment.path)
    if found.stop is not Stop.NONE:
        error = OffsetOverflowError if found.stop is Stop.OFFSET_RANGE else OffsetOrderError
        _reset(segment)
        raise error(segment, builder.size, found.stopped_at)
    builder.finish()
    if (builder.time_index.offsets[1:] < builder.time_index.offsets[:-1]).any():
        _reset(segment)
        raise OffsetOrderError(segment, builder.size, found.next_offset)
    size = segment.size
    cut_segment(segment, builder, producers.state.take_aborted().to_bytes())
    return Recovered(builder.size, size - builder.size, found.next_offset, found.problem)


def cut_segment(segment: LoadedSegment, builder: IndexBuilder, txn_index: bytes) -> None:
    """Cut a segment's log to what `builder` has seen, and give it its indexes; no empty transaction index is made."""
    folder, base = segment.folder, segment.base_offset
    if builder.size < segment.size:
        folder.files[segment.log_name] = folder.files[segment.log_name].cut(builder.size)
    folder.put(base, FileKind.OFFSET_INDEX, builder.offset_index.to_bytes())
    folder.put(base, FileKind.TIME_INDEX, builder.time_index.to_bytes())
    if txn_index or folder.get(base, FileKind.TXN_INDEX) is not None:
        folder.put(base, FileKind.TXN_INDEX, txn_index)


def empty_segment(segment: LoadedSegment) -> int:
    """Cut a segment to nothing, as Kafka does with one that cannot be indexed; return the bytes that went."""
    size = segment.size
    cut_segment(segment, IndexBuilder(segment.base_offset), b"")
    return size


def _reset(segment: LoadedSegment) -> None:
    """A check that was given up has reset the indexes all the same."""
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        segment.folder.put(segment.base_offset, kind, b"")
    if segment.folder.get(segment.base_offset, FileKind.TXN_INDEX) is not None:
        segment.folder.put(segment.base_offset, FileKind.TXN_INDEX, b"")


def refused(error: OffsetOverflowError | OffsetOrderError) -> LogError:
    """What a broker that meets this while it loads a segment says by not starting."""
    return LogError(
        f"a broker cannot load this log: offset {error.offset} does not fit behind the batches before it",
        path=error.segment.path,
        position=error.position,
        offset=error.offset,
        hint="recover with --salvage to leave the batch out",
    )
