"""Cut ranges of offsets into pieces of about equal size on disk, and read a piece.

A piece is a byte range of one segment, cut at entries of its offset index, so that one large partition keeps many cores
busy. It says which file it was planned on: a broker's cleaner puts another file under the same name, and positions of
the old one mean nothing there.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import crc32c
import numpy as np
import pyarrow as pa

from kseg.errors import CorruptRecordError, FormatError, LogError, StorageError
from kseg.format.arrow import RecordDecoder
from kseg.log.partition import Log
from kseg.log.scan import read_batches
from kseg.log.segment import Segment
from kseg.log.visibility import NONE_ABORTED, AbortedRanges
from kseg.log.walk import CHUNK_BYTES, BatchWalker, ReadOptions
from kseg.storage import RandomFile, Store

TASK_BYTES = 64 << 20
DIGEST_BYTES = 4096
RELOAD_HINT = "plan the read again: load the DataFrame anew, or restart the query"


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range of one segment, and the offsets `[start, end)` that are wanted of it.

    Attributes:
        identity: Of the file that was planned on, with a checksum of its first bytes.
        position: Where the first batch begins; batches that begin at `end_position` or behind it are another piece's.
        is_open: Whether the file may end in a batch that is still being written.
        tail_problem: Damage behind the last record, to be told when the split was read.
    """

    store: Store
    path: str
    topic: str
    partition: int
    base_offset: int
    identity: str
    digest_size: int
    digest: int
    start: int
    end: int
    position: int
    end_position: int
    is_open: bool
    aborted: AbortedRanges = NONE_ABORTED
    tail_problem: FormatError | None = None

    @property
    def size(self) -> int:
        """Bytes that reading it takes."""
        return self.end_position - self.position


def plan_splits(
    log: Log, start: int, end: int, *, committed: bool = False, target_bytes: int = TASK_BYTES
) -> list[Split]:
    """Cut `[start, end)` of a log into splits of about `target_bytes`.

    An aim, not a promise: one batch is never divided, and a segment without an index stays whole. The caller has
    clipped the range to what is visible.
    """
    aborted = AbortedRanges.of(log.aborted_transactions(start, end)) if committed and start < end else NONE_ABORTED
    splits: list[Split] = []
    segments = log.segments
    for i, segment in enumerate(segments):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else end
        first, last = max(start, segment.base_offset), min(end, following)
        if first < last and segment.size:
            splits += _cut_segment(log, segment, first, last, target_bytes, aborted)
    return splits


def _cut_segment(
    log: Log, segment: Segment, start: int, end: int, target_bytes: int, aborted: AbortedRanges
) -> list[Split]:
    with segment.open() as file:
        position, size = segment.find_span(file, start, end)
        end_position = min(position + size, file.size) if size else file.size
        whole = Split(
            store=segment.store,
            path=segment.path,
            topic=log.topic,
            partition=log.partition,
            base_offset=segment.base_offset,
            identity=file.identity,
            digest_size=min(DIGEST_BYTES, file.size),
            digest=_digest(file, DIGEST_BYTES),
            start=start,
            end=end,
            position=position,
            end_position=end_position,
            is_open=segment.is_last and end_position == file.size,
            aborted=aborted.within(start, end),
            tail_problem=segment.tail_problem if segment.is_last and end >= segment.next_offset else None,
        )
        cuts = [position, *_find_cuts(segment, file, position, end_position, target_bytes), end_position]
    return [
        replace(
            whole,
            position=first,
            end_position=last,
            is_open=whole.is_open and last == end_position,
            tail_problem=whole.tail_problem if last == end_position else None,
        )
        for first, last in itertools.pairwise(cuts)
        if first < last
    ]


def _find_cuts(segment: Segment, file: RandomFile, position: int, end_position: int, target_bytes: int) -> list[int]:
    """Positions of index entries, about `target_bytes` apart, at which sound batches begin."""
    pieces = round((end_position - position) / max(target_bytes, 1))
    if pieces < 2:
        return []
    index = segment.offset_index
    wanted = position + (end_position - position) * np.arange(1, pieces) // pieces
    slots = np.unique(np.searchsorted(index.positions, wanted))
    entries = [(int(index.offsets[slot]), int(index.positions[slot])) for slot in slots if slot < len(index)]
    return [
        place
        for offset, place in entries
        if position < place < end_position and segment.checked_position(file, offset, place) == place
    ]


def _digest(file: RandomFile, size: int) -> int:
    head = bytearray(min(size, file.size))
    got = file.read_into(0, head)
    return int(crc32c.crc32c(bytes(head[:got])))


def group_splits(splits: Iterable[Split], *, target_bytes: int = TASK_BYTES, min_groups: int = 1) -> list[list[Split]]:
    """Put small splits together, in order, so that a task has about `target_bytes` to read."""
    ordered = list(splits)
    limit = min(target_bytes, sum(split.size for split in ordered) // max(min_groups, 1))
    groups: list[list[Split]] = []
    filled = 0
    for split in ordered:
        if not groups or filled + split.size > limit:
            groups.append([])
            filled = 0
        groups[-1].append(split)
        filled += split.size
    return groups


def read_split(split: Split, schema: pa.Schema, options: ReadOptions | None = None) -> Iterator[pa.RecordBatch]:
    """Read the records of a split.

    Raises:
        LogError: The file is gone or another one has its name; the read has to be planned again.
        FormatError: The bytes are damaged.
    """
    options = options or ReadOptions()
    decoder = RecordDecoder(
        schema, topic=split.topic, partition=split.partition, max_batch_bytes=options.max_batch_bytes
    )
    path = split.path
    try:
        file = split.store.open(path)
    except StorageError as error:
        if error.missing:
            raise LogError("the segment vanished since the read was planned", path=path, hint=RELOAD_HINT) from error
        raise
    with file:
        if (
            file.identity != split.identity
            or _digest(file, split.digest_size) != split.digest
            or file.size < split.end_position
        ):
            raise LogError("the segment was replaced since the read was planned", path=path, hint=RELOAD_HINT)
        walker = BatchWalker(
            file, options, start=split.position, end=split.end_position, hint=min(split.size, CHUNK_BYTES)
        )
        try:
            yield from read_batches(walker, decoder, split.aborted, split.base_offset, split.start, split.end)
            if not split.is_open and walker.torn_position is not None:
                raise CorruptRecordError("no batch begins where the index says", position=split.end_position)
            if split.tail_problem is not None:
                raise copy.copy(split.tail_problem)
        except FormatError as error:
            raise error.with_context(path=path) from None


def read_splits(
    splits: Sequence[Split], schema: pa.Schema, options: ReadOptions | None = None
) -> Iterator[pa.RecordBatch]:
    """Read several splits, one after the other."""
    for split in splits:
        yield from read_split(split, schema, options)
