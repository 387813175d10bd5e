"""Control records: what Kafka itself writes into a log, in batches with the control bit set.

The key is i16 version and i16 type. Types 0 and 1 end transactions in any topic; 2 to 6 are in `__cluster_metadata`
and its snapshots only. Kafka writes and reads the structs of 2 to 6 at schema version 0, whatever their own `version`
field says (ControlRecordUtils); it is a field like any other.
"""

from __future__ import annotations

from typing import Final

from kseg.errors import CorruptRecordError
from kseg.internal.framing import unknown_record
from kseg.internal.schema import Fields, Message, message
from kseg.internal.wire import WireReader

_SCHEMA_VERSION: Final = 0
_MARKERS: Final = (0, 1)

END_TXN_MARKER: Final = message("EndTxnMarker", "0", "none", "coordinatorEpoch   int32")
LEADER_CHANGE: Final = message(
    "LeaderChangeMessage",
    "0-1",
    "0+",
    """
    version          int16
    leaderId         int32
    voters           []Voter
    grantingVoters   []Voter
    """,
    {
        "Voter": """
    voterId            int32
    voterDirectoryId   uuid   1+
    """
    },
)
SNAPSHOT_HEADER: Final = message(
    "SnapshotHeaderRecord",
    "0",
    "0+",
    """
    version                     int16
    lastContainedLogTimestamp   int64
    """,
)
SNAPSHOT_FOOTER: Final = message("SnapshotFooterRecord", "0", "0+", "version   int16")
KRAFT_VERSION: Final = message(
    "KRaftVersionRecord",
    "0",
    "0+",
    """
    version        int16
    kRaftVersion   int16
    """,
)
KRAFT_VOTERS: Final = message(
    "VotersRecord",
    "0",
    "0+",
    """
    version                 int16
    voters                  []Voter
      voterId                 int32
      voterDirectoryId        uuid
      endpoints               []Endpoint
        name                    string
        host                    string
        port                    uint16
      kRaftVersionFeature     KRaftVersionFeature
        minSupportedVersion     int16
        maxSupportedVersion     int16
    """,
)

# By number: Kafka's name of the control record, and the struct of its value.
TYPES: Final[tuple[tuple[str, Message], ...]] = (
    ("ABORT", END_TXN_MARKER),
    ("COMMIT", END_TXN_MARKER),
    ("LEADER_CHANGE", LEADER_CHANGE),
    ("SNAPSHOT_HEADER", SNAPSHOT_HEADER),
    ("SNAPSHOT_FOOTER", SNAPSHOT_FOOTER),
    ("KRAFT_VERSION", KRAFT_VERSION),
    ("KRAFT_VOTERS", KRAFT_VOTERS),
)


def decode_control_record(key: bytes | None, value: bytes | None) -> Fields:
    """Decode a record of a control batch, of any topic.

    Gives `type`, `typeId`, `version` (of a transaction marker's value, else 0) and `value`; a type that is not known
    becomes `{"type": "unknown", ...}`, as everywhere in this package.

    Raises:
        CorruptRecordError: The key is too short or has a negative version, or the value is not what the type needs.
    """
    if key is None:
        raise CorruptRecordError("a control record has no key")
    reader = WireReader(key)
    key_version, type_id = reader.int16(), reader.int16()
    if key_version < 0:
        raise CorruptRecordError(f"control record key has version {key_version}")
    if not 0 <= type_id < len(TYPES):
        return unknown_record(f"control record type {type_id}", key, value)
    name, kind = TYPES[type_id]
    if value is None:
        raise CorruptRecordError(f"control record {name} has no value")
    reader = WireReader(value)
    version = _SCHEMA_VERSION
    if type_id in _MARKERS:
        version = reader.int16()
        if version < 0:
            raise CorruptRecordError(f"control record {name} has version {version}")
    # As Kafka does: a newer marker is read as the one that is known, and bytes after the struct are not looked at.
    return {"type": name, "typeId": type_id, "version": version, "value": kind.read(reader, _SCHEMA_VERSION)}
