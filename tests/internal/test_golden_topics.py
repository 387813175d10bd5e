"""Every record of the internal topics that a real broker left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.internal import cluster_metadata
from kseg.internal.control_records import decode_control_record
from kseg.internal.decode import coordinator_partition, decode_record, encode_record
from tests.reference.batch import read_batch, walk
from tests.reference.record import Record

PARTITIONS = [
    "__cluster_metadata-0",
    "__consumer_offsets-0",
    "__consumer_offsets-1",
    "__transaction_state-0",
    "__transaction_state-1",
]


def records_of(partition: Path) -> Iterator[tuple[bool, Record]]:
    """Give each record, and whether it is in a control batch."""
    for file in sorted(partition.glob("*.log")):
        data = file.read_bytes()
        for start, _ in walk(data)[0]:
            batch = read_batch(data, start)
            for record in batch.records:
                yield batch.is_control, record


def decoded_of(partition: Path) -> list[dict[str, Any]]:
    topic = partition.name.rpartition("-")[0]
    decoded = [
        decode_record(topic, record.key, record.value) for control, record in records_of(partition) if not control
    ]
    return [record for record in decoded if record is not None]


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_record_is_known_and_can_be_written_again(golden: Path, name: str):
    topic = name.rpartition("-")[0]
    for control, record in records_of(golden / "before" / name):
        if control:
            assert decode_control_record(record.key, record.value)["type"] != "unknown"
            continue
        decoded = decode_record(topic, record.key, record.value)
        assert decoded is not None
        assert decoded["type"] != "unknown"
        if topic == cluster_metadata.TOPIC:
            decoded = cluster_metadata.decode(record.key, record.value, redact=False)
        assert encode_record(topic, decoded) == (record.key, record.value)


def test_the_metadata_names_the_partitions_that_are_there(golden: Path):
    folder = golden / "before"
    topics, partitions = {}, set()
    for record in decoded_of(folder / "__cluster_metadata-0"):
        value = record["value"]
        if record["type"] == "TopicRecord":
            topics[value["topicId"]] = value["name"]
        elif record["type"] == "PartitionRecord":
            partitions.add(f"{topics[value['topicId']]}-{value['partitionId']}")
    there = {path.name for path in folder.iterdir() if path.is_dir()} - {"__cluster_metadata-0"}
    assert there == partitions
    for name in there:
        stated = (folder / name / "partition.metadata").read_text(encoding="utf-8")
        topic_id = stated.split("topic_id:")[1].split()[0]
        assert topics[topic_id] == name.rpartition("-")[0]


@pytest.mark.parametrize(
    ("topic", "id_name"), [("__consumer_offsets", ("group", "groupId")), ("__transaction_state", ("transactionalId",))]
)
def test_ids_are_in_the_partition_that_their_hash_tells(golden: Path, topic: str, id_name: tuple[str, ...]):
    folders = [path for path in (golden / "before").iterdir() if path.name.rpartition("-")[0] == topic]
    found = 0
    for folder in folders:
        for record in decoded_of(folder):
            name = next(record["key"][field] for field in id_name if field in record["key"])
            assert folder.name == f"{topic}-{coordinator_partition(name, len(folders))}"
            found += 1
    assert found
