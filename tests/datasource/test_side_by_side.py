"""Topics of a live broker, read by Spark's Kafka connector and by kseg from the disk: equal, option by option."""

from __future__ import annotations

import json
import random
import time

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import kseg

START_MS = 1_700_000_000_000
ORDERS, LEDGER, COMPACTED, CUT = "orders", "ledger", "latest-by-key", "cut"
OFTEN = ("replica.high.watermark.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms")


@pytest.fixture(scope="module")
def live(spark_with_kafka, broker_factory):
    """A broker with a plain topic of two partitions, and topics of transactions, of keys and with a lost beginning."""
    broker = broker_factory(**dict.fromkeys(OFTEN, 200), **{"log.cleaner.backoff.ms": 200})
    with broker:
        _compacted(broker)
        broker.create_topic(ORDERS, partitions=2, config={"segment.bytes": 1 << 20, "retention.ms": -1})
        broker.create_topic(LEDGER, partitions=1, config={"retention.ms": -1})
        rng = random.Random(4)
        for partition in (0, 1):
            rows = [
                {
                    "key": None if i % 9 == 0 else b"k%d" % (i % 50),
                    "value": None if i % 13 == 0 else b"v%d-" % i + b"x" * rng.randrange(900),
                    "timestamp": START_MS + 1000 * i + rng.randrange(-5000, 5000),
                    "headers": [("h", b"%d" % i), ("n", None)] if i % 4 == 0 else None,
                }
                for i in range(3000)
            ]
            broker.produce(ORDERS, rows, partition=partition, **{"compression.type": ("lz4", "none")[partition]})
        _transactions(broker)
        _cut(broker)
        time.sleep(1.0)  # two checkpoints of the high watermark
        _wait_for_the_cleaner(broker)
        yield broker


def _compacted(broker):
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "internal.segment.bytes": 4096}
    broker.create_topic(COMPACTED, config=settings)
    rows = [{"key": b"%d" % (i % 17), "value": b"%d" % i, "timestamp": START_MS + i} for i in range(600)]
    broker.produce(COMPACTED, rows, **{"batch.size": 2000, "compression.type": "zstd"})


def _wait_for_the_cleaner(broker):
    deadline = time.monotonic() + 30
    while len(kseg.open_log(broker.partition_dir(COMPACTED)).segments) > 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _cut(broker):
    broker.create_topic(CUT)
    broker.produce(CUT, [{"value": b"%d" % i} for i in range(60)])
    admin, wanted = AdminClient({"bootstrap.servers": broker.address}), TopicPartition(CUT, 0, 25)
    admin.delete_records([wanted])[wanted].result(30)
    deadline = time.monotonic() + 30
    while kseg.open_log(broker.partition_dir(CUT)).start_offset < wanted.offset:  # the checkpoint of log starts
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _transactions(broker):
    producer = broker.producer(**{"transactional.id": "t"})
    producer.init_transactions()
    for number in range(12):
        producer.begin_transaction()
        for i in range(20):
            producer.produce(LEDGER, key=b"%d" % i, value=b"%d-%d" % (number, i), timestamp=START_MS + 100 * number + i)
        producer.flush()
        if number % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()


def both(spark, live, **options):
    """Rows by the connector, and by kseg."""
    theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", live.address).options(**options).load()
    ours = spark.read.format("kseg").options(**options).load(str(live.partition_dir(ORDERS).parent))
    assert ours.columns == theirs.columns
    assert [field.dataType for field in ours.schema] == [field.dataType for field in theirs.schema]
    return rows(theirs), rows(ours)


def rows(frame):
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[2], row[3], row[4]))


def offsets(first, second):
    return json.dumps({ORDERS: {"0": first, "1": second}})


LOST = json.dumps({CUT: {"0": 5}})
RANGES = {
    "all": {},
    "headers": {"includeHeaders": "true"},
    "starting and ending offsets": {"startingOffsets": offsets(100, -2), "endingOffsets": offsets(2000, -1)},
    "starting at a time": {"startingTimestamp": str(START_MS + 1_000_000)},
    "between times": {
        "startingTimestamp": str(START_MS + 1_000_000),
        "endingTimestamp": str(START_MS + 2_000_000),
    },
    "times for each partition": {
        "startingOffsetsByTimestamp": offsets(START_MS + 500_000, START_MS + 700_000),
        "endingOffsetsByTimestamp": offsets(START_MS + 900_000, START_MS * 2),
    },
    "a late time, and latest": {
        "startingTimestamp": str(START_MS * 2),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "one time before all else": {
        "startingTimestamp": str(START_MS + 2_500_000),
        "startingOffsetsByTimestamp": offsets(START_MS, START_MS),
        "startingOffsets": "latest",
        "endingTimestamp": str(START_MS + 2_900_000),
        "endingOffsets": "earliest",
    },
    "times before offsets": {
        "startingOffsetsByTimestamp": offsets(START_MS + 2_500_000, START_MS * 2),
        "startingOffsets": "no JSON at all",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsetsByTimestamp": offsets(START_MS + 2_900_000, START_MS * 2),
        "endingOffsets": offsets(1, 2),
    },
    "more tasks": {"minPartitions": "5"},
    "small tasks": {"maxRecordsPerPartition": "700"},
}


@pytest.mark.parametrize("options", RANGES.values(), ids=RANGES.keys())
def test_ranges_are_equal(spark_with_kafka, live, options):
    theirs, ours = both(spark_with_kafka, live, subscribe=ORDERS, **options)
    assert ours == theirs
    assert theirs or "latest" in options.values()


@pytest.mark.parametrize(
    "chooser", [{"subscribe": f"{LEDGER}, {ORDERS}"}, {"subscribePattern": "led.*|ord"}, {"assign": '{"orders":[1]}'}]
)
def test_topics_are_chosen_alike(spark_with_kafka, live, chooser):
    theirs, ours = both(spark_with_kafka, live, **chooser)
    assert ours == theirs
    assert theirs


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions_are_seen_alike(spark_with_kafka, live, isolation):
    theirs, ours = both(spark_with_kafka, live, subscribe=LEDGER, **{"kafka.isolation.level": isolation})
    assert ours == theirs
    assert len(theirs) == (240 if isolation == "read_uncommitted" else 160)


@pytest.mark.parametrize("start", [-2, 100, 595])
def test_a_compacted_topic_is_equal(spark_with_kafka, live, start):
    start = {"startingOffsets": json.dumps({COMPACTED: {"0": start}})}
    theirs, ours = both(spark_with_kafka, live, subscribe=COMPACTED, **start)
    assert ours == theirs
    assert 0 < len(theirs) < 250


def test_offsets_that_are_gone_are_passed_over_alike(spark_with_kafka, live):
    """Where data loss is no failure; where it is one, see the wrong options below."""
    theirs, ours = both(spark_with_kafka, live, subscribe=CUT, startingOffsets=LOST, failOnDataLoss="false")
    assert ours == theirs
    assert [row[4] for row in theirs] == list(range(25, 60))


def stream(spark, reader, checkpoint):
    """The rows of each batch until what is there now is read."""
    seen = {}
    frame = reader.writeStream.foreachBatch(lambda frame, batch: seen.update({batch: rows(frame)}))
    query = frame.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    return seen


def test_a_stream_has_the_same_batches_and_goes_on_from_the_connector_s_checkpoint(spark_with_kafka, live, tmp_path):
    options = {"subscribe": f"{ORDERS},{CUT}", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2500"}
    reader = spark_with_kafka.readStream.options(**options)
    theirs = reader.format("kafka").option("kafka.bootstrap.servers", live.address).load()
    ours = reader.format("kseg").load(str(live.partition_dir(ORDERS).parent))
    wanted = stream(spark_with_kafka, theirs, tmp_path / "theirs")
    assert len(wanted) == 3
    assert stream(spark_with_kafka, ours, tmp_path / "ours") == wanted
    for path in [*tmp_path.glob("theirs/*/2"), *tmp_path.glob("theirs/*/.2.crc")]:
        path.unlink()
    assert stream(spark_with_kafka, ours, tmp_path / "theirs") == {2: wanted[2]}


def test_scan_is_equal_too(spark_with_kafka, live):
    theirs, _ = both(spark_with_kafka, live, subscribe=ORDERS)
    scanned = kseg.scan(spark_with_kafka, live.partition_dir(ORDERS).parent, topics=ORDERS, maxBytesPerTask=300_000)
    assert rows(scanned) == theirs


WRONG = {
    "latest as a start": {"subscribe": ORDERS, "startingOffsets": "latest"},
    "earliest as an end": {"subscribe": ORDERS, "endingOffsets": "earliest"},
    "-1 as a start": {"subscribe": ORDERS, "startingOffsets": offsets(-1, 0)},
    "-2 as an end": {"subscribe": ORDERS, "endingOffsets": offsets(-2, 10)},
    "a partition left out": {"subscribe": ORDERS, "startingOffsets": '{"orders":{"0":1}}'},
    "two choosers": {"subscribe": ORDERS, "assign": '{"orders":[0]}'},
    "no JSON": {"subscribe": ORDERS, "startingOffsets": "yesterday"},
    "no partitions": {"subscribe": ORDERS, "minPartitions": "0"},
    "start above end": {"subscribe": ORDERS, "startingOffsets": offsets(50, 50), "endingOffsets": offsets(40, 60)},
    "a late time": {"subscribe": ORDERS, "startingTimestamp": str(START_MS * 2)},
    "a topic that is not there": {"subscribe": "no-such-topic"},
    "offsets that are gone": {"subscribe": CUT, "startingOffsets": LOST},
    "a start behind the end": {"subscribe": ORDERS, "startingOffsets": offsets(9000, 0), "failOnDataLoss": "false"},
    "offsets where no topic is found": {"subscribePattern": "no-such-topic", "startingOffsets": offsets(0, 0)},
}


@pytest.mark.parametrize("options", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_fails_in_both(spark_with_kafka, live, options):
    theirs = spark_with_kafka.read.format("kafka").option("kafka.bootstrap.servers", live.address).options(**options)
    with pytest.raises(Exception, match=r".+"):
        theirs.load().collect()
    ours = spark_with_kafka.read.format("kseg").options(**options)
    with pytest.raises(Exception, match=r"OptionError|DataLossError|LogError"):
        ours.load(str(live.partition_dir(ORDERS).parent)).collect()
