"""What the metadata log of a cluster says, replayed: topics, partitions, settings, brokers, features.

Records between a BeginTransactionRecord and its end count only if that is an EndTransactionRecord. Secrets were
redacted when the records were decoded. Records that say nothing of these five are passed over; those of unknown types
are kept in `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kseg.errors import CorruptRecordError
from kseg.internal.cluster_metadata import RESOURCE_TYPES
from kseg.internal.framing import UNKNOWN
from kseg.internal.schema import Fields

NO_LEADER: Final = -1
MIN_ISR: Final = "min.insync.replicas"
CLUSTER_DEFAULT: Final = ("broker", "")  # the resource whose settings hold for every broker

Resource = tuple[str, str]
"""Type (`topic`, `broker`, `client-metrics`, `group`) and name."""


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """A partition's state; `leader` is -1 where there is none."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int
    directories: tuple[str, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]

    @property
    def is_offline(self) -> bool:
        """Whether nobody leads it."""
        return self.leader == NO_LEADER

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer are in sync than the replicas that it has when no reassignment is under way."""
        return len(self.isr) < len(self.replicas) - len(self.adding)

    def is_under_min_isr(self, min_isr: int) -> bool:
        """Whether too few are in sync for acks=all; a setting above the number of replicas counts as that number."""
        return len(self.isr) < min(min_isr, len(self.replicas))


@dataclass(slots=True)
class TopicImage:
    """A topic and its partitions by number."""

    name: str
    topic_id: str
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker."""

    broker_id: int
    epoch: int
    incarnation_id: str
    endpoints: tuple[Fields, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[str, ...]


class MetadataImage:
    """A cluster's metadata up to `end_offset`, moved on by decoded records (`kseg.internal.cluster_metadata.decode`).

    Attributes:
        topics: By name.
        configs: Settings by resource; see `setting` for what holds for a topic.
        brokers: By id.
        features: Finalised levels by name, `metadata.version` among them.
        unknown: Records of types or versions that are not known, as decoded.
    """

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self.topics: dict[str, TopicImage] = {}
        self.configs: dict[Resource, dict[str, str]] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.features: dict[str, int] = {}
        self.unknown: list[Fields] = []
        self._by_id: dict[str, TopicImage] = {}
        self._transaction: list[Fields] | None = None

    def topic_by_id(self, topic_id: str) -> TopicImage | None:
        """The topic of an id, None where there is none."""
        return self._by_id.get(topic_id)

    def topic_configs(self, topic: str) -> dict[str, str]:
        """What was set for a topic itself."""
        return dict(self.configs.get(("topic", topic), {}))

    def setting(self, topic: str, name: str) -> str | None:
        """What holds for a topic, as far as the log tells: its own value, else the cluster's default for brokers.

        None where neither is set: the brokers' own files decide then.
        """
        for resource in (("topic", topic), CLUSTER_DEFAULT):
            if (value := self.configs.get(resource, {}).get(name)) is not None:
                return value
        return None

    def min_isr(self, topic: str) -> int | None:
        """min.insync.replicas of a topic, None where the log does not tell."""
        value = self.setting(topic, MIN_ISR)
        return int(value) if value is not None and value.isdecimal() else None

    def replay(self, decoded: Fields, offset: int | None = None) -> None:
        """Take the next record.

        Raises:
            CorruptRecordError: It is about a topic or partition that is not there, or ends a transaction that never
                began.
        """
        if offset is not None:
            self.end_offset = offset + 1
        kind = decoded["type"]
        if kind == "BeginTransactionRecord":
            if self._transaction is not None:
                raise CorruptRecordError("a metadata transaction begins inside another", offset=offset)
            self._transaction = []
        elif kind in ("EndTransactionRecord", "AbortTransactionRecord"):
            if self._transaction is None:
                raise CorruptRecordError(f"{kind} without a transaction", offset=offset)
            records, self._transaction = self._transaction, None
            for record in records if kind == "EndTransactionRecord" else ():
                self._apply(record)
        elif self._transaction is not None:
            self._transaction.append(decoded)
        else:
            self._apply(decoded)

    def _apply(self, decoded: Fields) -> None:
        if decoded["type"] == UNKNOWN:
            self.unknown.append(decoded)
        elif (change := _CHANGES.get(decoded["type"])) is not None:
            change(self, decoded["value"])

    def _topic_of(self, topic_id: str) -> TopicImage:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise CorruptRecordError(f"no topic has the id {topic_id}")
        return topic

    def _add_topic(self, value: Fields) -> None:
        topic = TopicImage(value["name"], value["topicId"])
        self.topics[topic.name] = self._by_id[topic.topic_id] = topic

    def _remove_topic(self, value: Fields) -> None:
        topic = self._topic_of(value["topicId"])
        del self._by_id[topic.topic_id]
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]
            self.configs.pop(("topic", topic.name), None)

    def _add_partition(self, value: Fields) -> None:
        self._topic_of(value["topicId"]).partitions[value["partitionId"]] = PartitionImage(
            value["partitionId"],
            tuple(value["replicas"]),
            tuple(value["isr"]),
            tuple(value["removingReplicas"]),
            tuple(value["addingReplicas"]),
            value["leader"],
            value["leaderEpoch"],
            value["partitionEpoch"],
            value.get("leaderRecoveryState", 0),
            tuple(value.get("directories", ())),
            tuple(value.get("eligibleLeaderReplicas") or ()),
            tuple(value.get("lastKnownElr") or ()),
        )

    def _change_partition(self, value: Fields) -> None:
        topic = self._topic_of(value["topicId"])
        known = topic.partitions.get(value["partitionId"])
        if known is None:
            raise CorruptRecordError(f"topic {topic.name} has no partition {value['partitionId']}")
        # A field that is not there, or null, does not change; a leader that is there is a new term, even of the same.
        lists = {name: tuple(value[wire]) for wire, name in _CHANGED_LISTS.items() if value.get(wire) is not None}
        changes: dict[str, Any] = {**lists, "partition_epoch": known.partition_epoch + 1}
        if "leader" in value:
            changes |= {"leader": value["leader"], "leader_epoch": known.leader_epoch + 1}
        if "leaderRecoveryState" in value:
            changes["leader_recovery_state"] = value["leaderRecoveryState"]
        topic.partitions[known.partition] = replace(known, **changes)

    def _clear_elr(self, value: Fields) -> None:
        """Forget the eligible leader replicas of a topic, or where no name is given of all topics."""
        name = value["topicName"]
        if name and name not in self.topics:
            raise CorruptRecordError(f"no topic has the name {name}")
        for topic in [self.topics[name]] if name else self.topics.values():
            for number, known in topic.partitions.items():
                topic.partitions[number] = replace(known, elr=(), last_known_elr=())

    def _set_config(self, value: Fields) -> None:
        number = value["resourceType"]
        resource = (RESOURCE_TYPES.get(number, str(number)), value["resourceName"])
        settings = self.configs.setdefault(resource, {})
        if value["value"] is None:
            settings.pop(value["name"], None)
        else:
            settings[value["name"]] = value["value"]
        if not settings:
            del self.configs[resource]

    def _register_broker(self, value: Fields) -> None:
        self.brokers[value["brokerId"]] = BrokerImage(
            value["brokerId"],
            value["brokerEpoch"],
            value["incarnationId"],
            tuple(value["endPoints"]),
            value["rack"],
            value["fenced"],
            value.get("inControlledShutdown", False),
            tuple(value.get("logDirs", ())),
        )

    def _unregister_broker(self, value: Fields) -> None:
        self.brokers.pop(value["brokerId"], None)

    def _change_broker(self, value: Fields) -> None:
        known = self._broker(value["brokerId"])
        changes: dict[str, Any] = {}
        if fenced := value.get("fenced", 0):  # 1 fences, -1 unfences
            changes["fenced"] = fenced > 0
        if value.get("inControlledShutdown", 0) > 0:
            changes["in_controlled_shutdown"] = True
        if value.get("logDirs"):
            changes["log_dirs"] = tuple(value["logDirs"])
        self.brokers[known.broker_id] = replace(known, **changes)

    def _fence_broker(self, value: Fields) -> None:
        self.brokers[value["id"]] = replace(self._broker(value["id"]), fenced=True)

    def _unfence_broker(self, value: Fields) -> None:
        self.brokers[value["id"]] = replace(self._broker(value["id"]), fenced=False)

    def _broker(self, broker_id: int) -> BrokerImage:
        known = self.brokers.get(broker_id)
        if known is None:
            raise CorruptRecordError(f"no broker {broker_id} is registered")
        return known

    def _set_feature(self, value: Fields) -> None:
        if value["featureLevel"]:
            self.features[value["name"]] = value["featureLevel"]
        else:
            self.features.pop(value["name"], None)


_CHANGED_LISTS: Final = {
    "replicas": "replicas",
    "isr": "isr",
    "removingReplicas": "removing",
    "addingReplicas": "adding",
    "directories": "directories",
    "eligibleLeaderReplicas": "elr",
    "lastKnownElr": "last_known_elr",
}
_CHANGES: Final[dict[str, Callable[[MetadataImage, Fields], None]]] = {
    "TopicRecord": MetadataImage._add_topic,
    "RemoveTopicRecord": MetadataImage._remove_topic,
    "PartitionRecord": MetadataImage._add_partition,
    "PartitionChangeRecord": MetadataImage._change_partition,
    "ClearElrRecord": MetadataImage._clear_elr,
    "ConfigRecord": MetadataImage._set_config,
    "RegisterBrokerRecord": MetadataImage._register_broker,
    "UnregisterBrokerRecord": MetadataImage._unregister_broker,
    "BrokerRegistrationChangeRecord": MetadataImage._change_broker,
    "FenceBrokerRecord": MetadataImage._fence_broker,
    "UnfenceBrokerRecord": MetadataImage._unfence_broker,
    "FeatureLevelRecord": MetadataImage._set_feature,
}
