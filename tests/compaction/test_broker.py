"""A real broker starts on a compacted directory, serves the latest values, appends, and cleans it once more itself."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kseg.compaction import compact
from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.cli.calls import call

TOPIC = "compacted"
TP = TopicPartition(TOPIC, 0)
KEYS = 50
WAIT_SECONDS = 90.0


def rows(first, count):
    """A few keys, over and over, with values large enough to roll segments; now and then a tombstone."""
    numbers = range(first, first + count)
    return [{"key": b"k%d" % (n % KEYS), "value": None if n % 97 == 5 else b"%d " % n * 300} for n in numbers]


def latest(broker):
    return {row.key: (row.offset, row.value) for row in broker.consume(TOPIC, committed=True)}


def cleaned_up_to(broker):
    return (read_checkpoint(LocalStore(), str(broker.data_dir), CheckpointKind.CLEANER) or {}).get(TP, 0)


@pytest.fixture(scope="module")
def stopped(broker_factory):
    """A broker that was stopped, with a topic that its cleaner has never seen: no ratio is above 1."""
    broker = broker_factory(**{"log.cleaner.backoff.ms": 200})
    broker.start()
    settings = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 1.0}
    broker.create_topic(TOPIC, config=settings)
    broker.produce(TOPIC, rows(0, 4000), **{"compression.type": "lz4", "enable.idempotence": True})
    producer = broker.producer(**{"transactional.id": "t"})
    producer.init_transactions()
    for first in (4000, 4100):
        producer.begin_transaction()
        for row in rows(first, 100):
            producer.produce(TOPIC, partition=0, **row)
        producer.flush()
        if first == 4000:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    del producer  # it would go on looking for the broker that is stopped below
    broker.produce(TOPIC, rows(4200, 2000), **{"batch.size": 20_000})
    before = latest(broker)
    broker.stop()
    return broker, before


def let_the_broker_clean(broker):
    change = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(WAIT_SECONDS)


def test_a_broker_goes_on_where_kseg_has_compacted_and_keeps_it_away(stopped):
    broker, before = stopped
    settings = {"min.cleanable.dirty.ratio": 0}
    report = compact(broker.data_dir, topics=[TOPIC], metadata=broker.data_dir, settings=settings)
    (done,) = report.partitions
    assert (done.error, done.skipped) == (None, None)
    assert done.superseded > 2000
    assert cleaned_up_to(broker) == done.checkpoint
    logged = broker.log_file.stat().st_size
    with broker:
        refused = call("compact", broker.data_dir, "--topics", TOPIC, "--cleanup-policy", "compact")
        assert (refused.status, "in use" in refused.messages) == (3, True)
        assert latest(broker) == before
        broker.produce(TOPIC, rows(7000, 4000), **{"batch.size": 20_000})
        after = latest(broker)
        assert len(after) == KEYS
        let_the_broker_clean(broker)
        deadline = time.monotonic() + WAIT_SECONDS
        while cleaned_up_to(broker) <= done.checkpoint and time.monotonic() < deadline:
            time.sleep(0.2)
        assert cleaned_up_to(broker) > done.checkpoint, broker.log_tail()
        assert latest(broker) == after
    said = broker.log_file.read_text(encoding="utf-8", errors="replace")[logged:]
    assert not [line for line in said.splitlines() if " ERROR " in line or "uncleanable" in line]
