"""The view `groups`: a row for each group that `__consumer_offsets` knows, with its members."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kseg.internal import cluster_metadata, consumer_offsets
from kseg.log.metadata import read_partition_metadata
from kseg.log.partition import Log
from kseg.log.replay import decode_latest, load_latest
from kseg.views.columns import INT_LIST, TEXT_LIST, TIMESTAMP, list_of, to_batches, to_micros
from kseg.views.group_state import Assignment, Group, GroupRecords, Member
from kseg.views.metadata_log import find_image
from kseg.views.places import LogPlace, Unit, one_each, open_all

logger = logging.getLogger(__name__)

ASSIGNMENT: Final = pa.struct(
    [
        ("topic", pa.string()),
        ("topicId", pa.string()),
        ("subtopology", pa.string()),
        ("role", pa.string()),
        ("partitions", INT_LIST),
    ]
)
MEMBER: Final = pa.struct(
    [
        ("memberId", pa.string()),
        ("instanceId", pa.string()),
        ("clientId", pa.string()),
        ("host", pa.string()),
        ("rack", pa.string()),
        ("epoch", pa.int32()),
        ("state", pa.string()),
        ("subscribedTopics", TEXT_LIST),
        ("assignment", list_of(ASSIGNMENT)),
    ]
)
SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("type", pa.string()),
        ("state", pa.string()),
        ("epoch", pa.int32()),
        ("assignmentEpoch", pa.int32()),
        ("protocolType", pa.string()),
        ("protocol", pa.string()),
        ("leader", pa.string()),
        ("stateTimestamp", TIMESTAMP),
        ("members", list_of(MEMBER)),
    ]
)


def load_groups(logs: Iterable[Log]) -> GroupRecords:
    """The groups of `__consumer_offsets`; logs of other topics are not looked at."""
    wanted = one_each(log for log in logs if log.topic == consumer_offsets.TOPIC)
    records = GroupRecords()
    for offset, decoded in decode_latest(consumer_offsets.TOPIC, load_latest(wanted)):
        records.add(offset, decoded)
    if records.unknown:
        reason = records.unknown[0]["reason"]
        logger.warning("%d records of groups are not known, the first for its %s", len(records.unknown), reason)
    return records


@dataclass(frozen=True, slots=True)
class GroupsUnit:
    """The partitions of `__consumer_offsets`, and where names of topic ids are found."""

    coordinator: Sequence[LogPlace]
    metadata: Sequence[LogPlace]
    topics: Mapping[str, LogPlace]

    def read(self) -> Iterator[pa.RecordBatch]:
        """Replay the groups."""
        groups = load_groups(open_all(self.coordinator)).build()
        ids = {a.topic_id for group in groups for member in group.members for a in member.assignment or ()} - {None}
        names = self._names() if ids else {}
        return to_batches(SCHEMA, (_row(group, names) for group in groups))

    def _names(self) -> dict[str, str]:
        """Names of topics by id: from partition.metadata, and from the metadata log, whose word is the last."""
        names = {}
        for topic, place in self.topics.items():
            if (told := read_partition_metadata(place.store, place.directory)) is not None:
                names[told.topic_id] = topic
        image = find_image(open_all(self.metadata))
        return names if image is None else names | {topic.topic_id: topic.name for topic in image.topics.values()}


def plan(logs: Iterable[Log]) -> list[Unit]:
    """One unit, none where there is no `__consumer_offsets`."""
    chosen = one_each(logs)
    coordinator = tuple(LogPlace.of(log) for log in chosen if log.topic == consumer_offsets.TOPIC)
    metadata = tuple(LogPlace.of(log) for log in chosen if log.topic == cluster_metadata.TOPIC)
    topics = {log.topic: LogPlace.of(log) for log in chosen}
    return [GroupsUnit(coordinator, metadata, topics)] if coordinator else []


def _row(group: Group, names: Mapping[str, str]) -> dict[str, object]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "epoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch,
        "protocolType": group.protocol_type,
        "protocol": group.protocol,
        "leader": group.leader,
        "stateTimestamp": to_micros(group.state_timestamp_ms),
        "members": [_member(member, names) for member in group.members],
    }


def _member(member: Member, names: Mapping[str, str]) -> dict[str, object]:
    assignment = member.assignment
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "epoch": member.epoch,
        "state": member.state,
        "subscribedTopics": member.topics,
        "assignment": None if assignment is None else [_assignment(assigned, names) for assigned in assignment],
    }


def _assignment(assigned: Assignment, names: Mapping[str, str]) -> dict[str, object]:
    topic_id = assigned.topic_id
    return {
        "topic": assigned.topic if topic_id is None else names.get(topic_id),
        "topicId": topic_id,
        "subtopology": assigned.subtopology,
        "role": assigned.role,
        "partitions": assigned.partitions,
    }
