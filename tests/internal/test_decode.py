"""The door to all internal topics: unknown types, secrets, odd keys, and which partition holds a group."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptRecordError, OptionError
from kseg.internal import cluster_metadata
from kseg.internal.decode import INTERNAL_TOPICS, coordinator_partition, decode_record, encode_record
from tests.internal.vectors import VECTORS, Vector, decode

COMMIT_KEY = bytes.fromhex("000100016700017400000003")
COMMIT_VALUES = {
    0: "0000000000000000000500016d00000000000003e8",
    1: "0001000000000000000500016d00000000000003e8ffffffffffffffff",
    2: "0002000000000000000500016d00000000000003e8",
    3: "000300000000000000050000000200016d00000000000003e8",
    4: "0004000000000000000500000002026d00000000000003e8010010000102030405060708090a0b0c0d0e0f",
}
METADATA = "__cluster_metadata"
ID = "AAECAwQFBgcICQoLDA0ODw"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


@pytest.mark.parametrize("version", COMMIT_VALUES)
def test_an_offset_commit_of_each_version(version: int):
    commit = {"offset": 5, "metadata": "m", "commitTimestamp": 1000}
    extra = {1: {"expireTimestamp": -1}, 3: {"leaderEpoch": 2}, 4: {"leaderEpoch": 2, "topicId": ID}}
    assert decode_record("__consumer_offsets", COMMIT_KEY, bytes.fromhex(COMMIT_VALUES[version])) == {
        "type": "OffsetCommit",
        "typeId": 1,
        "version": version,
        "key": {"group": "g", "topic": "t", "partition": 3},
        "value": {**commit, **extra.get(version, {})},
    }


def test_a_commit_of_type_0_takes_the_later_versions_that_old_brokers_wrote():
    old = b"\0\0" + COMMIT_KEY[2:]
    decoded = decode_record("__consumer_offsets", old, bytes.fromhex(COMMIT_VALUES[1]))
    assert decoded is not None
    assert (decoded["type"], decoded["value"]["expireTimestamp"]) == ("LegacyOffsetCommit", -1)


@pytest.mark.parametrize(
    ("record", "name", "value"),
    [
        (
            "010c00116d657461646174612e76657273696f6e001900",
            "FeatureLevelRecord",
            {"name": "metadata.version", "featureLevel": 25},
        ),
        ("01020004666f6f000102030405060708090a0b0c0d0e0f00", "TopicRecord", {"name": "foo", "topicId": ID}),
        (
            "0104000204666f6f0f636c65616e75702e706f6c69637908636f6d7061637400",
            "ConfigRecord",
            {"resourceType": 2, "resourceName": "foo", "name": "cleanup.policy", "value": "compact"},
        ),
        (
            "01030200000000000102030405060708090a0b0c0d0e0f030000000100000002020000000101010000000100000003000000040300010"
            "2030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f0101050200000002",
            "PartitionRecord",
            {
                "partitionId": 0,
                "topicId": ID,
                "replicas": [1, 2],
                "isr": [1],
                "removingReplicas": [],
                "addingReplicas": [],
                "leader": 1,
                "leaderEpoch": 3,
                "partitionEpoch": 4,
                "directories": [ID, ID],
                "eligibleLeaderReplicas": [2],
            },
        ),
    ],
)
def test_a_metadata_record(record: str, name: str, value: dict[str, object]):
    decoded = decode_record(METADATA, None, bytes.fromhex(record))
    assert decoded is not None
    assert (decoded["type"], decoded["key"], decoded["value"]) == (name, None, value)


def test_a_transaction_of_each_version():
    key = bytes.fromhex("000000027478")
    fields = {
        "producerId": 9,
        "producerEpoch": 1,
        "transactionTimeoutMs": 60000,
        "transactionStatus": 1,
        "transactionPartitions": [{"topic": "t", "partitionIds": [0, 1]}],
        "transactionLastUpdateTimestampMs": 2000,
        "transactionStartTimestampMs": 1000,
    }
    for value in (
        "0000000000000000000900010000ea60010000000100017400000002000000000000000100000000000007d000000000000003e8",
        "0001000000000000000900010000ea60010202740300000000000000010000000000000007d000000000000003e800",
    ):
        decoded = decode_record("__transaction_state", key, bytes.fromhex(value))
        assert decoded is not None
        assert (decoded["key"], decoded["value"]) == ({"transactionalId": "tx"}, fields)


def test_a_segment_that_a_broker_began_to_copy():
    value = bytes.fromhex(
        "01000007 74742e612d62 ae61f696c7a94b99ad5683a61c6b536c 00000000 00 be700d069a1f4631a5c2ffc526508138 00"
        "0000000000000000 0000000000000258 00000001 000001a1e1a4b9e7 000001a1e1a4ba79 02 00000000 0000000000000000 00"
        "00085bab 00 00 01000101"
    )
    decoded = decode_record("__remote_log_metadata", None, value)
    assert decoded is not None
    segment = decoded["value"]
    assert segment["remoteLogSegmentId"]["topicIdPartition"] == {
        "name": "tt.a-b",
        "id": "rmH2lsepS5mtVoOmHGtTbA",
        "partition": 0,
    }
    assert (segment["endOffset"], segment["segmentSizeInBytes"]) == (600, 547755)
    assert (segment["txnIndexEmpty"], segment["customMetadata"]) == (True, None)
    assert encode_record("__remote_log_metadata", decoded) == (None, value)


def test_a_topic_that_is_not_internal_has_no_decoder():
    assert decode_record("orders", b"k", b"v") is None
    with pytest.raises(OptionError, match="orders"):
        encode_record("orders", {})


@pytest.mark.parametrize(
    ("topic", "key", "value", "reason"),
    [
        ("__consumer_offsets", b"\0\x09\0\1g", b"\0\0x", "record type 9"),
        ("__consumer_offsets", b"\0\x12\0\1g", None, "record type 18"),
        ("__consumer_offsets", b"\xff\xff", b"", "record type -1"),
        ("__consumer_offsets", COMMIT_KEY, b"\0\x09rest", "version 9 of OffsetCommitValue"),
        ("__transaction_state", b"\0\1\0\1t", b"x", "record type 1"),
        (METADATA, None, b"\1\x06\0\0", "api key 6"),
        (METADATA, None, b"\1\x02\7\0", "version 7 of TopicRecord"),
        (METADATA, None, b"\0\2\0", "frame version 0"),
        (METADATA, None, b"\2rest", "frame version 2"),
        ("__remote_log_metadata", b"k", b"\1\x09\0", "api key 9"),
    ],
)
def test_an_unknown_type_or_version_is_kept_as_bytes(topic: str, key: bytes | None, value: bytes | None, reason: str):
    decoded = decode_record(topic, key, value)
    assert decoded == {
        "type": "unknown",
        "reason": reason,
        "key": None if key is None else b64(key),
        "value": None if value is None else b64(value),
    }
    assert encode_record(topic, decoded) == (key, value)


@pytest.mark.parametrize(
    ("topic", "key", "value", "message"),
    [
        ("__consumer_offsets", None, b"\0\0", "no key"),
        (METADATA, None, None, "no value"),
        (METADATA, None, b"\1\x02\0\x04foo" + bytes(16) + b"\0\0", "1 bytes left over"),
        (METADATA, None, b"\1\x80\x80\x04\0", "api key 65536"),
        (METADATA, None, b"\1\x02\0\0" + bytes(17), "TopicRecord.name: null"),
        (METADATA, None, b"\1\x02\0\x03\xff\xfe" + bytes(17), "not UTF-8"),
        (METADATA, None, b"\1\x17\0\1\0\x09\x03ab\0\0\0\0\0\0", "BeginTransactionRecord.tags: 6 bytes of a tagged"),
        (METADATA, None, b"\xff\xff\xff\xff\xff\xff", "does not fit 31 bits"),
        ("__consumer_offsets", b"\0\2\xff\xfe", None, "GroupMetadataKey.group: length -2"),
    ],
)
def test_bytes_that_contradict_themselves_say_where(topic: str, key: bytes | None, value: bytes | None, message: str):
    with pytest.raises(CorruptRecordError, match=message):
        decode_record(topic, key, value)


def test_bytes_after_a_coordinators_structs_are_kept():
    key, value = COMMIT_KEY + b"more", bytes.fromhex(COMMIT_VALUES[3]) + b"\0"
    decoded = decode_record("__consumer_offsets", key, value)
    assert decoded is not None
    assert (decoded["keyTrailing"], decoded["valueTrailing"]) == (b64(b"more"), b64(b"\0"))
    assert encode_record("__consumer_offsets", decoded) == (key, value)


def test_remote_log_metadata_takes_keys_and_null_values():
    decoded = decode_record("__remote_log_metadata", b"key", None)
    assert decoded == {"type": "tombstone", "key": b64(b"key"), "value": None}
    assert encode_record("__remote_log_metadata", decoded) == (b"key", None)


SECRETS = {
    "UserScramCredentialRecord": ("salt", "storedKey", "serverKey"),
    "DelegationTokenRecord": ("tokenId",),
    "RemoveDelegationTokenRecord": ("tokenId",),
}


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if vector.name in SECRETS], ids=str)
def test_secrets_are_not_shown(vector: Vector):
    decoded = decode_record(METADATA, None, vector.value)
    assert decoded is not None
    shown = {name: value for name, value in decoded["value"].items() if name != "unknownTaggedFields"}
    assert shown == {**vector.value_json, **dict.fromkeys(SECRETS[vector.name], "<redacted>")}
    with pytest.raises(OptionError, match=r"redacted|base64"):
        encode_record(METADATA, decoded)


@pytest.mark.parametrize("api_key", [4, 10, 11, 26])
def test_an_unknown_version_of_a_record_with_secrets_is_not_shown(api_key: int):
    decoded = decode_record(METADATA, None, bytes((1, api_key, 9)) + b"password")
    assert decoded is not None
    assert (decoded["type"], decoded["value"]) == ("unknown", "<redacted>")


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("cleanup.policy", False),
        ("delegation.token.expiry.time.ms", False),
        ("min.insync.replicas", False),
        ("advertised.listeners", False),
        ("ssl.keystore.password", True),
        ("listener.name.x.ssl.keystore.key", True),
        ("ssl.truststore.certificates", True),
        ("listener.name.x.scram-sha-256.sasl.jaas.config", True),
        ("delegation.token.secret.key", True),
        ("rsm.config.storage.aws.secret.access.key", True),
        ("MY.PASSWD", True),
    ],
)
def test_settings_that_look_secret_are_not_shown(name: str, secret: bool):
    fields = {"resourceType": 4, "resourceName": "1", "name": name, "value": "v"}
    value = cluster_metadata.RECORDS.encode_value(4, 0, fields)
    decoded = decode_record(METADATA, None, value)
    assert decoded is not None
    assert decoded["value"] == {**fields, "value": "<redacted>" if secret else "v"}
    deleted = decode_record(METADATA, None, cluster_metadata.RECORDS.encode_value(4, 0, {**fields, "value": None}))
    assert deleted is not None
    assert deleted["value"]["value"] is None


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_a_decoded_record_survives_json(vector: Vector):
    decoded = decode(vector)[1]
    assert json.loads(json.dumps(decoded)) == decoded


@pytest.mark.parametrize(
    ("name", "partitions", "expected"),
    [
        ("", 50, 0),
        ("g", 50, 3),
        ("console-consumer-12345", 50, 6),
        ("größe-\U0001f600", 50, 21),
        ("polygenelubricants", 50, 0),  # its hash is the smallest int, whose abs Kafka takes as 0
        ("tx", 7, 6),
    ],
)
def test_coordinator_partition(name: str, partitions: int, expected: int):
    assert coordinator_partition(name, partitions) == expected


def test_coordinator_partition_needs_partitions():
    with pytest.raises(OptionError, match="partitions is 0"):
        coordinator_partition("g", 0)


@given(
    st.sampled_from(sorted(INTERNAL_TOPICS)), st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=200)
)
def test_random_bytes_are_decoded_kept_or_corrupt(topic: str, key: bytes | None, value: bytes | None):
    try:
        decoded = decode_record(topic, key, value)
    except CorruptRecordError:
        return
    assert decoded is not None
    assert json.dumps(decoded)


@given(st.sampled_from(VECTORS), st.data())
def test_random_damage_is_corrupt_or_decodes_to_something_that_can_be_written(vector: Vector, data: st.DataObject):
    if vector.topic not in INTERNAL_TOPICS:
        return
    damaged = bytearray(vector.value)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_record(vector.topic, vector.key, bytes(damaged))
    except CorruptRecordError:
        return
    assert decoded is not None
    if "<redacted>" not in json.dumps(decoded):
        key, value = encode_record(vector.topic, decoded)
        again = decode_record(vector.topic, key, value)
        assert json.dumps(again) == json.dumps(decoded)
