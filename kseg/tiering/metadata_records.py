"""What `__remote_log_metadata` says of a segment: the records that are written, and what a reader makes of them.

A copy is told by two records: its description in state COPY_SEGMENT_STARTED before the first byte is uploaded, and an
update to COPY_SEGMENT_FINISHED behind the last. Readers pass over whatever is not FINISHED.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from kseg.errors import OptionError
from kseg.index.epoch import EpochStart
from kseg.internal.framing import TOMBSTONE, UNKNOWN
from kseg.internal.remote_log_metadata import RECORDS, TOPIC, decode
from kseg.internal.values import from_base64, to_base64
from kseg.log.partition import Log
from kseg.native.hash import fill_murmur2
from kseg.tiering.layout import RemoteName

COPY_STARTED: Final = 0
COPY_FINISHED: Final = 1
DELETE_STARTED: Final = 2
DELETE_FINISHED: Final = 3
_SEGMENT_RECORD: Final = 0
_UPDATE_RECORD: Final = 1
_VERSION: Final = 0
_MASK32: Final = 0xFFFFFFFF

__all__ = [
    "COPY_FINISHED",
    "COPY_STARTED",
    "DELETE_FINISHED",
    "DELETE_STARTED",
    "TOPIC",
    "SegmentRecord",
    "metadata_partition",
    "read_segment_records",
]


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A segment in the tier, as the metadata topic describes it.

    Attributes:
        end_offset: The last offset that the segment stands for: the next segment's base minus one.
        epochs: Leader epochs inside the segment; the first begins at `start_offset`.
        event_timestamp_ms: When the copy was begun, or the last update was written.
        custom: What the storage plugin keeps for itself.
    """

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    size: int
    epochs: tuple[EpochStart, ...]
    txn_index_empty: bool = False
    custom: bytes | None = None
    state: int = COPY_STARTED

    @property
    def name(self) -> RemoteName:
        """The name that the segment's objects share."""
        return RemoteName(self.topic, self.partition, self.topic_id, self.start_offset, self.segment_id)

    @property
    def is_finished(self) -> bool:
        """Whether the copy is complete and nobody has begun to delete it."""
        return self.state == COPY_FINISHED

    def _id(self) -> dict[str, Any]:
        partition = {"name": self.topic, "id": self.topic_id, "partition": self.partition}
        return {"topicIdPartition": partition, "id": self.segment_id}

    def started_value(self) -> bytes:
        """The record that announces a copy."""
        fields = {
            "remoteLogSegmentId": self._id(),
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "brokerId": self.broker_id,
            "maxTimestampMs": self.max_timestamp_ms,
            "eventTimestampMs": self.event_timestamp_ms,
            "segmentLeaderEpochs": [{"leaderEpoch": e.epoch, "offset": e.start_offset} for e in self.epochs],
            "segmentSizeInBytes": self.size,
            "customMetadata": None,
            "remoteLogSegmentState": COPY_STARTED,
            "txnIndexEmpty": self.txn_index_empty,
        }
        return RECORDS.encode_value(_SEGMENT_RECORD, _VERSION, fields)

    def finished_value(self, now_ms: int) -> bytes:
        """The record that says that the copy is complete."""
        return self.update_value(COPY_FINISHED, now_ms)

    def update_value(self, state: int, now_ms: int) -> bytes:
        """The record that moves the segment to another state."""
        fields = {
            "remoteLogSegmentId": self._id(),
            "brokerId": self.broker_id,
            "eventTimestampMs": now_ms,
            "customMetadata": None if self.custom is None else to_base64(self.custom),
            "remoteLogSegmentState": state,
        }
        return RECORDS.encode_value(_UPDATE_RECORD, _VERSION, fields)


def metadata_partition(topic_id: str, partition: int, partitions: int) -> int:
    """The partition of `__remote_log_metadata` that tells of a topic's partition.

    Kafka hashes three numbers as Java's `Objects.hash` does, the id's low and high half and the partition, and
    murmur2 hashes the four bytes of that.
    """
    if partitions < 1:
        raise OptionError(f"partitions is {partitions}; it must be 1 or more")
    raw = base64.urlsafe_b64decode(topic_id + "==")
    high, low = int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:], "big")
    code = 1
    for number in (_fold(low), _fold(high), partition):
        code = (31 * code + number) & _MASK32
    data = np.frombuffer(code.to_bytes(4, "big"), np.uint8)
    hashed = np.empty(1, np.int64)
    fill_murmur2(data, np.zeros(1, np.int64), np.full(1, 4, np.int64), 1, hashed)
    return int(hashed[0] & 0x7FFFFFFF) % partitions


def _fold(number: int) -> int:
    return (number ^ number >> 32) & _MASK32


def read_segment_records(log: Log) -> dict[str, SegmentRecord]:
    """All segments that one partition of `__remote_log_metadata` tells of, by their ids, each in its latest state."""
    values = (
        value
        for batch in log.read(columns=["value"], read_past_high_watermark=True)
        for value in batch.column(0).to_pylist()
    )
    return fold_records(values)


def fold_records(values: Iterable[bytes | None]) -> dict[str, SegmentRecord]:
    """The segments that records tell of, by their ids."""
    found: dict[str, SegmentRecord] = {}
    for value in values:
        decoded = decode(None, value)
        if decoded["type"] not in (UNKNOWN, TOMBSTONE) and decoded["typeId"] in (_SEGMENT_RECORD, _UPDATE_RECORD):
            apply_record(found, decoded)
    return found


def apply_record(segments: dict[str, SegmentRecord], decoded: Mapping[str, Any]) -> None:
    """Take a description or an update; an update whose description was never seen is dropped, as a broker does."""
    fields = decoded["value"]
    segment_id = fields["remoteLogSegmentId"]["id"]
    if decoded["typeId"] == _SEGMENT_RECORD:
        segments[segment_id] = _described(fields)
    elif segment_id in segments:
        custom = fields["customMetadata"]
        segments[segment_id] = replace(
            segments[segment_id],
            state=fields["remoteLogSegmentState"],
            event_timestamp_ms=fields["eventTimestampMs"],
            custom=segments[segment_id].custom if custom is None else from_base64(custom),
        )


def _described(fields: Mapping[str, Any]) -> SegmentRecord:
    where = fields["remoteLogSegmentId"]["topicIdPartition"]
    custom = fields["customMetadata"]
    return SegmentRecord(
        where["name"],
        where["id"],
        where["partition"],
        fields["remoteLogSegmentId"]["id"],
        fields["startOffset"],
        fields["endOffset"],
        fields["maxTimestampMs"],
        fields["brokerId"],
        fields["eventTimestampMs"],
        fields["segmentSizeInBytes"],
        tuple(sorted(EpochStart(entry["leaderEpoch"], entry["offset"]) for entry in fields["segmentLeaderEpochs"])),
        bool(fields.get("txnIndexEmpty", False)),
        None if custom is None else from_base64(custom),
        fields["remoteLogSegmentState"],
    )
