"""The view `batches`: a row for each batch, from its header alone; nothing is decompressed and no checksum is taken.

Numbers that a batch does not have are -1, as Kafka writes them; times that it does not have are null. The base offset
and count of a compressed legacy message set are null: only its content knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.errors import DataLossError, StorageError
from kseg.internal import control_records
from kseg.log.header_walk import HeaderWalker
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.walk import ReadOptions
from kseg.native import table as t
from kseg.storage import RandomFile, RateLimiter, Store
from kseg.types import Codec
from kseg.views.columns import TIMESTAMP, micros_array
from kseg.views.places import UNIT_BYTES, Unit, pack

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("segment", pa.int64()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("count", pa.int32()),
        ("magic", pa.int32()),
        ("codec", pa.string()),
        ("leaderEpoch", pa.int32()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int16()),
        ("baseSequence", pa.int32()),
        ("timestampType", pa.int32()),
        ("baseTimestamp", TIMESTAMP),
        ("maxTimestamp", TIMESTAMP),
        ("deleteHorizon", TIMESTAMP),
        ("isTransactional", pa.bool_()),
        ("isControl", pa.bool_()),
        ("markerType", pa.string()),
        ("crc", pa.int64()),
    ]
)

_NUMBERS: Final = {
    "position": t.POSITION,
    "size": t.SIZE,
    "lastOffset": t.LAST_OFFSET,
    "magic": t.MAGIC,
    "leaderEpoch": t.LEADER_EPOCH,
    "producerId": t.PRODUCER_ID,
    "producerEpoch": t.PRODUCER_EPOCH,
    "baseSequence": t.BASE_SEQUENCE,
    "crc": t.CRC,
}
_CODECS: Final = pa.array(
    [Codec(n).label if n in Codec.__members__.values() else f"unknown-{n}" for n in range(t.CODEC_MASK + 1)]
)
_MARKERS: Final = pa.array([*(name for name, _ in control_records.TYPES), "UNKNOWN"])
_HINT: Final = "load it again: segments were deleted or replaced since the read was planned"


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """The bytes of a segment file that were there when the read was planned.

    Batches that end below `start_offset`, the log's start, were deleted by request, and are left out.
    """

    store: Store
    path: str
    identity: str
    topic: str
    partition: int
    start_offset: int
    base_offset: int
    size: int
    is_last: bool
    options: ReadOptions


@dataclass(frozen=True, slots=True)
class BatchesUnit:
    """Segments, of one partition or of several."""

    pieces: Sequence[SegmentPiece]

    def read(self) -> Iterator[pa.RecordBatch]:
        """Walk the headers; a record batch for each chunk of a file."""
        limiter = RateLimiter(self.pieces[0].options.max_bytes_per_second)
        for piece in self.pieces:
            with _open(piece) as file:
                walker = HeaderWalker(file, piece.options, end=piece.size, limiter=limiter)
                for rows in walker:
                    if piece.start_offset > piece.base_offset:
                        rows = rows[:, rows[t.LAST_OFFSET] >= piece.start_offset]
                    if rows.shape[1]:
                        yield to_record_batch(rows, piece.topic, piece.partition, piece.base_offset)
                if not piece.is_last:
                    walker.raise_if_torn()


def plan(logs: Iterable[Log], *, unit_bytes: int = UNIT_BYTES) -> list[Unit]:
    """Units of whole segments; small ones share a unit."""
    pieces = (_piece_of(log, segment) for log in logs for segment in log.segments)
    return [BatchesUnit(packed) for packed in pack(((piece, piece.size) for piece in pieces), unit_bytes)]


def _piece_of(log: Log, segment: Segment) -> SegmentPiece:
    with segment.open() as file:
        return SegmentPiece(
            segment.store,
            segment.path,
            file.identity,
            log.topic,
            log.partition,
            log.start_offset,
            segment.base_offset,
            segment.sound_size if segment.is_last else file.size,
            segment.is_last,
            log.options,
        )


def _open(piece: SegmentPiece) -> RandomFile:
    try:
        file = piece.store.open(piece.path)
    except StorageError as error:
        if not error.missing:
            raise
        raise DataLossError("the segment is gone", path=piece.path, hint=_HINT) from error
    if file.identity != piece.identity or file.size < piece.size:
        file.close()
        raise DataLossError("the segment is not the one that was planned", path=piece.path, hint=_HINT)
    return file


def to_record_batch(table: t.Table, topic: str, partition: int, segment: int) -> pa.RecordBatch:
    """Rows of a batch table as a record batch of `SCHEMA`; the table can be reused afterwards."""
    count = table.shape[1]
    magic, attributes, marker = table[t.MAGIC], table[t.ATTRIBUTES], table[t.MARKER_TYPE]
    is_v2 = magic == 2
    unknown = ~is_v2 & (table[t.COUNT] < 0)
    has_horizon = is_v2 & (attributes & t.DELETE_HORIZON_BIT != 0)
    is_append_time = (attributes & t.LOG_APPEND_TIME_BIT != 0).astype(np.int64)
    columns = {name: _number(name, table[column]) for name, column in _NUMBERS.items()} | {
        "topic": pa.repeat(pa.scalar(topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
        "segment": pa.repeat(pa.scalar(segment, pa.int64()), count),
        "baseOffset": _number("baseOffset", table[t.BASE_OFFSET], unknown),
        "count": _number("count", table[t.COUNT], unknown),
        "codec": _CODECS.take(pa.array(attributes & t.CODEC_MASK)),
        "timestampType": _number("timestampType", np.where(magic > 0, is_append_time, -1)),
        "baseTimestamp": micros_array(table[t.BASE_TIMESTAMP], has_horizon),
        "maxTimestamp": micros_array(table[t.MAX_TIMESTAMP]),
        "deleteHorizon": micros_array(table[t.BASE_TIMESTAMP], ~has_horizon),
        "isTransactional": pa.array(is_v2 & (attributes & t.TRANSACTIONAL_BIT != 0)),
        "isControl": pa.array(is_v2 & (attributes & t.CONTROL_BIT != 0)),
        "markerType": _MARKERS.take(pa.array(np.clip(marker, 0, len(_MARKERS) - 1), mask=marker < 0)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _number(name: str, values: NDArray[np.int64], absent: NDArray[np.bool_] | None = None) -> pa.Array:
    kind = SCHEMA.field(name).type
    narrow = values.astype(kind.to_pandas_dtype())  # also copies: the walker overwrites its table
    return pa.array(narrow, kind, mask=absent)
