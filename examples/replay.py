"""Read a range of a topic from a log directory and send it on: to the screen, to files, or to a broker.

    python examples/replay.py PATH TOPIC FROM TO [TARGET]

FROM and TO are ISO 8601 times (UTC where no zone is named); FROM counts, TO does not. TARGET is a folder for JSON lines
or `kafka://HOST:PORT/TOPIC` for Spark's own Kafka sink, which needs its connector's jar. Without it they are printed.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession


def read_range(spark: SparkSession, path: str, topic: str, start: datetime, end: datetime) -> DataFrame:
    """Return the records between two times.

    The options choose offsets by time, as a consumer does, so that little is read; timestamps need not be in order,
    which is why they are filtered too.
    """
    first, last = int(start.timestamp() * 1000), int(end.timestamp() * 1000)
    reader = spark.read.format("kseg").option("subscribe", topic).option("includeHeaders", "true")
    reader = reader.option("startingTimestamp", str(first)).option("endingTimestamp", str(last))
    # a partition that has nothing so late is left out
    reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    frame = reader.load(path)
    return frame.where(f"unix_millis(timestamp) >= {first} AND unix_millis(timestamp) < {last}")


def send(frame: DataFrame, target: str | None) -> None:
    """Write records in the order of each partition."""
    ordered = frame.repartition("partition").sortWithinPartitions("partition", "offset")
    if target is None:
        ordered.selectExpr("partition", "offset", "timestamp", "CAST(key AS STRING)", "CAST(value AS STRING)").show(50)
    elif target.startswith("kafka://"):
        place = urlsplit(target)
        rows = ordered.select("key", "value", "headers", "partition")
        sink = rows.write.format("kafka").option("kafka.bootstrap.servers", place.netloc)
        sink.option("topic", place.path.strip("/")).option("includeHeaders", "true").save()
    else:
        ordered.write.json(target)


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def main(path: str, topic: str, start: str, end: str, target: str | None = None) -> int:
    """Replay, and tell how much."""
    spark = SparkSession.builder.appName("replay").getOrCreate()
    frame = read_range(spark, path, topic, _time(start), _time(end))
    send(frame, target)
    print(f"{frame.count()} records of {topic} between {start} and {end}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit("usage: replay.py PATH TOPIC FROM TO [TARGET]")
    sys.exit(main(*sys.argv[1:]))
