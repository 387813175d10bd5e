"""A broker with Kafka's LocalTieredStorage, as `broker_factory` makes brokers."""

from __future__ import annotations

import time

METADATA_PARTITIONS = 3
SECONDS = 60


def tier_settings(remote):
    return {
        "log.retention.check.interval.ms": 1000,
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": 1000,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "rsm.config.dir": remote,
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
    }


def await_metadata_topic(broker):
    """The topic is made some time after the broker has started."""
    deadline = time.monotonic() + SECONDS
    places = [broker.partition_dir("__remote_log_metadata", number) for number in range(METADATA_PARTITIONS)]
    while not all((place / "partition.metadata").exists() for place in places):
        assert time.monotonic() < deadline, broker.log_tail()
        time.sleep(0.1)


def make_tiered_topic(broker, topic, partitions=1):
    """Keep all, and as little as possible of it local."""
    config = {"remote.storage.enable": "true", "local.retention.ms": 1, "retention.ms": -1}
    broker.create_topic(topic, partitions, config)


def await_remote_metadata(broker, partitions, *, since):
    """Until a broker has read what the metadata topic says of all its partitions, fetches from the tier fail.

    Args:
        since: How long the broker's log was when it was started.
    """
    deadline = time.monotonic() + SECONDS
    ready = f"Initialized for all the {partitions} assigned user-partitions"
    log = broker.log_file
    while ready not in log.read_bytes()[since:].decode(errors="replace"):
        assert time.monotonic() < deadline, broker.log_tail()
        time.sleep(0.1)
