"""Topics of a live broker, read by Spark's Kafka connector and by kseg from the disk: equal, option by option."""

from __future__ import annotations

import json
import random
import time

import pytest

import kseg

START_MS = 1_700_000_000_000
ORDERS, LEDGER = "orders", "ledger"


@pytest.fixture(scope="module")
def live(spark_with_kafka, broker_factory):
    """A broker with a plain topic of two partitions and one of transactions, committed and aborted."""
    broker = broker_factory(**{"replica.high.watermark.checkpoint.interval.ms": 200})
    with broker:
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
        time.sleep(1.0)  # two checkpoints of the high watermark
        yield broker


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
}


@pytest.mark.parametrize("options", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_fails_in_both(spark_with_kafka, live, options):
    theirs = spark_with_kafka.read.format("kafka").option("kafka.bootstrap.servers", live.address).options(**options)
    with pytest.raises(Exception, match=r".+"):
        theirs.load().collect()
    ours = spark_with_kafka.read.format("kseg").options(**options)
    with pytest.raises(Exception, match=r"OptionError|DataLossError|LogError"):
        ours.load(str(live.partition_dir(ORDERS).parent)).collect()
