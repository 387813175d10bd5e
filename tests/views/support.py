"""Hand-made internal topics, and views as plain rows."""

from __future__ import annotations

import pickle

import pyarrow as pa

import kseg
from kseg.format.builder import BatchOptions, encode_batch
from kseg.internal.decode import encode_record
from kseg.log.names import METADATA_TOPIC, FileKind, segment_file_name, snapshot_file_name
from kseg.views.registry import get_view

NOW = 1_700_000_000_000
TOPIC_IDS = {"orders": "AAAAAAAAAAAAAAAAAAAAbQ", "bills": "AAAAAAAAAAAAAAAAAAAAcg"}
BROKER_DIR = "AAAAAAAAAAAAAAAAAAAAzQ"


def clock():
    return NOW / 1000


def rows_of(name, logs):
    """The rows of a view; units travel as they would to another process."""
    view = get_view(name)
    rows = []
    for unit in pickle.loads(pickle.dumps(view.plan(logs))):
        for batch in view.read(unit):
            batch.validate(full=True)
            assert batch.schema == view.schema
            rows += batch.to_pylist()
    return rows


def create(root, name, **options):
    return kseg.create_log(root / name, clock=clock, **options)


def record_table(topic, records):
    """Decoded records, or pairs of raw bytes, as what a writer takes."""
    pairs = [encode_record(topic, record) if isinstance(record, dict) else record for record in records]
    columns = {"key": [key for key, _ in pairs], "value": [value for _, value in pairs]}
    return pa.table(columns, schema=pa.schema([("key", pa.binary()), ("value", pa.binary())]))


def write(root, topic, records, partition=0):
    """A log of one internal topic."""
    if topic == METADATA_TOPIC:
        write_metadata_log(root, records)
    else:
        with create(root, f"{topic}-{partition}") as writer:
            writer.append(record_table(topic, records))
    return root


def write_metadata_log(root, records, *, start=0):
    """A metadata log of one batch, byte by byte: a `LogWriter` does not write this topic."""
    directory = root / f"{METADATA_TOPIC}-0"
    directory.mkdir(parents=True)
    (directory / segment_file_name(start, FileKind.LOG)).write_bytes(_metadata_batch(records, start))
    return directory


def _metadata_batch(records, offset):
    (rows,) = record_table(METADATA_TOPIC, records).combine_chunks().to_batches()
    rows = rows.append_column("timestamp", pa.array([NOW] * rows.num_rows, pa.int64()))
    return encode_batch(rows, base_offset=offset, options=BatchOptions(leader_epoch=1))


def coordinator_record(kind, key, value, version=0):
    number = {
        "OffsetCommit": 1,
        "LegacyOffsetCommit": 0,
        "GroupMetadata": 2,
        "ConsumerGroupMetadata": 3,
        "ConsumerGroupMemberMetadata": 5,
        "ConsumerGroupTargetAssignmentMetadata": 6,
        "ConsumerGroupCurrentMemberAssignment": 8,
        "ShareGroupMemberMetadata": 10,
        "ShareGroupMetadata": 11,
        "ShareGroupCurrentMemberAssignment": 14,
        "StreamsGroupMetadata": 17,
        "StreamsGroupMemberMetadata": 19,
        "StreamsGroupTargetAssignmentMetadata": 20,
        "StreamsGroupCurrentMemberAssignment": 22,
        "StreamsGroupTopology": 23,
        "TransactionLog": 0,
    }[kind]
    return {"type": kind, "typeId": number, "version": version, "key": key, "value": value}


def commit(group, topic, partition, offset, *, kind="OffsetCommit", version=3, **fields):
    value = {"offset": offset, "metadata": "", "commitTimestamp": NOW} | fields
    return coordinator_record(kind, {"group": group, "topic": topic, "partition": partition}, value, version)


def uncommit(group, topic, partition):
    return coordinator_record("OffsetCommit", {"group": group, "topic": topic, "partition": partition}, None)


_METADATA_IDS = {
    "RegisterBrokerRecord": 0,
    "UnregisterBrokerRecord": 1,
    "TopicRecord": 2,
    "PartitionRecord": 3,
    "ConfigRecord": 4,
    "PartitionChangeRecord": 5,
    "FenceBrokerRecord": 7,
    "UnfenceBrokerRecord": 8,
    "RemoveTopicRecord": 9,
    "FeatureLevelRecord": 12,
    "BrokerRegistrationChangeRecord": 17,
    "NoOpRecord": 20,
    "BeginTransactionRecord": 23,
    "EndTransactionRecord": 24,
    "AbortTransactionRecord": 25,
    "ClearElrRecord": 28,
}


def metadata(kind, version=0, **value):
    """A decoded record of the metadata log."""
    return {"type": kind, "typeId": _METADATA_IDS[kind], "version": version, "key": None, "value": value}


def topic(name):
    return metadata("TopicRecord", name=name, topicId=TOPIC_IDS[name])


def partition(name, number=0, replicas=(1, 2, 3), **fields):
    value = {
        "partitionId": number,
        "topicId": TOPIC_IDS[name],
        "replicas": list(replicas),
        "isr": list(replicas),
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": replicas[0],
        "leaderEpoch": 0,
        "partitionEpoch": 0,
        "directories": [BROKER_DIR] * len(replicas),
    }
    return metadata("PartitionRecord", version=2, **(value | fields))


def change(name, number=0, **fields):
    return metadata("PartitionChangeRecord", version=2, partitionId=number, topicId=TOPIC_IDS[name], **fields)


def config(kind, resource, name, value):
    number = {"topic": 2, "broker": 4}[kind]
    return metadata("ConfigRecord", resourceType=number, resourceName=resource, name=name, value=value)


def write_snapshot(directory, end_offset, records, *, footer=True, epoch=1):
    """A metadata snapshot: header, records, footer."""
    data = _control(0, 3, bytes.fromhex("0000") + NOW.to_bytes(8, "big") + b"\0") + _metadata_batch(records, 1)
    if footer:
        data += _control(1 + len(records), 4, bytes.fromhex("000000"))
    (directory / snapshot_file_name(end_offset, epoch)).write_bytes(data)


def _control(offset, kind, value):
    rows = pa.record_batch({"key": [b"\0\0" + kind.to_bytes(2, "big")], "value": [value], "timestamp": [NOW]})
    return encode_batch(rows, base_offset=offset, options=BatchOptions(leader_epoch=1, is_control=True))
