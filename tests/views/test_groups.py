"""The view of groups: each kind of group, and what becomes of it."""

from __future__ import annotations

import logging

import pytest

import kseg
from kseg.internal.values import to_base64
from kseg.views.groups import load_groups
from tests.views.support import TOPIC_IDS, commit, coordinator_record, create, record_table, rows_of, topic, write

TOPIC = "__consumer_offsets"
GROUP = {"groupId": "g"}
MEMBER = {"groupId": "g", "memberId": "m1"}
ORDERS = TOPIC_IDS["orders"]


def groups_of(root):
    return {row["group"]: row for row in rows_of("groups", kseg.open_dir(root))}


def classic(members, **fields):
    value = {"protocolType": "consumer", "generation": 4, "protocol": "range", "leader": "m1", "members": members}
    value |= {"currentStateTimestamp": 1_700_000_000_000}
    return coordinator_record("GroupMetadata", {"group": "c"}, value | fields, 3)


def classic_member(**fields):
    subscription = {"version": 3, "topics": ["orders"], "userData": None, "ownedPartitions": [], "generationId": 1}
    value = {
        "memberId": "m1",
        "groupInstanceId": "static-1",
        "clientId": "app",
        "clientHost": "/10.0.0.1",
        "rebalanceTimeout": 1,
        "sessionTimeout": 1,
        "subscription": subscription | {"rackId": "r1"},
        "assignment": {
            "version": 3,
            "assignedPartitions": [{"topic": "orders", "partitions": [0, 2]}],
            "userData": None,
        },
    }
    return value | fields


def consumer_group(*, epoch=5, target=5, member_epoch=5, state=0):
    assigned = {"topicId": ORDERS, "partitions": [1], "assignmentEpochs": [epoch]}
    current = {"memberEpoch": member_epoch, "previousMemberEpoch": 4, "state": state}
    member = {
        "instanceId": None,
        "rackId": "r1",
        "clientId": "app",
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": ["orders"],
        "subscribedTopicRegex": "",
        "rebalanceTimeoutMs": 1,
        "serverAssignor": "uniform",
    }
    return [
        coordinator_record("ConsumerGroupMetadata", GROUP, {"epoch": epoch}),
        coordinator_record("ConsumerGroupMemberMetadata", MEMBER, member),
        coordinator_record("ConsumerGroupTargetAssignmentMetadata", GROUP, {"assignmentEpoch": target}),
        coordinator_record(
            "ConsumerGroupCurrentMemberAssignment",
            MEMBER,
            current | {"assignedPartitions": [assigned], "partitionsPendingRevocation": []},
        ),
    ]


def streams_group(*, validated=3):
    member = {
        "instanceId": None,
        "rackId": None,
        "clientId": "app",
        "clientHost": "/10.0.0.1",
        "rebalanceTimeoutMs": 1,
        "topologyEpoch": 3,
        "processId": "p",
        "userEndpoint": None,
        "clientTags": [],
    }
    tasks = [{"subtopologyId": "0", "partitions": [0, 1]}]
    none_pending = {f"{kind}TasksPendingRevocation": [] for kind in ("active", "standby", "warmup")}
    current = {"memberEpoch": 2, "previousMemberEpoch": 1, "state": 1, "activeTasks": tasks, "standbyTasks": tasks}
    metadata = {"epoch": 2, "metadataHash": 0, "validatedTopologyEpoch": validated}
    return [
        coordinator_record("StreamsGroupMetadata", GROUP, metadata),
        coordinator_record("StreamsGroupTopology", GROUP, {"epoch": 3, "subtopologies": []}),
        coordinator_record("StreamsGroupMemberMetadata", MEMBER, member),
        coordinator_record("StreamsGroupTargetAssignmentMetadata", GROUP, {"assignmentEpoch": 2}),
        coordinator_record("StreamsGroupCurrentMemberAssignment", MEMBER, current | {"warmupTasks": []} | none_pending),
    ]


def test_golden_groups(golden):
    rows = groups_of(golden / "before")
    assert {name: (row["type"], row["state"], row["epoch"]) for name, row in rows.items()} == {
        "g-classic": ("classic", "Empty", 2),
        "g-new": ("consumer", "Empty", 3),
    }
    assert all(row["members"] == [] for row in rows.values())


def test_a_classic_group(tmp_path):
    write(tmp_path, TOPIC, [classic([]), classic([classic_member()])])
    row = groups_of(tmp_path)["c"]
    assert (row["type"], row["state"], row["epoch"], row["protocol"]) == ("classic", "Stable", 4, "range")
    assert (row["protocolType"], row["leader"]) == ("consumer", "m1")
    assert row["stateTimestamp"].timestamp() == 1_700_000_000
    (member,) = row["members"]
    assert (member["memberId"], member["instanceId"], member["clientId"]) == ("m1", "static-1", "app")
    assert (member["host"], member["rack"], member["subscribedTopics"]) == ("/10.0.0.1", "r1", ["orders"])
    (assigned,) = member["assignment"]
    assert (assigned["topic"], assigned["partitions"]) == ("orders", [0, 2])


def test_members_with_bytes_of_their_own_protocol(tmp_path):
    member = classic_member(subscription=to_base64(b"connect"), assignment=to_base64(b"bytes"))
    write(tmp_path, TOPIC, [classic([member], protocolType="connect")])
    (member,) = groups_of(tmp_path)["c"]["members"]
    assert (member["subscribedTopics"], member["assignment"]) == (None, None)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "Stable"),
        ({"epoch": 6}, "Assigning"),
        ({"member_epoch": 4}, "Reconciling"),
        ({"state": 1}, "Reconciling"),
    ],
)
def test_a_consumer_group(tmp_path, fields, state):
    write(tmp_path, TOPIC, consumer_group(**fields))
    write(tmp_path, "__cluster_metadata", [topic("orders")])
    row = groups_of(tmp_path)["g"]
    assert (row["type"], row["state"], row["protocol"]) == ("consumer", state, "uniform")
    (member,) = row["members"]
    assert member["assignment"] == [
        {"topic": "orders", "topicId": ORDERS, "subtopology": None, "role": None, "partitions": [1]}
    ]


def test_names_of_topics_come_from_their_directories_too(tmp_path):
    write(tmp_path, TOPIC, consumer_group())
    assert groups_of(tmp_path)["g"]["members"][0]["assignment"][0]["topic"] is None
    with create(tmp_path, "orders-0", topic_id=ORDERS) as writer:
        writer.append(record_table("orders", [(b"k", b"v")]))
    assert groups_of(tmp_path)["g"]["members"][0]["assignment"][0]["topic"] == "orders"


def test_a_share_group(tmp_path):
    member = {"rackId": None, "clientId": "app", "clientHost": "/10.0.0.1", "subscribedTopicNames": ["orders"]}
    current = {"memberEpoch": 2, "previousMemberEpoch": 1, "state": 0}
    current |= {"assignedPartitions": [{"topicId": ORDERS, "partitions": [0, 1]}]}
    records = [
        coordinator_record("ShareGroupMetadata", GROUP, {"epoch": 2, "metadataHash": 0}),
        coordinator_record("ShareGroupMemberMetadata", MEMBER, member),
        coordinator_record("ShareGroupCurrentMemberAssignment", MEMBER, current),
    ]
    write(tmp_path, TOPIC, records)
    row = groups_of(tmp_path)["g"]
    assert (row["type"], row["state"], row["epoch"]) == ("share", "Stable", 2)
    assert row["members"][0]["assignment"][0]["partitions"] == [0, 1]


def test_a_streams_group(tmp_path):
    write(tmp_path, TOPIC, streams_group())
    row = groups_of(tmp_path)["g"]
    assert (row["type"], row["state"]) == ("streams", "Stable")
    tasks = [(a["subtopology"], a["role"], a["partitions"]) for a in row["members"][0]["assignment"]]
    assert tasks == [("0", "active", [0, 1]), ("0", "standby", [0, 1])]
    write(tmp_path / "b", TOPIC, streams_group(validated=2))
    assert groups_of(tmp_path / "b")["g"]["state"] == "NotReady"


def test_removed_converted_and_never_joined(tmp_path):
    gone = [coordinator_record("ConsumerGroupMetadata", {"groupId": "gone"}, {"epoch": 1})]
    gone += [coordinator_record("ConsumerGroupMetadata", {"groupId": "gone"}, None)]
    left_behind = coordinator_record("ConsumerGroupTargetAssignmentMetadata", {"groupId": "x"}, {"assignmentEpoch": 1})
    was_classic = classic([])
    now_consumer = coordinator_record("ConsumerGroupMetadata", {"groupId": "c"}, {"epoch": 9})
    write(tmp_path, TOPIC, [*gone, left_behind, was_classic, now_consumer, commit("simple", "t", 0, 1)])
    rows = groups_of(tmp_path)
    assert {name: (row["type"], row["state"]) for name, row in rows.items()} == {
        "c": ("consumer", "Empty"),
        "simple": ("classic", "Empty"),
    }


def test_unknown_records_are_kept(tmp_path, caplog):
    write(tmp_path, TOPIC, [(b"\x00\x63new", b"\x00\x00?"), classic([])])
    with caplog.at_level(logging.WARNING):
        records = load_groups(kseg.open_dir(tmp_path))
    (unknown,) = records.unknown
    assert (unknown["key"], unknown["value"]) == (to_base64(b"\x00\x63new"), to_base64(b"\x00\x00?"))
    assert "record type 99" in caplog.text
    assert [group.group for group in records.build()] == ["c"]
