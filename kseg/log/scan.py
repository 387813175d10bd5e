"""A range of offsets as a stream of Arrow record batches: the library's front door."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from kseg.errors import DataLossError, FormatError, StorageError
from kseg.format.arrow import ARENA_BYTES, RecordDecoder
from kseg.format.batch import BatchHeader, header_of
from kseg.log.damage import Damage, log_damages, record_fields, to_rows
from kseg.log.names import FileKind
from kseg.log.segment import Segment
from kseg.log.sound_read import Item, read_sound
from kseg.log.visibility import NONE_ABORTED, AbortedRanges, visible_rows
from kseg.log.walk import CHUNK_BYTES, BatchWalker, Walk
from kseg.native import table as t
from kseg.schema import CORRUPT_COLUMN
from kseg.storage import RandomFile

if TYPE_CHECKING:
    from kseg.log.partition import Log


def read_records(
    log: Log,
    start: int,
    end: int,
    *,
    schema: pa.Schema,
    committed: bool,
    batch_bytes: int | None,
    damages: list[Damage],
) -> Iterator[pa.RecordBatch]:
    """Give the records of `[start, end)`; the caller has clipped the range to what is visible.

    Each offset is read from the segment that a broker would serve it from: the last one whose base is not above it. A
    segment that a broker deletes or cleans meanwhile is looked for again; if its offsets are gone, that is an error.

    Args:
        damages: Where damage is passed over (`ReadOptions.skip_damage`), each place is put here, and into the column
            for it where `schema` has that.
    """
    decoder = RecordDecoder(
        record_fields(schema),
        topic=log.topic,
        partition=log.partition,
        max_batch_bytes=log.options.max_batch_bytes,
        arena_bytes=batch_bytes or ARENA_BYTES,
    )
    items = _read_items(log, start, end, decoder, committed=committed, chunk_bytes=batch_bytes or CHUNK_BYTES)
    if not log.options.skip_damage:
        yield from items
        return
    yield from to_rows(collect_damages(items, damages), schema, log.topic, log.partition)
    if CORRUPT_COLUMN not in schema.names:
        log_damages(damages, log.directory)


def collect_damages(items: Iterator[Item], damages: list[Damage]) -> Iterator[Item]:
    """Give all that comes, and keep what is damage."""
    for item in items:
        if isinstance(item, Damage):
            damages.append(item)
        yield item


def _read_items(
    log: Log, start: int, end: int, decoder: RecordDecoder, *, committed: bool, chunk_bytes: int
) -> Iterator[Item]:
    aborted = AbortedRanges.of(log.aborted_transactions(start, end)) if committed and start < end else NONE_ABORTED
    read = _read_sound_segment if log.options.skip_damage else _read_segment
    for segment, file, first, limit in open_segments(log, start, end):
        try:
            yield from read(segment, file, decoder, aborted, first, limit, chunk_bytes)
        except FormatError as error:
            raise error.with_context(path=segment.path) from None
    if log.segments and end >= log.end_offset and (start >= end or log.segments[-1].base_offset >= end):
        yield from _tell_tail(log.segments[-1])  # nothing to read of that segment, which is no reason to keep silent


def open_segments(log: Log, start: int, end: int) -> Iterator[tuple[Segment, RandomFile, int, int]]:
    """The segments that offsets `[start, end)` are in, each opened, with the offsets `[first, limit)` to take from it.

    A segment that a broker deletes or cleans meanwhile is looked for again.

    Raises:
        DataLossError: Offsets that were there are gone.
    """
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
            yield segment, file, position, limit
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
    found = type(log)(log.store, log.directory, options=log.options, limiter=log.limiter)
    if not found.segments:
        raise DataLossError("all segments were taken away while they were read", path=log.directory, offset=offset)
    first = found.segments[0].base_offset
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
    chunk_bytes: int,
) -> Iterator[pa.RecordBatch]:
    position, hint = segment.find_span(file, start, end)
    walker = segment.walk(file, start=position, hint=hint, check=True, chunk_bytes=chunk_bytes)
    yield from read_batches(walker, decoder, aborted, segment.base_offset, start, end)
    # a live broker may append behind the sound bytes meanwhile
    if not segment.is_last or (walker.torn_position is not None and walker.torn_position < segment.sound_size):
        walker.raise_if_torn()
    elif end >= segment.next_offset:
        yield from _tell_tail(segment)


def _read_sound_segment(
    segment: Segment,
    file: RandomFile,
    decoder: RecordDecoder,
    aborted: AbortedRanges,
    start: int,
    end: int,
    chunk_bytes: int,
) -> Iterator[Item]:
    position, hint = segment.find_span(file, start, end)
    walker = segment.sound_walk(
        file,
        start=position,
        end=segment.sound_size if segment.is_last else None,
        missing_from=start,
        hint=hint,
        chunk_bytes=chunk_bytes,
    )
    for item in read_sound(walker, decoder, aborted, segment.base_offset, start, end):
        if not isinstance(item, Damage) or item.touches(start, end):
            yield item
    if segment.is_last and end >= segment.next_offset:
        yield from _tell_tail(segment)


def _tell_tail(segment: Segment) -> Iterator[Damage]:
    """Tell what is wrong behind the last sound batch of a log, if anything: raise it, or give it as damage."""
    if segment.tail_problem is not None and not segment.options.skip_damage:
        raise copy.copy(segment.tail_problem)  # the segment's own would hold this frame, which holds the segment
    if segment.tail_damage is not None:
        yield segment.tail_damage


def read_batches(
    walker: Walk, decoder: RecordDecoder, aborted: AbortedRanges, base_offset: int, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Give the visible records of `[start, end)` among the batches of a walk through the segment of `base_offset`."""
    last = base_offset - 1
    if isinstance(walker, BatchWalker) and decoder.reads_straight:
        span = walker.straight_span(last)
        if span is not None:
            ranges = (aborted.producers, aborted.firsts, aborted.markers)
            yield from decoder.read_straight(span, ranges, base_offset, start, end)
            if span.is_over:
                return
            last = span.last_offset
            walker.go_to(span.position)
    for chunk, rows, hidden in visible_rows(walker, aborted, base_offset, start, end, last):
        yield from decoder.decode(chunk.data, chunk.file_position, chunk.table, rows, hidden, start, end)


def headers_within(walker: Walk, start: int, end: int, *, to_end: bool) -> Iterator[BatchHeader]:
    """Headers of the batches that touch `[start, end)`; `to_end` walks on behind them, to what is wrong there."""
    for chunk in walker:
        for row in range(chunk.rows):
            if int(chunk.table[t.LAST_OFFSET, row]) < start:
                continue
            if int(chunk.table[t.BASE_OFFSET, row]) >= end:
                walker.stop()
                return
            yield header_of(chunk.table, row)
            if int(chunk.table[t.LAST_OFFSET, row]) >= end - 1 and not to_end:
                walker.stop()
                return
