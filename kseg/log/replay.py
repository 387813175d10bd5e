"""Records of internal topics in the order of the log, with the markers between them, as a coordinator loads them.

A coordinator reads to the end of the log, not to the last stable offset: a commit that another producer's open
transaction holds back for consumers counts for it already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kseg.errors import CorruptRecordError, FormatError, KsegError
from kseg.format.arrow import RecordDecoder
from kseg.internal.decode import decode_record
from kseg.internal.schema import Fields
from kseg.log.partition import Log
from kseg.log.scan import open_segments
from kseg.log.walk import BatchWalker, Chunk, check_order
from kseg.native import table as t
from kseg.schema import select_columns

_COLUMNS: Final = ("offset", "key", "value", "producerId")
_ABORT, _COMMIT = 0, 1
_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction."""

    offset: int
    producer_id: int
    commit: bool


@dataclass(frozen=True, slots=True)
class Latest:
    """The last value of a key, and where it is."""

    offset: int
    value: bytes
    path: str


Event: TypeAlias = "pa.RecordBatch | Marker"


def iter_events(log: Log, start: int | None = None) -> Iterator[Event]:
    """Runs of records (offset, key, value, producerId) and transaction markers, from `start` to the end of the log."""
    first = log.start_offset if start is None else max(start, log.start_offset)
    decoder = record_decoder(log.options.max_batch_bytes)
    for segment, file, begin, limit in open_segments(log, first, _END):
        position = segment.find_position(file, begin) if begin > segment.base_offset else 0
        walker = segment.walk(file, start=position, end=segment.sound_size if segment.is_last else None, check=True)
        last = segment.base_offset - 1
        for chunk in walker:
            last = check_order(chunk, segment.base_offset, last, segment.path)
            yield from _events_of(chunk, decoder, begin, limit, segment.path)
        if not segment.is_last:
            walker.raise_if_torn()


def iter_file_events(walker: BatchWalker, path: str, max_batch_bytes: int) -> Iterator[tuple[Chunk, list[Event]]]:
    """The same for a file that is no segment (a snapshot), chunk by chunk; to its end."""
    decoder = record_decoder(max_batch_bytes)
    for chunk in walker:
        yield chunk, list(_events_of(chunk, decoder, 0, _END, path))
    walker.raise_if_torn()


def record_decoder(max_batch_bytes: int) -> RecordDecoder:
    """A decoder of the columns that a replay needs."""
    return RecordDecoder(select_columns(_COLUMNS), topic="", partition=0, max_batch_bytes=max_batch_bytes)


def _events_of(chunk: Chunk, decoder: RecordDecoder, start: int, end: int, path: str) -> Iterator[Event]:
    table = chunk.table[:, : chunk.rows]
    control = (table[t.MAGIC] == 2) & (table[t.ATTRIBUTES] & t.CONTROL_BIT != 0)
    markers = deque(_markers_of(table[:, control], start, end))
    try:
        for batch in decoder.decode(
            chunk.data, chunk.file_position, chunk.table, range(chunk.rows), control, start, end
        ):
            offsets = batch.column(0).to_numpy()
            done = 0
            while markers and markers[0].offset < offsets[-1]:
                cut = int(np.searchsorted(offsets, markers[0].offset))
                if cut > done:
                    yield batch.slice(done, cut - done)
                    done = cut
                yield markers.popleft()
            yield batch.slice(done)
    except FormatError as error:
        raise error.with_context(path=path) from None
    yield from markers


def _markers_of(table: t.Table, start: int, end: int) -> Iterator[Marker]:
    kinds = table[t.MARKER_TYPE]
    wanted = ((kinds == _ABORT) | (kinds == _COMMIT)) & (table[t.BASE_OFFSET] >= start) & (table[t.BASE_OFFSET] < end)
    rows = table[[t.BASE_OFFSET, t.PRODUCER_ID, t.MARKER_TYPE]][:, wanted].T.tolist()
    return (Marker(offset, producer_id, kind == _COMMIT) for offset, producer_id, kind in rows)


class LatestByKey:
    """The last value of each key of one partition of a coordinator's topic.

    What a producer wrote in a transaction waits for its marker, and then counts unless the key has a newer value; a
    tombstone counts at once (OffsetMetadataManager.replay).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.values: dict[bytes, Latest] = {}
        self._pending: dict[int, dict[bytes, Latest]] = {}

    def add(self, event: Event) -> None:
        """Take the next event of the log."""
        if isinstance(event, Marker):
            self._end_transaction(event)
            return
        columns = (event.column(i).to_pylist() for i in range(len(_COLUMNS)))
        for offset, key, value, producer_id in zip(*columns, strict=True):
            if key is None:
                raise CorruptRecordError("a coordinator's record has no key", path=self.path, offset=offset)
            if value is None:
                self.values.pop(key, None)
            elif producer_id < 0:
                self.values[key] = Latest(offset, value, self.path)
            else:
                self._pending.setdefault(producer_id, {})[key] = Latest(offset, value, self.path)

    def _end_transaction(self, marker: Marker) -> None:
        for key, latest in self._pending.pop(marker.producer_id, {}).items():
            known = self.values.get(key)
            if marker.commit and (known is None or latest.offset > known.offset):
                self.values[key] = latest


def load_latest(logs: Iterable[Log], prefixes: Sequence[bytes] = ()) -> dict[bytes, Latest]:
    """The last value of each key, over partitions of one coordinator's topic.

    Args:
        prefixes: Only keys that begin with one of these, which are of one length; all unless given.
    """
    found: dict[bytes, Latest] = {}
    for log in logs:
        state = LatestByKey(log.directory)
        for event in iter_events(log):
            state.add(_matching(event, prefixes) if prefixes else event)
        found |= state.values
    return found


def _matching(event: Event, prefixes: Sequence[bytes]) -> Event:
    if isinstance(event, Marker):
        return event
    starts = pc.binary_slice(event.column("key"), 0, len(prefixes[0]))
    # a record without a key is damage, whatever is asked for
    return event.filter(pc.or_(pc.is_null(starts), pc.is_in(starts, pa.array(prefixes, pa.binary()))))


def decode_latest(topic: str, latest: dict[bytes, Latest]) -> Iterator[tuple[int, Fields]]:
    """Decode what `load_latest` gave, each with its offset; records of unknown types are among them."""
    for key, found in latest.items():
        try:
            decoded = decode_record(topic, key, found.value)
        except KsegError as error:
            raise error.with_context(path=found.path, offset=found.offset) from None
        if decoded is not None:
            yield found.offset, decoded
