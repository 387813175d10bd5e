"""Groups as `__consumer_offsets` tells of them: classic, consumer, share and streams groups with their members.

| type     | the first of these that holds                                                                          |
|----------|--------------------------------------------------------------------------------------------------------|
| any      | Empty: no members                                                                                      |
| classic  | Stable (a rebalance that is under way is not written)                                                  |
| consumer | Assigning: the target is older than the group; Reconciling: a member has not reached it; Stable        |
| share    | Stable                                                                                                 |
| streams  | NotReady: its topology was not validated; then as consumer                                             |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kseg.internal import consumer_offsets
from kseg.internal.framing import UNKNOWN
from kseg.internal.schema import Fields

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"

_STABLE: Final = {CONSUMER: 0, SHARE: 0, STREAMS: 1}
_STATES: Final = {
    CONSUMER: {0: "Stable", 1: "UnrevokedPartitions", 2: "UnreleasedPartitions"},
    SHARE: {0: "Stable"},
    STREAMS: {1: "Stable", 2: "UnrevokedTasks", 3: "UnreleasedTasks"},
}
_TASKS: Final = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}
# By record type: which kind of group it is about, and what it tells.
_GROUP_RECORDS: Final = {
    2: (CLASSIC, "metadata"),
    3: (CONSUMER, "metadata"),
    6: (CONSUMER, "target"),
    11: (SHARE, "metadata"),
    12: (SHARE, "target"),
    17: (STREAMS, "metadata"),
    20: (STREAMS, "target"),
    23: (STREAMS, "topology"),
}
_MEMBER_RECORDS: Final = {
    5: (CONSUMER, "metadata"),
    8: (CONSUMER, "current"),
    10: (SHARE, "metadata"),
    14: (SHARE, "current"),
    19: (STREAMS, "metadata"),
    22: (STREAMS, "current"),
}


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions of a topic, or tasks of a streams subtopology, that a member has."""

    partitions: tuple[int, ...]
    topic: str | None = None
    topic_id: str | None = None
    subtopology: str | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group; None for what its kind of group does not tell."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None = None
    epoch: int | None = None
    state: str | None = None
    topics: tuple[str, ...] | None = None
    assignment: tuple[Assignment, ...] | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group; `epoch` is the generation of a classic one."""

    group: str
    type: str
    state: str
    epoch: int | None = None
    assignment_epoch: int | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int | None = None
    members: tuple[Member, ...] = ()


@dataclass(slots=True)
class GroupRecords:
    """The last records of all groups, sorted by what they are about.

    Attributes:
        groups: By group, kind and what they tell, with the record's offset.
        members: The same by member.
        committed: Groups that have committed offsets; some have nothing else.
        unknown: Records of types or versions that are not known, as decoded.
    """

    groups: dict[str, dict[tuple[str, str], tuple[int, Fields]]] = field(default_factory=dict)
    members: dict[tuple[str, str], dict[str, Fields]] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    unknown: list[Fields] = field(default_factory=list)

    def add(self, offset: int, decoded: Fields) -> None:
        """Take the last record of a key."""
        if decoded["type"] == UNKNOWN:
            self.unknown.append(decoded)
            return
        number, key, value = decoded["typeId"], decoded["key"], decoded["value"]
        if number in (consumer_offsets.LEGACY_OFFSET_COMMIT, consumer_offsets.OFFSET_COMMIT):
            self.committed.add(key["group"])
        elif number in _GROUP_RECORDS:
            name = key["group"] if number == consumer_offsets.GROUP_METADATA else key["groupId"]
            self.groups.setdefault(name, {})[_GROUP_RECORDS[number]] = (offset, value)
        elif number in _MEMBER_RECORDS:
            kind, what = _MEMBER_RECORDS[number]
            of_group = self.members.setdefault((key["groupId"], kind), {})
            of_group.setdefault(key["memberId"], {})[what] = value

    def build(self) -> list[Group]:
        """The groups, by name."""
        return [group for name in sorted({*self.groups, *self.committed}) if (group := self._group(name)) is not None]

    def _group(self, name: str) -> Group | None:
        records = self.groups.get(name, {})
        told = [(offset, kind) for (kind, what), (offset, _) in records.items() if what == "metadata"]
        if not told:  # it has committed and never joined; or it is gone, and has left something behind
            return Group(name, CLASSIC, "Empty") if name in self.committed else None
        kind = max(told)[1]  # a group can be converted
        metadata = records[kind, "metadata"][1]
        if kind == CLASSIC:
            return _classic_group(name, metadata)
        raw = self.members.get((name, kind), {})
        members = {member_id: parts for member_id, parts in sorted(raw.items()) if "metadata" in parts}
        target = records.get((kind, "target"), (0, {}))[1].get("assignmentEpoch")
        topology = records.get((kind, "topology"), (0, None))[1]
        return Group(
            name,
            kind,
            _state(kind, metadata, target, topology, members.values()),
            epoch=metadata["epoch"],
            assignment_epoch=target,
            protocol=_assignor(members.values()),
            members=tuple(_member(kind, member_id, parts) for member_id, parts in members.items()),
        )


def _state(kind: str, metadata: Fields, target: int | None, topology: Fields | None, members: Iterable[Fields]) -> str:
    present = list(members)
    if not present:
        return "Empty"
    if kind == SHARE:
        return "Stable"
    if kind == STREAMS and (topology is None or metadata.get("validatedTopologyEpoch", -1) != topology["epoch"]):
        return "NotReady"
    if target is None or metadata["epoch"] > target:
        return "Assigning"
    for parts in present:
        current = parts.get("current")
        if current is None or current["state"] != _STABLE[kind] or current["memberEpoch"] != target:
            return "Reconciling"
    return "Stable"


def _assignor(members: Iterable[Fields]) -> str | None:
    """The assignor that members of a consumer group ask for, where they agree."""
    names = {parts["metadata"].get("serverAssignor") for parts in members} - {None, ""}
    return names.pop() if len(names) == 1 else None


def _member(kind: str, member_id: str, parts: Fields) -> Member:
    told, current = parts["metadata"], parts.get("current")
    topics = told.get("subscribedTopicNames")
    return Member(
        member_id,
        told.get("instanceId"),
        told["clientId"],
        told["clientHost"],
        rack=told.get("rackId"),
        epoch=None if current is None else current["memberEpoch"],
        state=None if current is None else _STATES[kind].get(current["state"], "Unknown"),
        topics=None if topics is None else tuple(topics),
        assignment=() if current is None else tuple(_assignments(current)),
    )


def _assignments(current: Fields) -> Iterable[Assignment]:
    for assigned in current.get("assignedPartitions", ()):
        yield Assignment(tuple(assigned["partitions"]), topic_id=assigned["topicId"])
    for name, role in _TASKS.items():
        for tasks in current.get(name, ()):
            yield Assignment(tuple(tasks["partitions"]), subtopology=tasks["subtopologyId"], role=role)


def _classic_group(name: str, told: Fields) -> Group:
    timestamp = told.get("currentStateTimestamp", -1)
    return Group(
        name,
        CLASSIC,
        "Stable" if told["members"] else "Empty",
        epoch=told["generation"],
        protocol_type=told["protocolType"],
        protocol=told["protocol"],
        leader=told["leader"],
        state_timestamp_ms=timestamp if timestamp >= 0 else None,
        members=tuple(_classic_member(member) for member in told["members"]),
    )


def _classic_member(told: Fields) -> Member:
    # Bytes that are no consumer's (Kafka Connect has its own) stay undecoded: nothing is known of them then.
    subscription: Any = told["subscription"]
    assignment: Any = told["assignment"]
    return Member(
        told["memberId"],
        told.get("groupInstanceId"),
        told["clientId"],
        told["clientHost"],
        rack=subscription.get("rackId") if isinstance(subscription, dict) else None,
        topics=tuple(subscription["topics"]) if isinstance(subscription, dict) else None,
        assignment=tuple(
            Assignment(tuple(assigned["partitions"]), topic=assigned["topic"])
            for assigned in assignment["assignedPartitions"]
        )
        if isinstance(assignment, dict)
        else None,
    )
