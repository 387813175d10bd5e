"""Records of `__consumer_offsets`: committed offsets, and the state of classic, consumer, share and streams groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kseg.internal import consumer_protocol
from kseg.internal.framing import CoordinatorRecords, CoordinatorType, coordinator_type
from kseg.internal.schema import Fields

TOPIC: Final = "__consumer_offsets"

LEGACY_OFFSET_COMMIT: Final = 0
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2
CONSUMER_GROUP_MEMBER: Final = 5

_COMMIT_KEY = """
    group       string
    topic       string
    partition   int32
"""
_GROUP_KEY = "groupId   string"
_MEMBER_KEY = """
    groupId    string
    memberId   string
"""
_COMMIT = """
    offset            int64
    leaderEpoch       int32   3+   =-1
    metadata          string
    commitTimestamp   int64
    expireTimestamp   int64   1    =-1
    topicId           uuid    4+   tag=0
"""
_TARGET_METADATA = """
    assignmentEpoch       int32
    assignmentTimestamp   int64   tag=0   =0
"""
_TARGET_MEMBER = """
    topicPartitions   []TopicPartition
      topicId           uuid
      partitions        []int32
"""
_TASK_IDS = """
    subtopologyId   string
    partitions      []int32
"""
_TASK_LISTS = """
    activeTasks    []TaskIds
    standbyTasks   []TaskIds
    warmupTasks    []TaskIds
"""
_ASSIGNMENT_EPOCHS = "    assignmentEpochs   []int32?   tag=0\n"

_OFFSETS: Final = (
    # Value version 0 is all that Kafka 4 takes here; older brokers left later ones behind, which are those of type 1.
    coordinator_type(0, "LegacyOffsetCommit", _COMMIT_KEY, _COMMIT, versions="0-4", flexible="4+"),
    coordinator_type(1, "OffsetCommit", _COMMIT_KEY, _COMMIT, versions="0-4", flexible="4+"),
    coordinator_type(
        2,
        "GroupMetadata",
        "group   string",
        """
        protocolType            string
        generation              int32
        protocol                string?
        leader                  string?
        currentStateTimestamp   int64   2+   =-1
        members                 []MemberMetadata
          memberId                string
          groupInstanceId         string?  3+   =null
          clientId                string
          clientHost              string
          rebalanceTimeout        int32    1+   =-1
          sessionTimeout          int32
          subscription            bytes
          assignment              bytes
        """,
        versions="0-4",
        flexible="4+",
    ),
)

_CONSUMER_GROUPS: Final = (
    coordinator_type(
        3,
        "ConsumerGroupMetadata",
        _GROUP_KEY,
        """
        epoch          int32
        metadataHash   int64   tag=0   =0
        """,
    ),
    coordinator_type(
        4,
        "ConsumerGroupPartitionMetadata",
        _GROUP_KEY,
        """
        topics                []TopicMetadata
          topicId               uuid
          topicName             string
          numPartitions         int32
          partitionMetadata     []PartitionMetadata
            partition             int32
            racks                 []string
        """,
    ),
    coordinator_type(
        5,
        "ConsumerGroupMemberMetadata",
        _MEMBER_KEY,
        """
        instanceId              string?
        rackId                  string?
        clientId                string
        clientHost              string
        subscribedTopicNames    []string
        subscribedTopicRegex    string?
        rebalanceTimeoutMs      int32   =-1
        serverAssignor          string?
        classicMemberMetadata   ClassicMemberMetadata?   tag=0
          sessionTimeoutMs        int32
          supportedProtocols      []ClassicProtocol
            name                    string
            metadata                bytes
        """,
    ),
    coordinator_type(6, "ConsumerGroupTargetAssignmentMetadata", _GROUP_KEY, _TARGET_METADATA),
    coordinator_type(7, "ConsumerGroupTargetAssignmentMember", _MEMBER_KEY, _TARGET_MEMBER),
    coordinator_type(
        8,
        "ConsumerGroupCurrentMemberAssignment",
        _MEMBER_KEY,
        """
        memberEpoch                   int32
        previousMemberEpoch           int32
        state                         int8
        assignedPartitions            []TopicPartitions
        partitionsPendingRevocation   []TopicPartitions
        """,
        TopicPartitions="""
    topicId      uuid
    partitions   []int32
"""
        + _ASSIGNMENT_EPOCHS,
    ),
    coordinator_type(
        16,
        "ConsumerGroupRegularExpression",
        """
        groupId             string
        regularExpression   string
        """,
        """
        topics      []string
        version     int64
        timestamp   int64
        """,
    ),
)

_SHARE_GROUPS: Final = (
    coordinator_type(
        10,
        "ShareGroupMemberMetadata",
        _MEMBER_KEY,
        """
        rackId                 string?
        clientId               string
        clientHost             string
        subscribedTopicNames   []string
        """,
    ),
    coordinator_type(
        11,
        "ShareGroupMetadata",
        _GROUP_KEY,
        """
        epoch          int32
        metadataHash   int64
        """,
    ),
    coordinator_type(12, "ShareGroupTargetAssignmentMetadata", _GROUP_KEY, _TARGET_METADATA),
    coordinator_type(13, "ShareGroupTargetAssignmentMember", _MEMBER_KEY, _TARGET_MEMBER),
    coordinator_type(
        14,
        "ShareGroupCurrentMemberAssignment",
        _MEMBER_KEY,
        """
        memberEpoch           int32
        previousMemberEpoch   int32
        state                 int8
        assignedPartitions    []TopicPartitions
          topicId               uuid
          partitions            []int32
        """,
    ),
    coordinator_type(
        15,
        "ShareGroupStatePartitionMetadata",
        _GROUP_KEY,
        """
        initializingTopics   []TopicPartitionsInfo
        initializedTopics    []TopicPartitionsInfo
        deletingTopics       []TopicInfo
          topicId              uuid
          topicName            string
        """,
        TopicPartitionsInfo="""
    topicId      uuid
    topicName    string
    partitions   []int32
""",
    ),
)

_STREAMS_GROUPS: Final = (
    coordinator_type(
        17,
        "StreamsGroupMetadata",
        _GROUP_KEY,
        """
        epoch                    int32
        metadataHash             int64
        validatedTopologyEpoch   int32   tag=0   =-1
        lastAssignmentConfigs    []LastAssignmentConfig?   tag=1
          key                      string
          value                    string
        """,
    ),
    coordinator_type(
        19,
        "StreamsGroupMemberMetadata",
        _MEMBER_KEY,
        """
        instanceId           string?
        rackId               string?
        clientId             string
        clientHost           string
        rebalanceTimeoutMs   int32   =-1
        topologyEpoch        int32
        processId            string
        userEndpoint         Endpoint?   =null
          host                 string
          port                 uint16
        clientTags           []KeyValue
          key                  string
          value                string
        """,
    ),
    coordinator_type(20, "StreamsGroupTargetAssignmentMetadata", _GROUP_KEY, _TARGET_METADATA),
    coordinator_type(21, "StreamsGroupTargetAssignmentMember", _MEMBER_KEY, _TASK_LISTS, TaskIds=_TASK_IDS),
    coordinator_type(
        22,
        "StreamsGroupCurrentMemberAssignment",
        _MEMBER_KEY,
        """
    memberEpoch           int32
    previousMemberEpoch   int32
    state                 int8
"""
        + _TASK_LISTS
        + """
    activeTasksPendingRevocation    []TaskIds
    standbyTasksPendingRevocation   []TaskIds
    warmupTasksPendingRevocation    []TaskIds
""",
        TaskIds=_TASK_IDS + _ASSIGNMENT_EPOCHS,
    ),
    coordinator_type(
        23,
        "StreamsGroupTopology",
        _GROUP_KEY,
        """
        epoch                       int32
        subtopologies               []Subtopology
          subtopologyId               string
          sourceTopics                []string
          sourceTopicRegex            []string
          stateChangelogTopics        []TopicInfo
          repartitionSinkTopics       []string
          repartitionSourceTopics     []TopicInfo
          copartitionGroups           []CopartitionGroup
            sourceTopics                []int16
            sourceTopicRegex            []int16
            repartitionSourceTopics     []int16
        """,
        TopicInfo="""
    name                string
    partitions          int32
    replicationFactor   int16
    topicConfigs        []TopicConfig
      key                 string
      value               string
""",
    ),
)


def _by_id(*groups: tuple[CoordinatorType, ...]) -> dict[int, CoordinatorType]:
    return {kind.id: kind for group in groups for kind in group}


RECORDS: Final = CoordinatorRecords(_by_id(_OFFSETS, _CONSUMER_GROUPS, _SHARE_GROUPS, _STREAMS_GROUPS))


def decode(key: bytes | None, value: bytes | None) -> Fields:
    """Decode one record, with the members' subscriptions and assignments taken apart."""
    decoded = RECORDS.decode(key, value)
    return _change_value(decoded, consumer_protocol.expand)


def encode(decoded: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
    """Undo `decode`: a key, and a value or None."""
    return RECORDS.encode(_change_value(dict(decoded), consumer_protocol.collapse))


def _change_value(decoded: Fields, change: consumer_protocol.Change) -> Fields:
    value = decoded["value"]
    if decoded.get("typeId") == GROUP_METADATA and value is not None:
        decoded["value"] = consumer_protocol.change_group(value, change)
    elif decoded.get("typeId") == CONSUMER_GROUP_MEMBER and value is not None:
        decoded["value"] = consumer_protocol.change_member(value, change)
    return decoded
