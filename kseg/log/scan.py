"""A range of offsets as a stream of Arrow record batches: the library's front door."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kseg.errors import DataLossError, FormatError, StorageError
from kseg.format.arrow import RecordDecoder
from kseg.log.names import FileKind
from kseg.log.segment import Segment
from kseg.log.visibility import NONE_ABORTED, AbortedRanges
from kseg.log.walk import ROWS_PER_CHUNK, BatchWalker, check_order
from kseg.native import table as t
from kseg.native.visibility import fill_hidden
from kseg.storage import RandomFile

if TYPE_CHECKING:
    from kseg.log.partition import Log


def read_records(
    log: Log, start: int, end: int, *, schema: pa.Schema, committed: bool, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Give the records of `[start, end)`; the caller has clipped the range to what is visible.

    Each offset is read from the segment that a broker would serve it from: the last one whose base is not above it. A
    segment that a broker deletes or cleans meanwhile is looked for again; if its offsets are gone, that is an error.
    """
    if start >= end:
        if log.segments and end >= log.end_offset and log.segments[-1].tail_problem is not None:
            raise copy.copy(
                log.segments[-1].tail_problem
            )  # nothing to read before it, which is no reason to keep silent
        return
    decoder = RecordDecoder(
        schema,
        topic=log.topic,
        partition=log.partition,
        max_batch_bytes=log.options.max_batch_bytes,
        arena_bytes=batch_bytes,
    )
    aborted = AbortedRanges.of(log.aborted_transactions(start, end)) if committed else NONE_ABORTED
    position = start
    while position < end:
        segment, limit = _segment_at(log, position, end)
        if segment is None:
            return
        try:
            file = segment.open()
        except StorageError as error:
            if not error.missing:
                raise
            log = _reopened(log, position, error)
            continue
        with file:
            try:
                yield from _read_segment(segment, file, decoder, aborted, position, limit, batch_bytes)
            except FormatError as error:
                raise error.with_context(path=segment.path) from None
        position = limit


def _segment_at(log: Log, offset: int, end: int) -> tuple[Segment | None, int]:
    """The segment to read `offset` from, and up to where; the first one at all where none begins before."""
    segments = log.segments
    floor = max((i for i, segment in enumerate(segments) if segment.base_offset <= offset), default=0)
    if not segments or segments[floor].base_offset >= end:
        return None, end
    following = segments[floor + 1].base_offset if floor + 1 < len(segments) else end
    return segments[floor], min(following, end)


def _reopened(log: Log, offset: int, error: StorageError) -> Log:
    """The log as it is now, after a segment vanished under the reader."""
    found = type(log)(log.store, log.directory, options=log.options)
    first = found.segments[0].base_offset if found.segments else found.end_offset
    vanished = error.path
    if first > offset:
        raise DataLossError(f"offsets {offset} to {first - 1} were deleted while they were read", path=log.directory)
    if any(segment.path == vanished for segment in found.segments):
        raise error
    # a cleaner puts what is left of a segment into the one before it; where that one is the same as ever, it is lost
    floor, _ = _segment_at(found, offset, offset + 1)
    known = {segment.path: segment.files[FileKind.LOG] for segment in log.segments}
    if floor is not None and known.get(floor.path) == floor.files[FileKind.LOG] and not floor.is_last:
        raise DataLossError("a segment was taken away while it was read", path=vanished, offset=offset)
    return found


def _read_segment(
    segment: Segment,
    file: RandomFile,
    decoder: RecordDecoder,
    aborted: AbortedRanges,
    start: int,
    end: int,
    batch_bytes: int,
) -> Iterator[pa.RecordBatch]:
    position, hint = segment.find_span(file, start, end)
    walker = segment.walk(file, start=position, hint=hint, check=True, chunk_bytes=batch_bytes)
    yield from read_batches(walker, decoder, aborted, segment.base_offset, start, end)
    if not segment.is_last:
        walker.raise_if_torn()
    elif segment.tail_problem is not None and end >= segment.next_offset:
        raise copy.copy(segment.tail_problem)  # the segment's own would hold this frame, which holds the segment


def read_batches(
    walker: BatchWalker, decoder: RecordDecoder, aborted: AbortedRanges, base_offset: int, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Give the visible records of `[start, end)` among the batches of a walk through the segment of `base_offset`."""
    hidden = np.empty(ROWS_PER_CHUNK, np.bool_)
    last = base_offset - 1
    for chunk in walker:
        last = check_order(chunk, base_offset, last, walker.path)
        lasts = chunk.table[t.LAST_OFFSET, : chunk.rows]
        first_row = int(np.searchsorted(lasts, start))
        # the row that holds `end - 1`, or the first behind it, is the last of interest
        end_row = min(int(np.searchsorted(lasts, end - 1)) + 1, chunk.rows)
        fill_hidden(chunk.table, first_row, end_row, aborted.producers, aborted.firsts, aborted.markers, hidden)
        rows = range(first_row, end_row)
        yield from decoder.decode(chunk.data, chunk.file_position, chunk.table, rows, hidden, start, end)
        if last >= end - 1:
            walker.stop()
            return
