"""What consumers tell each other through a classic group: subscriptions and assignments, i16 version and struct.

Kafka keeps them as opaque bytes in its group records. Only groups of protocol type `consumer` hold these structs, and
any client library may have written them, so bytes that do not parse are left as base64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kseg.errors import CorruptRecordError
from kseg.internal.schema import Fields, Message, message
from kseg.internal.values import from_base64, to_base64
from kseg.internal.wire import INT16, WireReader

PROTOCOL_TYPE: Final = "consumer"

SUBSCRIPTION: Final = message(
    "ConsumerProtocolSubscription",
    "0-3",
    "none",
    """
    topics            []string
    userData          bytes?    =null
    ownedPartitions   []TopicPartition   1+
      topic             string
      partitions        []int32
    generationId      int32     2+   =-1
    rackId            string?   3+   =null
    """,
)
ASSIGNMENT: Final = message(
    "ConsumerProtocolAssignment",
    "0-3",
    "none",
    """
    assignedPartitions   []TopicPartition
      topic                string
      partitions           []int32
    userData             bytes?   =null
    """,
)

Change = Callable[[Any, Message], Any]


def expand(shown: Any, protocol: Message) -> Any:
    """Turn base64 into the struct's fields, `version` first; leave it alone where the bytes are something else."""
    if not isinstance(shown, str):
        return shown
    data = from_base64(shown)
    reader = WireReader(data)
    try:
        version = reader.int16()
        if version < 0:
            return shown
        fields = protocol.read(reader, _known(version, protocol))
    except CorruptRecordError:
        return shown
    expanded: Fields = {"version": version, **fields}
    if reader.remaining:
        expanded["trailing"] = to_base64(reader.raw(reader.remaining))
    return expanded


def collapse(shown: Any, protocol: Message) -> Any:
    """Undo `expand`."""
    if not isinstance(shown, Mapping):
        return shown
    version = shown["version"]
    fields = {name: value for name, value in shown.items() if name not in ("version", "trailing")}
    data = INT16.pack(version) + protocol.encode(fields, _known(version, protocol))
    return to_base64(data + from_base64(shown.get("trailing", "")))


def change_group(group: Fields, change: Change) -> Fields:
    """Apply `expand` or `collapse` to the members of a GroupMetadataValue."""
    if group["protocolType"] != PROTOCOL_TYPE:
        return group
    members = [
        {
            **member,
            "subscription": change(member["subscription"], SUBSCRIPTION),
            "assignment": change(member["assignment"], ASSIGNMENT),
        }
        for member in group["members"]
    ]
    return {**group, "members": members}


def change_member(member: Fields, change: Change) -> Fields:
    """Apply `expand` or `collapse` to the classic protocols of a ConsumerGroupMemberMetadataValue."""
    classic = member.get("classicMemberMetadata")
    if not classic:
        return member
    protocols = [
        {**protocol, "metadata": change(protocol["metadata"], SUBSCRIPTION)}
        for protocol in classic["supportedProtocols"]
    ]
    return {**member, "classicMemberMetadata": {**classic, "supportedProtocols": protocols}}


def _known(version: int, protocol: Message) -> int:
    # ConsumerProtocol parses what is newer than itself as the newest version that it knows.
    return min(version, protocol.versions[-1])
