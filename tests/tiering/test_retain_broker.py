"""A real broker after kseg's retention of its tier: it serves from the new log start on, and has nothing to add."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import kseg
from kseg.tiering.metadata_records import COPY_FINISHED, DELETE_FINISHED, DELETE_STARTED
from kseg.tiering.metadata_topic import read_metadata
from tests.reference.record import Record
from tests.reference.rows import table_of
from tests.tiering.tiered_broker import SECONDS, await_metadata_topic, tier_settings

HOUR_MS = 3_600_000
COUNT = 50
SEGMENTS = 6


@pytest.fixture(scope="module")
def offloaded(broker_factory, tmp_path_factory):
    """Two partitions with the same content, all but the last segment in the tier alone; a segment each hour."""
    remote = tmp_path_factory.mktemp("remote")
    broker = broker_factory(**tier_settings(remote))
    with broker:
        await_metadata_topic(broker)
        config = {"remote.storage.enable": "true", "local.retention.ms": 1, "retention.ms": -1}
        broker.create_topic("expiring", 2, config)
    now = int(time.time() * 1000)
    for partition in range(2):
        with kseg.append_to(broker.partition_dir("expiring", partition)) as writer:
            for number in range(SEGMENTS):
                first, when = writer.next_offset, now - (SEGMENTS - number) * HOUR_MS
                rows = [Record(first + i, when + i, b"%d" % (first + i), b"x" * 200, ()) for i in range(COUNT)]
                writer.append(table_of(rows), batch_records=10)
                if number < SEGMENTS - 1:
                    writer.roll()
    kseg.tiering.offload(
        broker.data_dir,
        str(remote),
        layout="plain",
        delete_local=True,
        metadata=broker.data_dir,
        server_properties=broker.folder / "server.properties",
    )
    return broker, remote


def in_tier(remote, partition):
    return sorted(int(path.name[:20]) for path in remote.rglob(f"*/expiring-{partition}-*/*.log"))


def states(broker, partition):
    image = read_metadata(kseg.open_dir(broker.data_dir).store, str(broker.data_dir))
    topic_id = kseg.open_log(broker.partition_dir("expiring", partition)).topic_id
    return {known.name.start_offset: known.state for known in image.of(topic_id, partition).values()}


def await_true(condition, broker):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, broker.log_tail()
        time.sleep(0.1)


def first_offset(broker, partition):
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "any"})
    try:
        return consumer.get_watermark_offsets(TopicPartition("expiring", partition), timeout=SECONDS)[0]
    finally:
        consumer.close()


def test_the_broker_agrees(offloaded):
    """One partition is kseg's, and the other one, which is the same, the broker's own."""
    broker, remote = offloaded
    sizes = [segment.size for segment in kseg.open_log(broker.partition_dir("expiring", 0), remote=remote).segments]
    limits = {"retention.ms": 11 * HOUR_MS // 2, "retention.bytes": sum(sizes[2:]) - sizes[2] // 2}
    report = kseg.tiering.retain(
        str(remote),
        broker.partition_dir("expiring", 0),
        settings=limits,
        metadata=broker.data_dir,
        server_properties=broker.folder / "server.properties",
        remote_metadata=[broker.data_dir],
    )
    assert report.refusals == ()
    assert [(segment.base_offset, segment.rule) for segment in report.partitions[0].expired] == [
        (0, "time"),
        (50, "size"),
    ]
    assert in_tier(remote, 0) == [number * COUNT for number in range(SEGMENTS - 1)]  # the grace period
    assert states(broker, 0) == {
        0: DELETE_STARTED,
        50: DELETE_STARTED,
        100: COPY_FINISHED,
        150: COPY_FINISHED,
        200: COPY_FINISHED,
    }
    with broker:
        broker.produce("expiring", [{"value": b"new"}], 0)  # waits until it has its leader
        await_true(lambda: in_tier(remote, 0) == [100, 150, 200], broker)  # a broker knows no grace
        served = broker.consume("expiring", 0)
        assert [row.offset for row in served] == list(range(2 * COUNT, SEGMENTS * COUNT + 1))
        resource = ConfigResource(ResourceType.TOPIC, "expiring")
        for name, value in limits.items():
            resource.add_incremental_config(ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET))
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.incremental_alter_configs([resource])[resource].result()
        await_true(lambda: in_tier(remote, 1) == [100, 150, 200], broker)
        await_true(lambda: first_offset(broker, 1) == 100, broker)
        assert first_offset(broker, 0) == 100
        time.sleep(2.5)  # two rounds of its retention
        assert in_tier(remote, 0) == in_tier(remote, 1) == [100, 150, 200]
    lines = broker.log_tail(1 << 20).splitlines()
    told = [line for line in lines if "About to delete" in line and "expiring-1" in line]
    assert ["time" in told[0], "size" in told[1], len(told)] == [True, True, 2]
    errors = [line for line in lines if " ERROR " in line or (" WARN " in line and "expiring" in line)]
    assert errors == []
    assert states(broker, 0) == states(broker, 1)
    assert states(broker, 0) == {
        0: DELETE_FINISHED,
        50: DELETE_FINISHED,
        100: COPY_FINISHED,
        150: COPY_FINISHED,
        200: COPY_FINISHED,
    }


def test_what_the_broker_deleted_leaves_no_mark(offloaded):
    broker, remote = offloaded
    report = kseg.tiering.retain(
        str(remote), broker.data_dir, metadata=broker.data_dir, server_properties=broker.folder / "server.properties"
    )
    assert not [refusal for refusal in report.refusals if not refusal.is_usual]
    assert (report.remote_segments, report.swept_segments) == (0, 0)
    found = kseg.tiering.fsck(str(remote), metadata=broker.data_dir, deep=True)
    assert (found.segments, found.findings) == (6, ())
    assert not list(remote.rglob(".kseg-*"))
