"""Records of `__share_group_state`: for each share group and partition a snapshot, and updates since."""

from __future__ import annotations

from typing import Final

from kseg.internal.framing import CoordinatorRecords, coordinator_type

TOPIC: Final = "__share_group_state"

_KEY = """
    groupId     string
    topicId     uuid
    partition   int32
"""
_STATE_BATCH = """
    firstOffset     int64
    lastOffset      int64
    deliveryState   int8
    deliveryCount   int16
"""

SHARE_SNAPSHOT: Final = coordinator_type(
    0,
    "ShareSnapshot",
    _KEY,
    """
    snapshotEpoch           int32
    stateEpoch              int32
    leaderEpoch             int32
    startOffset             int64
    deliveryCompleteCount   int32   =-1   tag=0
    createTimestamp         int64
    writeTimestamp          int64
    stateBatches            []StateBatch
    """,
    StateBatch=_STATE_BATCH,
)
SHARE_UPDATE: Final = coordinator_type(
    1,
    "ShareUpdate",
    _KEY,
    """
    snapshotEpoch           int32
    leaderEpoch             int32
    startOffset             int64
    deliveryCompleteCount   int32   =-1   tag=0
    stateBatches            []StateBatch
    """,
    StateBatch=_STATE_BATCH,
)

RECORDS: Final = CoordinatorRecords({kind.id: kind for kind in (SHARE_SNAPSHOT, SHARE_UPDATE)})
