"""Records of `__remote_log_metadata`: which segments are in the tier, and what became of them.

Kafka 4.3 writes no keys; KIP-1266 will, and null values with them. Both are taken: a key is kept as base64, a null
value is `{"type": "tombstone", "key": base64, "value": None}`.
"""

from __future__ import annotations

from typing import Final

from kseg.internal.framing import TOMBSTONE, FramedRecords
from kseg.internal.schema import Fields, message
from kseg.internal.values import to_base64

TOPIC: Final = "__remote_log_metadata"

# By number: what `remoteLogSegmentState` says.
SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
# By number: what `remotePartitionDeleteState` says.
PARTITION_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")

_TOPIC_ID_PARTITION = """
    name        string
    id          uuid
    partition   int32
"""
_SEGMENT_ID = """
    topicIdPartition   TopicIdPartitionEntry
    id                 uuid
"""
_STRUCTS = {"TopicIdPartitionEntry": _TOPIC_ID_PARTITION, "RemoteLogSegmentIdEntry": _SEGMENT_ID}
_SEGMENT = """
    startOffset             int64
    endOffset               int64
    brokerId                int32
    maxTimestampMs          int64
    eventTimestampMs        int64
    segmentLeaderEpochs     []SegmentLeaderEpochEntry
      leaderEpoch             int32
      offset                  int64
    segmentSizeInBytes      int32
    customMetadata          bytes?   =null
    remoteLogSegmentState   int8
    txnIndexEmpty           bool     =false   tag=0
"""

SEGMENT_METADATA: Final = message(
    "RemoteLogSegmentMetadataRecord",
    "0",
    "0+",
    "    remoteLogSegmentId   RemoteLogSegmentIdEntry" + _SEGMENT,
    _STRUCTS,
)
SEGMENT_METADATA_UPDATE: Final = message(
    "RemoteLogSegmentMetadataUpdateRecord",
    "0",
    "0+",
    """
    remoteLogSegmentId      RemoteLogSegmentIdEntry
    brokerId                int32
    eventTimestampMs        int64
    customMetadata          bytes?   =null
    remoteLogSegmentState   int8
    """,
    _STRUCTS,
)
PARTITION_DELETE: Final = message(
    "RemotePartitionDeleteMetadataRecord",
    "0",
    "0+",
    """
    topicIdPartition             TopicIdPartitionEntry
    brokerId                     int32
    eventTimestampMs             int64
    remotePartitionDeleteState   int8
    """,
    _STRUCTS,
)
SEGMENT_METADATA_SNAPSHOT: Final = message(
    "RemoteLogSegmentMetadataSnapshotRecord", "0", "0+", "    segmentId   uuid" + _SEGMENT
)

RECORDS: Final = FramedRecords(
    {
        0: SEGMENT_METADATA,
        1: SEGMENT_METADATA_UPDATE,
        2: PARTITION_DELETE,
        3: SEGMENT_METADATA_SNAPSHOT,
    }
)


def decode(key: bytes | None, value: bytes | None) -> Fields:
    """Decode one record."""
    if value is None:
        return {"type": TOMBSTONE, "key": None if key is None else to_base64(key), "value": None}
    return RECORDS.decode(key, value)
