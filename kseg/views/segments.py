"""The view `segments`: a row for each segment of a log, with its sidecar files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from kseg.log.names import FileKind
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.views.columns import TIMESTAMP, to_batches, to_micros
from kseg.views.places import LogPlace, Unit, open_all, pack

UNIT_SEGMENTS: Final = 256
SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("baseOffset", pa.int64()),
        ("nextOffset", pa.int64()),
        ("size", pa.int64()),
        ("maxTimestamp", TIMESTAMP),
        ("mtime", TIMESTAMP),
        ("path", pa.string()),
        ("indexBytes", pa.int64()),
        ("timeIndexBytes", pa.int64()),
        ("hasTxnIndex", pa.bool_()),
        ("isActive", pa.bool_()),
        ("tier", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class SegmentsUnit:
    """Some partitions."""

    places: Sequence[LogPlace]

    def read(self) -> Iterator[pa.RecordBatch]:
        """Look at the segments as they are now."""
        return to_batches(SCHEMA, (row for log in open_all(self.places) for row in log.relisting(partial(_rows, log))))


def plan(logs: Iterable[Log], *, unit_segments: int = UNIT_SEGMENTS) -> list[Unit]:
    """Units of whole partitions."""
    sized = ((LogPlace.of(log), len(log.segments)) for log in logs)
    return [SegmentsUnit(places) for places in pack(sized, unit_segments, fixed_cost=0)]


def _rows(log: Log) -> list[dict[str, object]]:
    return [_row(log, segment) for segment in log.segments]


def _row(log: Log, segment: Segment) -> dict[str, object]:
    return {
        "topic": log.topic,
        "partition": log.partition,
        "baseOffset": segment.base_offset,
        "nextOffset": segment.next_offset,
        "size": segment.size,
        "maxTimestamp": to_micros(segment.max_timestamp),
        "mtime": to_micros(segment.mtime_ms),
        "path": segment.path,
        "indexBytes": _bytes_of(segment, FileKind.OFFSET_INDEX),
        "timeIndexBytes": _bytes_of(segment, FileKind.TIME_INDEX),
        "hasTxnIndex": FileKind.TXN_INDEX in segment.files,
        "isActive": segment.is_last,
        "tier": segment.tier,
    }


def _bytes_of(segment: Segment, kind: FileKind) -> int | None:
    entry = segment.files.get(kind)
    return None if entry is None else entry.size
