"""A real broker's settings as kseg resolves them from its files, and its log directory after `kseg.retain`."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

import kseg
from kseg.settings.definitions import BROKER_ONLY, DEFINITIONS, parse_setting
from kseg.settings.source import SettingsSource
from kseg.settings.values import Origin
from tests.kafka.broker import run_tool
from tests.log.written import bases
from tests.reference.record import Record
from tests.reference.rows import table_of

HOUR_MS = 3_600_000
SECONDS = 60
STATIC = {
    "log.retention.hours": 30,
    "log.retention.bytes": 123_456_789,
    "log.roll.hours": 3,
    "log.index.interval.bytes": 2000,
    "log.cleaner.min.cleanable.ratio": 0.25,
    "message.max.bytes": 2_000_000,
    "log.cleanup.policy": "compact",
}
TOPICS = {
    "aged": {"cleanup.policy": "delete", "retention.ms": HOUR_MS, "retention.bytes": -1},
    "sized": {"cleanup.policy": "compact,delete", "retention.ms": -1, "retention.bytes": 30_000},
    "plain": {},
}
DYNAMIC = {
    "": {"log.retention.ms": 77_000, "log.cleaner.delete.retention.ms": 5000, "message.max.bytes": 3_000_000},
    "1": {"log.cleaner.delete.retention.ms": 6000, "log.roll.ms": 99_000},
}
ORIGINS = {
    "DYNAMIC_TOPIC_CONFIG": Origin.TOPIC,
    "DYNAMIC_BROKER_CONFIG": Origin.BROKER,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": Origin.CLUSTER,
    "STATIC_BROKER_CONFIG": Origin.FILE,
    "DEFAULT_CONFIG": Origin.DEFAULT,
}


@pytest.fixture(scope="module")
def stopped(broker_factory):
    """A broker that was shut down cleanly, what it said of its topics' settings, and files that kseg wrote since."""
    broker = broker_factory(**STATIC)
    with broker:
        for topic, config in TOPICS.items():
            broker.create_topic(topic, config=config)
        for name, settings in DYNAMIC.items():
            entity = ["--entity-name", name] if name else ["--entity-default"]
            texts = ",".join(f"{key}={value}" for key, value in settings.items())
            words = ["--bootstrap-server", broker.address, "--entity-type", "brokers", *entity]
            run_tool("kafka.admin.ConfigCommand", *words, "--alter", "--add-config", texts)
        admin = AdminClient({"bootstrap.servers": broker.address})
        described = {}
        for topic in TOPICS:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            described[topic] = admin.describe_configs([resource])[resource].result(SECONDS)
    now = int(time.time() * 1000)
    records = {topic: make_segments(broker.partition_dir(topic), now) for topic in ("aged", "sized")}
    return broker, described, records, now


def make_segments(directory, now):
    """Six segments of fifty records, half an hour apart, the last one now."""
    made = []
    with kseg.append_to(directory) as writer:
        for age in range(5, -1, -1):
            first = writer.next_offset
            rows = [
                Record(first + i, now - age * HOUR_MS // 2 - 60_000 + i, b"%d" % (first + i), b"x" * 200, ())
                for i in range(50)
            ]
            writer.append(table_of(rows), batch_records=10)
            made += rows
            if age:
                writer.roll()
    return made


def source_of(broker):
    return SettingsSource(metadata=broker.data_dir, server_properties=broker.folder / "server.properties")


def test_settings_are_those_that_the_broker_told(stopped):
    broker, described, _, _ = stopped
    names = [name for name in DEFINITIONS if name not in BROKER_ONLY]
    source = source_of(broker)
    seen = set()
    for topic in TOPICS:
        found = source.resolve_log(kseg.open_log(broker.partition_dir(topic)), names)
        for name in names:
            told = described[topic][name]
            assert found[name] == parse_setting(name, told.value), (topic, name)
            origin = ORIGINS[ConfigSource(told.source).name]
            assert found.origins[name] is origin, (topic, name)
            seen.add(origin)
    assert seen == set(ORIGINS.values())


def test_a_broker_goes_on_behind_what_retention_left(stopped):
    broker, _, records, now = stopped
    report = kseg.retain(
        broker.data_dir, metadata=broker.data_dir, server_properties=broker.folder / "server.properties", now_ms=now
    )
    assert {done.topic for done in report.partitions} >= set(TOPICS)
    starts = {done.topic: done.start_offset for done in report.partitions if done.deleted}
    assert starts["aged"] == 200  # those of an hour and less
    assert 0 < starts["sized"] < 250
    assert bases(broker.partition_dir("aged")) == [200, 250]
    with broker:
        for topic, made in records.items():
            broker.produce(topic, [{"value": b"new", "key": b"new"}])  # waits until the partition has its leader
            served = [(row.offset, row.key, row.value) for row in broker.consume(topic)]
            kept = [(row.offset, row.key, row.value) for row in made if row.offset >= starts[topic]]
            assert served == [*kept, (300, b"new", b"new")]
