"""A real broker starts on offsets that kseg wrote: its groups stand there, and their consumers begin there."""

from __future__ import annotations

import asyncio
import shutil
import time

import pyarrow as pa
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from confluent_kafka import Consumer, KafkaException, TopicPartition

import kseg
from kseg.offsets import OffsetEntry
from kseg.offsets.entries import format_entries
from tests.cli.calls import call
from tests.scale import FACTOR

SECONDS = 30
COUNT = 50


def consumer(broker, group, **config):
    return Consumer({
        "bootstrap.servers": broker.address,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        **config,
    })  # fmt: skip


def commit(broker, group, offsets):
    """The first commit of a cluster makes `__consumer_offsets`, and fails as long as that is not there."""
    client, deadline = consumer(broker, group), time.monotonic() + SECONDS
    try:
        while True:
            try:
                client.commit(offsets=[TopicPartition("orders", p, o) for p, o in offsets.items()], asynchronous=False)
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
    finally:
        client.close()


async def _ask(broker, group):
    client = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await client.start()
    try:
        return await client.list_consumer_group_offsets(group)
    finally:
        await client.close()


def standing(broker, group):
    """As kafka-consumer-groups asks for it. Not by librdkafka: it reads metadata up to a zero that may be missing."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            found = asyncio.run(_ask(broker, group))
        except KafkaError as error:
            if not error.retriable:
                raise
            found = {}
        if found:  # nothing: a coordinator that has just started
            return {tp.partition: (at.offset, at.metadata or "") for tp, at in found.items()}
        assert time.monotonic() < deadline, broker.log_tail()


def first_offsets(broker, group, *, partitions=2, **config):
    """Where the group's next consumer begins, by partition."""
    client = consumer(broker, group, **config)
    client.subscribe(["orders"])
    first = {}
    try:
        while len(first) < partitions:
            message = client.poll(SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            first.setdefault(message.partition(), message.offset())
    finally:
        client.close()
    return first


@pytest.fixture(scope="module")
def stopped(broker_factory):
    """A broker that was stopped after groups had committed."""
    broker = broker_factory(**{"offsets.topic.num.partitions": 5})
    with broker:
        broker.create_topic("orders", 2)
        for partition in range(2):
            broker.produce("orders", [{"value": b"%d" % i} for i in range(COUNT)], partition)
        for group in ("moved", "kept"):
            commit(broker, group, {0: 40, 1: 41})
    return broker


def test_a_broker_takes_what_kseg_wrote(stopped, tmp_path):
    broker, file = stopped, tmp_path / "groups.jsonl"
    assert call("offsets", broker.data_dir, "--export", file).status == 0
    assert {found.entry.place: found.lag for found in kseg.offsets.read(broker.data_dir).offsets} == {
        (group, "orders", partition): COUNT - 40 - partition for group in ("moved", "kept") for partition in range(2)
    }
    wishes = [OffsetEntry("moved", "orders", 0, 7, metadata="by kseg"), OffsetEntry("moved", "orders", 1, COUNT + 9)]
    wishes += [OffsetEntry(group, "orders", partition, 20) for group in ("new", "newer") for partition in range(2)]
    report = kseg.offsets.reset(broker.data_dir, wishes)  # the metadata log beside tells how many partitions
    assert report.refusals == ()
    assert [found.note for found in report.offsets if found.note] == ["the log's end: 59 is behind it"]
    assert call("offsets", broker.data_dir, "--reset", "--to-earliest", "--group", "first", "--topic", "orders",
                "--yes").status == 0  # fmt: skip
    with broker:
        broker.produce("orders", [{"value": b"more"}], 1)
        assert standing(broker, "moved") == {0: (7, "by kseg"), 1: (COUNT, "")}
        assert standing(broker, "kept") == {0: (40, ""), 1: (41, "")}
        assert first_offsets(broker, "moved") == {0: 7, 1: COUNT}
        assert first_offsets(broker, "first") == {0: 0, 1: 0}
        assert first_offsets(broker, "newer", **{"group.protocol": "consumer"}) == {0: 20, 1: 20}
        held = call("offsets", broker.data_dir, "--reset", file, "--yes")
        assert (held.status, standing(broker, "new")) == (3, {0: (20, ""), 1: (20, "")})
    assert call("offsets", broker.data_dir, "--reset", file, "--yes").status == 0
    report = kseg.offsets.read(broker.data_dir, group="moved")
    assert [found.entry.offset for found in report.offsets] == [40, 41]


def test_a_cluster_is_moved_by_its_bucket_and_its_groups(broker_factory, tmp_path):
    """As docs/tiering.md, "Moving a cluster" tells it: the new cluster's topic has another id."""
    old, tier, restored = tmp_path / "old", tmp_path / "tier", tmp_path / "restored"
    with kseg.create_log(old / "orders-0") as writer:
        for number in range(4):
            if number:
                writer.roll()
            writer.append(pa.table({"value": [b"%d" % (10 * number + i) for i in range(10)]}), leader_epoch=3 * number)
    kseg.tiering.offload(old, str(tier), topics=["orders"], archive=True)
    topic_id = kseg.open_log(old / "orders-0").topic_id
    stood = {"near": 12, "ahead": 38}
    groups = tmp_path / "groups.jsonl"
    groups.write_bytes(format_entries(OffsetEntry(g, "orders", 0, at, topic_id=topic_id) for g, at in stood.items()))
    kseg.tiering.restore(str(tier), restored)
    broker = broker_factory()
    with broker:
        broker.create_topic("orders")
        commit(broker, "any", {0: 0})
    place = broker.partition_dir("orders")
    for file in [file for file in place.iterdir() if file.name != "partition.metadata"]:
        file.unlink()
    for file in [file for file in (restored / "orders-0").iterdir() if file.name != "partition.metadata"]:
        shutil.copy(file, place)
    flags = ("--reset", groups, "--yes")
    assert call("offsets", broker.data_dir, *flags).status == 2  # the topic that they stood in had another id
    assert call("offsets", broker.data_dir, *flags, "--any-topic-id").status == 0
    for _ in range(2 if FACTOR > 1 else 1):
        with broker:
            broker.produce("orders", [{"value": b"new"}])
            served = broker.consume("orders")
            assert [int(row.value) for row in served[:30]] == list(range(30))
            assert {row.value for row in served[30:]} == {b"new"}
            assert standing(broker, "near") == {0: (12, "")}
            assert first_offsets(broker, "near", partitions=1) == {0: 12}
            assert first_offsets(broker, "ahead", partitions=1) == {0: 30}
