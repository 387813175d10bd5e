"""What a copy of a segment consists of: its log file, and small parts, built where they are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kseg.errors import IndexFileError, LogError, StorageError
from kseg.index.build import IndexBuilder
from kseg.index.epoch import LeaderEpochs
from kseg.index.producer import parse_columns
from kseg.log.files import snapshot_offsets
from kseg.log.names import FileKind, segment_file_name
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.visibility import replay_producers
from kseg.log.walk import check_order
from kseg.native import table as t

CACHED_BYTES: Final = 2 << 20  # that are read at a time to be checked: they stay near the processor


@dataclass(frozen=True, slots=True)
class SegmentParts:
    """The small parts of a segment; None where it has no transaction index.

    Attributes:
        snapshot: The producers at the next segment's base.
        leader_epochs: Checkpoint text of all epochs from the log's start to the segment's end.
    """

    offset_index: bytes
    time_index: bytes
    txn_index: bytes | None
    snapshot: bytes
    leader_epochs: bytes


def find_segment(log: Log, base_offset: int) -> Segment:
    """The segment of a log that begins at an offset."""
    for segment in log.segments:
        if segment.base_offset == base_offset:
            return segment
    raise LogError("the segment is gone", path=log.directory, offset=base_offset)


class CheckedLog:
    """A sealed segment whose every batch is checked while its bytes go by.

    Args:
        next_base: Where the segment behind begins.
        piece_bytes: About how many bytes go by at a time.
    """

    def __init__(self, segment: Segment, next_base: int, piece_bytes: int = CACHED_BYTES) -> None:
        self.segment = segment
        self.next_base = next_base
        self._piece_bytes = piece_bytes
        self._builder: IndexBuilder | None = None

    @property
    def indexes(self) -> IndexBuilder:
        """The indexes that the segment ought to have; known once all pieces were taken."""
        if self._builder is None:
            self.check()
        assert self._builder is not None
        return self._builder

    def check(self) -> None:
        """Check all batches; errors are those of `pieces`."""
        for _ in self.pieces():
            pass

    def pieces(self) -> Iterator[memoryview]:
        """The segment's bytes, whole batches at a time; each piece is overwritten when the next is asked for.

        Raises:
            FormatError: A batch is damaged; what was given before is sound.
            LogError: The segment holds offsets of the next one.
        """
        segment = self.segment
        builder = IndexBuilder(segment.base_offset)
        last = segment.base_offset - 1
        with segment.open() as file:
            if file.size != segment.size:
                raise StorageError(f"{file.size} bytes, {segment.size} were expected", path=segment.path)
            was_cached = file.is_cached(0, file.size)
            walk = segment.walk(file, check=True, chunk_bytes=self._piece_bytes)
            for chunk in walk:
                last = check_order(chunk, segment.base_offset, last, segment.path)
                start = int(chunk.table[t.POSITION, 0])
                builder.add(chunk.table, chunk.rows, start)
                yield chunk.data[start - chunk.file_position : builder.size - chunk.file_position].data
                if not was_cached:  # a broker's page cache survives
                    file.drop_cache(start, builder.size)
            walk.raise_if_torn()
        if last >= self.next_base:
            raise LogError(f"holds offset {last}, and the next segment begins at {self.next_base}", path=segment.path)
        builder.finish()
        self._builder = builder


def read_parts(log: Log, checked: CheckedLog) -> SegmentParts:
    """Gather what goes to the tier with a segment; its batches are checked, unless they were.

    Raises:
        FormatError: A batch is damaged.
        LogError: The segment holds offsets of the next one.
    """
    builder, segment, next_base = checked.indexes, checked.segment, checked.next_base
    offset_index, time_index = segment.offset_index, segment.time_index
    if segment.needs_rebuild or offset_index.check(log_size=segment.size, next_offset=next_base):
        offset_index, time_index = builder.offset_index, builder.time_index
    elif time_index.last_entry[0] < builder.max_timestamp:
        time_index = builder.time_index
    epochs = LeaderEpochs(tuple(log.leader_epochs())).truncate_from_end(next_base)
    return SegmentParts(
        offset_index.to_bytes(),
        time_index.to_bytes(),
        _txn_index(log.segments, segment, next_base),
        _snapshot(log, next_base),
        epochs.to_bytes(),
    )


def _txn_index(segments: Sequence[Segment], segment: Segment, next_base: int) -> bytes | None:
    if not segment.needs_rebuild:
        data = segment.txn_index.to_bytes()
        return data if FileKind.TXN_INDEX in segment.files else None
    state = replay_producers(segments, (), upto=next_base)
    aborted = [txn for txn in state.aborted if segment.base_offset <= txn.last_offset < next_base]
    return type(segment.txn_index).of(aborted).to_bytes() if aborted else None


def _snapshot(log: Log, offset: int) -> bytes:
    """The producer snapshot at an offset: the file, or what a broker would have written into it."""
    name = segment_file_name(offset, FileKind.SNAPSHOT)
    entries = log.store.list(log.directory)
    if any(entry.name == name for entry in entries):
        path = log.store.join(log.directory, name)
        data = log.store.read(path)
        try:
            parse_columns(data, path)
            return data
        except IndexFileError:  # torn by a crash: built anew, as recovery would
            pass
    return replay_producers(log.segments, snapshot_offsets(entries), upto=offset).to_snapshot_bytes()
