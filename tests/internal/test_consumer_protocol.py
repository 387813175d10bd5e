"""Subscriptions and assignments inside group records."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kseg.internal import consumer_offsets
from kseg.internal.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, collapse, expand
from kseg.internal.decode import decode_record, encode_record
from kseg.internal.schema import Message
from tests.internal.vectors import VECTORS, Vector

TOPIC = consumer_offsets.TOPIC
PROTOCOLS = {table.name: table for table in (SUBSCRIPTION, ASSIGNMENT)}
every_protocol = pytest.mark.parametrize("vector", [v for v in VECTORS if v.topic == "protocol"], ids=str)


def shown(version: int, body: bytes) -> str:
    return base64.b64encode(version.to_bytes(2, "big", signed=True) + body).decode("ascii")


def group(protocol_type: str, subscription: str, assignment: str) -> dict[str, Any]:
    member = {
        "memberId": "m-1",
        "groupInstanceId": None,
        "clientId": "c",
        "clientHost": "/127.0.0.1",
        "rebalanceTimeout": 300000,
        "sessionTimeout": 45000,
        "subscription": subscription,
        "assignment": assignment,
    }
    value = {
        "protocolType": protocol_type,
        "generation": 1,
        "protocol": "range",
        "leader": "m-1",
        "currentStateTimestamp": 1000,
        "members": [member],
    }
    return {"type": "GroupMetadata", "typeId": 2, "version": 3, "key": {"group": "g"}, "value": value}


def first_of(kind: Message) -> Vector:
    return next(vector for vector in VECTORS if vector.name == kind.name)


@every_protocol
def test_a_struct_is_taken_apart_and_put_together(vector: Vector):
    table, text = PROTOCOLS[vector.name], shown(vector.version, vector.value)
    assert expand(text, table) == {"version": vector.version, **vector.value_json}
    assert collapse(expand(text, table), table) == text


@pytest.mark.parametrize("table", PROTOCOLS.values(), ids=lambda table: table.name)
def test_a_newer_version_is_read_as_the_newest_known_and_keeps_its_extra_bytes(table: Message):
    newest = next(vector for vector in VECTORS if vector.name == table.name and vector.version == 3)
    text = shown(7, newest.value + b"new")
    assert expand(text, table) == {"version": 7, **newest.value_json, "trailing": base64.b64encode(b"new").decode()}
    assert collapse(expand(text, table), table) == text


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1", b"\xff\xff\0\0", b"\0\0\xff\xff\xff\xff"], ids=bytes.hex)
def test_bytes_of_another_kind_stay_as_they_are(data: bytes):
    text = base64.b64encode(data).decode("ascii")
    assert expand(text, SUBSCRIPTION) == text
    assert collapse(text, SUBSCRIPTION) == text


def test_members_of_a_consumer_group_are_expanded_and_those_of_others_are_not():
    subscription, assignment = first_of(SUBSCRIPTION), first_of(ASSIGNMENT)
    texts = shown(0, subscription.value), shown(0, assignment.value)
    for protocol_type in ("consumer", "connect"):
        key, value = encode_record(TOPIC, group(protocol_type, *texts))
        decoded = decode_record(TOPIC, key, value)
        assert decoded is not None
        member = decoded["value"]["members"][0]
        if protocol_type == "consumer":
            assert member["subscription"] == {"version": 0, **subscription.value_json}
            assert member["assignment"] == {"version": 0, **assignment.value_json}
        else:
            assert (member["subscription"], member["assignment"]) == texts
        assert encode_record(TOPIC, decoded) == (key, value)


def test_classic_protocols_of_a_consumer_group_member_are_expanded():
    subscription = first_of(SUBSCRIPTION)
    protocols = [{"name": "range", "metadata": shown(0, subscription.value)}]
    value = {
        "instanceId": None,
        "rackId": None,
        "clientId": "c",
        "clientHost": "/127.0.0.1",
        "subscribedTopicNames": ["t"],
        "subscribedTopicRegex": None,
        "serverAssignor": None,
        "classicMemberMetadata": {"sessionTimeoutMs": 45000, "supportedProtocols": protocols},
    }
    made = {"type": "", "typeId": 5, "version": 0, "key": {"groupId": "g", "memberId": "m"}, "value": value}
    key, encoded = encode_record(TOPIC, made)
    decoded = decode_record(TOPIC, key, encoded)
    assert decoded is not None
    metadata = decoded["value"]["classicMemberMetadata"]["supportedProtocols"][0]["metadata"]
    assert metadata == {"version": 0, **subscription.value_json}
    assert encode_record(TOPIC, decoded) == (key, encoded)
