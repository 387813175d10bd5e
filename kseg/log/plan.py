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

from kseg.errors import FormatError, LogError, StorageError
from kseg.format.arrow import RecordDecoder
from kseg.log.damage import Damage, log_damages, record_fields, to_rows
from kseg.log.holes import HoledFile
from kseg.log.partition import Log
from kseg.log.scan import collect_damages, read_batches
from kseg.log.segment import Segment
from kseg.log.sound import check_cut
from kseg.log.sound_read import Item, read_sound
from kseg.log.sound_walk import SoundWalker
from kseg.log.visibility import NONE_ABORTED, AbortedRanges
from kseg.log.walk import CHUNK_BYTES, BatchWalker, ReadOptions
from kseg.schema import CORRUPT_COLUMN
from kseg.storage import RandomFile, RateLimiter, Store

TASK_BYTES = 64 << 20
DIGEST_BYTES = 4096
RELOAD_HINT = "plan the read again: load the DataFrame anew, or restart the query"


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range of one segment, and the offsets `[start, end)` that are wanted of it.

    Attributes:
        identity: Of the file that was planned on, with a checksum of its first bytes.
        position: Where the first batch begins; batches that begin at `end_position` or behind it are another piece's.
        tail_problem: Damage behind the last record of the log, to be told when the split was read.
        tail: The same, for a reader that passes over damage.
        ceiling: The base offset of the segment behind, None where there is none.
        told_from: Damage with offsets before this one is told by another split.
        look_back: Where a batch begins not far before `position`.
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
    aborted: AbortedRanges = NONE_ABORTED
    tail_problem: FormatError | None = None
    tail: Damage | None = None
    ceiling: int | None = None
    told_from: int = 0
    look_back: int = 0

    @property
    def size(self) -> int:
        """Bytes that reading it takes."""
        return self.end_position - self.position


def plan_splits(
    log: Log,
    start: int,
    end: int,
    *,
    committed: bool = False,
    target_bytes: int = TASK_BYTES,
    continues: bool = False,
) -> list[Split]:
    """Cut `[start, end)` of a log into splits of about `target_bytes`.

    An aim, not a promise: one batch is never divided, and a segment without an index stays whole. The caller has
    clipped the range to what is visible.

    Args:
        continues: What is before `start` is planned too: damage that begins there is told there.
    """
    aborted = AbortedRanges.of(log.aborted_transactions(start, end)) if committed and start < end else NONE_ABORTED
    splits: list[Split] = []
    segments = log.segments
    for i, segment in enumerate(segments):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else end
        first, last = max(start, segment.base_offset), min(end, following)
        if first < last and segment.size:
            splits += _cut_segment(log, segment, first, last, target_bytes, aborted)
        elif first >= last and segment.is_last and end >= segment.next_offset and segment.tail_problem is not None:
            splits.append(_tail_split(log, segment, end))
    return [replace(split, told_from=start) for split in splits] if continues else splits


def _cut_segment(
    log: Log, segment: Segment, start: int, end: int, target_bytes: int, aborted: AbortedRanges
) -> list[Split]:
    with segment.open() as file:
        position, size = segment.find_span(file, start, end)
        end_position = segment.sound_size if segment.is_last else file.size
        # the index is a hint: where it says that the range ends, a batch must begin that is behind the range
        if size and position + size < end_position and segment.is_behind(file, end, position + size):
            end_position = position + size
        whole = _split(log, segment, file, offsets=(start, end), positions=(position, end_position))
        whole = replace(whole, aborted=aborted.within(start, end))
        cuts = [position, *_find_cuts(segment, file, position, end_position, target_bytes), end_position]
    return [
        replace(
            whole,
            position=first,
            end_position=last,
            tail_problem=whole.tail_problem if last == end_position else None,
            tail=whole.tail if last == end_position else None,
            look_back=segment.place_before(first) if segment.options.skip_damage else 0,
        )
        for first, last in itertools.pairwise(cuts)
        if first < last
    ]


def _tail_split(log: Log, segment: Segment, end: int) -> Split:
    """No records, and what is wrong behind them: the last segment where nothing in it is sound, or nothing wanted."""
    with segment.open() as file:
        return _split(log, segment, file, offsets=(end, end), positions=(segment.sound_size, segment.sound_size))


def _split(
    log: Log, segment: Segment, file: RandomFile, *, offsets: tuple[int, int], positions: tuple[int, int]
) -> Split:
    reaches_end = segment.is_last and offsets[1] >= segment.next_offset
    return Split(
        store=segment.store,
        path=segment.path,
        topic=log.topic,
        partition=log.partition,
        base_offset=segment.base_offset,
        identity=file.identity,
        digest_size=min(DIGEST_BYTES, file.size),
        digest=_digest(file, DIGEST_BYTES),
        start=offsets[0],
        end=offsets[1],
        position=positions[0],
        end_position=positions[1],
        tail_problem=segment.tail_problem if reaches_end else None,
        tail=segment.tail_damage if reaches_end else None,
        ceiling=segment.ceiling,
    )


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


def read_split(
    split: Split,
    schema: pa.Schema,
    options: ReadOptions | None = None,
    damages: list[Damage] | None = None,
    limiter: RateLimiter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the records of a split.

    Args:
        damages: Where the options pass over damage, each place is put here.
        limiter: Shared by all splits of a task: the first bytes of each limiter are free.

    Raises:
        LogError: The file is gone or another one has its name; the read has to be planned again.
        FormatError: The bytes are damaged, and the options do not pass over that.
    """
    options = options or ReadOptions()
    limiter = limiter or RateLimiter(options.max_bytes_per_second)
    decoder = RecordDecoder(
        record_fields(schema), topic=split.topic, partition=split.partition, max_batch_bytes=options.max_batch_bytes
    )
    with _open_planned(split, options) as file:
        try:
            if not options.skip_damage:
                yield from _read_strictly(split, file, decoder, options, limiter)
                return
            items = _read_past_damage(split, file, decoder, options, limiter)
            items = collect_damages(items, [] if damages is None else damages)
            yield from to_rows(items, schema, split.topic, split.partition)
        except FormatError as error:
            raise error.with_context(path=split.path) from None


def _open_planned(split: Split, options: ReadOptions) -> RandomFile:
    """Open the file that a split was planned on."""
    path = split.path
    is_copy = False
    try:
        file = split.store.open(path)
    except StorageError as error:
        if not error.missing:
            raise
        open_copy = getattr(split.store, "open_copy", None)  # a store with a tier behind it may have it there by now
        copy_of_it: RandomFile | None = None if open_copy is None else open_copy(path)
        if copy_of_it is None:
            raise LogError("the segment vanished since the read was planned", path=path, hint=RELOAD_HINT) from error
        file, is_copy = copy_of_it, True
    if options.skip_damage:
        file = HoledFile(file)
    try:
        is_other = (not is_copy and file.identity != split.identity) or file.size < split.end_position
        if is_other or _digest(file, split.digest_size) != split.digest:
            raise LogError("the segment was replaced since the read was planned", path=path, hint=RELOAD_HINT)
    except BaseException:
        file.close()
        raise
    return file


def _read_strictly(
    split: Split, file: RandomFile, decoder: RecordDecoder, options: ReadOptions, limiter: RateLimiter
) -> Iterator[pa.RecordBatch]:
    walker = BatchWalker(
        file,
        options,
        start=split.position,
        end=split.end_position,
        limiter=limiter,
        hint=min(split.size, CHUNK_BYTES),
    )
    yield from read_batches(walker, decoder, split.aborted, split.base_offset, split.start, split.end)
    if walker.torn_position is not None:
        check_cut(file, options, walker.torn_position, split.end_position)
        walker.raise_if_torn()
    if split.tail_problem is not None:
        raise copy.copy(split.tail_problem)


def _read_past_damage(
    split: Split, file: RandomFile, decoder: RecordDecoder, options: ReadOptions, limiter: RateLimiter
) -> Iterator[Item]:
    if split.size:
        yield from _read_sound_part(split, file, decoder, options, limiter)
    if split.tail is not None:
        yield split.tail


def _read_sound_part(
    split: Split, file: RandomFile, decoder: RecordDecoder, options: ReadOptions, limiter: RateLimiter
) -> Iterator[Item]:
    walker = SoundWalker(
        file,
        options,
        base_offset=split.base_offset,
        start=split.position,
        end=split.end_position,
        ceiling=split.ceiling,
        missing_from=split.start,
        look_back=split.look_back,
        limiter=limiter,
        hint=min(split.size, CHUNK_BYTES),
    )
    for item in read_sound(walker, decoder, split.aborted, split.base_offset, split.start, split.end):
        if not isinstance(item, Damage) or (item.touches(split.start, split.end) and item.start >= split.told_from):
            yield item


def read_splits(
    splits: Sequence[Split], schema: pa.Schema, options: ReadOptions | None = None
) -> Iterator[pa.RecordBatch]:
    """Read several splits, one after the other; damage that was passed over is said once, in the log."""
    damages: list[Damage] = []
    limiter = RateLimiter((options or ReadOptions()).max_bytes_per_second)
    for split in splits:
        yield from read_split(split, schema, options, damages, limiter)
    if CORRUPT_COLUMN not in schema.names:
        log_damages(damages, "a task")
