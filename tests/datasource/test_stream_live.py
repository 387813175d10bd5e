"""A stream over the directory of a broker that produces, rolls, deletes and compacts meanwhile, and that is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import StreamingQueryException

import kseg
from tests.datasource.live_query import committed, kept_rows, start_query
from tests.datasource.spark_session import environment
from tests.scale import FACTOR

ROUNDS, A_ROUND = 3, 100
WAIT_SECONDS = 300.0
ORDERS, LATEST = "orders", "latest-by-key"
SMALL = {"internal.segment.bytes": 8192, "file.delete.delay.ms": 100}
CHECKPOINT_OF_STARTS = "log.flush.start.offset.checkpoint.interval.ms"
STALE_PLAN = "since the read was planned"


class Topics:
    """Two topics of a live broker, and every record that it took, as it answered."""

    def __init__(self, broker):
        self.broker, self.partitions, self.rounds = broker, 2, 0
        self.taken = []
        broker.create_topic(ORDERS, partitions=2, config={**SMALL, "retention.bytes": 60_000, "retention.ms": -1})
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": 0}
        broker.create_topic(LATEST, config={**SMALL, **compacted})

    def produce(self):
        """One round: records to every partition, and few keys with ever newer values."""
        producer = self.broker.producer(**{"batch.size": 4000})
        self.rounds += 1
        for i in range(A_ROUND):
            value = b"%d-%d " % (self.rounds, i) + b"x" * 300
            for partition in range(self.partitions):
                producer.produce(ORDERS, value, partition=partition, on_delivery=self._take)
            producer.produce(LATEST, value, key=b"%d" % (i % 7), partition=0, on_delivery=self._take)
        assert producer.flush(30) == 0

    def add_partition(self):
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        self.partitions += 1
        admin.create_partitions([NewPartitions(ORDERS, self.partitions)])[ORDERS].result(30)

    def delete_before(self, partition, offset):
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        wanted = TopicPartition(ORDERS, partition, offset)
        admin.delete_records([wanted])[wanted].result(30)

    def ends(self):
        """The offset behind the last record of each partition."""
        ends = {}
        for topic, partition, offset, *_ in self.taken:
            parts = ends.setdefault(topic, {})
            parts[str(partition)] = max(parts.get(str(partition), 0), offset + 1)
        return ends

    def _take(self, error, message):
        assert error is None, error
        self.taken.append((message.topic(), message.partition(), message.offset(), message.key(), message.value()))


@pytest.fixture
def topics(broker_factory):
    often = {"log.retention.check.interval.ms": 300, "log.initial.task.delay.ms": 300, "log.cleaner.backoff.ms": 300}
    often |= dict.fromkeys(("replica.high.watermark.checkpoint.interval.ms", CHECKPOINT_OF_STARTS), 100)
    with broker_factory(**often) as broker:
        yield Topics(broker)


def reached(folder):
    """What is committed, but for partitions in which there is nothing yet."""
    return {topic: {part: end for part, end in parts.items() if end} for topic, parts in committed(folder).items()}


class Query:
    """The query in a process of its own; one that ends because the cleaner was quicker is started again."""

    def __init__(self, data, folder):
        self._data, self._folder, self.restarts = data, folder, 0
        self._start()

    def wait_for(self, ends):
        deadline = time.monotonic() + WAIT_SECONDS
        while reached(self._folder) != ends:
            if self._process.poll() is not None:
                text = (self._folder / "query.log").read_text(encoding="utf-8", errors="replace")
                assert STALE_PLAN in text, text[-4000:]
                self.restarts += 1
                assert self.restarts < 5
                self._start()
            assert time.monotonic() < deadline, (committed(self._folder), ends)
            time.sleep(0.05)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _start(self):
        command = [sys.executable, "-m", "tests.datasource.live_query", str(self._data), str(self._folder)]
        with (self._folder / "query.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, **environment()}, stdout=log, stderr=log, start_new_session=True
            )


def check_every_record_once(topics, rows):
    """Of the topic that is not compacted all records; of the other each at most once, and all that are left."""
    assert len(rows) == len({row[:3] for row in rows})
    assert [row for row in rows if row[0] == ORDERS] == sorted(row for row in topics.taken if row[0] == ORDERS)
    latest = {row for row in rows if row[0] == LATEST}
    assert latest <= {row for row in topics.taken if row[0] == LATEST}
    left = topics.broker.consume(LATEST)
    assert {(LATEST, 0, row.offset, row.key, row.value) for row in left} <= latest


@pytest.mark.timeout(900 * FACTOR)  # seconds on an idle machine, minutes on a crowded one
def test_every_record_once_while_the_broker_works_and_the_query_is_killed(spark, topics, tmp_path):
    data = topics.broker.data_dir
    for kill in range(FACTOR):
        query = Query(data, tmp_path)
        try:
            for number in range(ROUNDS):
                topics.produce()
                if number == 0 and kill == 0:
                    topics.add_partition()
                if number < ROUNDS - 1:
                    query.wait_for(topics.ends())
        finally:
            query.kill()  # in the middle of the last round's batch, or a little before or after it
    _run_here(spark, topics, tmp_path)
    check_every_record_once(topics, kept_rows(tmp_path))
    # the broker did what the test is about
    assert kseg.open_log(topics.broker.partition_dir(ORDERS, 0)).start_offset > 0
    assert len(list(topics.broker.partition_dir(ORDERS, 0).glob("*.log"))) > 1
    assert len(topics.broker.consume(LATEST)) < ROUNDS * A_ROUND
    assert committed(tmp_path)[ORDERS].keys() == {"0", "1", "2"}
    _lose_records(spark, topics, tmp_path)


def _run_here(spark, topics, folder, **options):
    """Go on from the checkpoint in this process until all is read; the cleaner may be quicker a few times."""
    deadline = time.monotonic() + WAIT_SECONDS
    query = start_query(spark, str(topics.broker.data_dir), folder, **options)
    try:
        while reached(folder) != topics.ends():
            assert time.monotonic() < deadline, (committed(folder), topics.ends())
            if query.exception() is not None:
                if STALE_PLAN not in str(query.exception()):
                    raise query.exception()
                query = start_query(spark, str(topics.broker.data_dir), folder, **options)
            time.sleep(0.05)
    finally:
        query.stop()


def _lose_records(spark, topics, folder):
    """Deleted before they were read: named, or passed over and counted."""
    before = topics.ends()[ORDERS]["1"]
    topics.produce()
    topics.delete_before(1, before + 10)
    time.sleep(1.0)  # the checkpoint of log starts
    with pytest.raises(StreamingQueryException, match=rf"orders-1: offsets \[{before}, {before + 10}\) are gone"):
        _run_here(spark, topics, folder)
    _run_here(spark, topics, folder, failOnDataLoss="false")
    lost = {(ORDERS, 1, offset) for offset in range(before, before + 10)}
    topics.taken = [row for row in topics.taken if row[:3] not in lost]
    check_every_record_once(topics, kept_rows(folder))
