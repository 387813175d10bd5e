"""Write topics from log directories to Parquet, a folder a topic and day, and go on where the last run ended.

    python examples/backfill_to_parquet.py PATH TARGET CHECKPOINT [TOPIC ...]

A stream that ends when it has read what there is: the checkpoint keeps the offsets, so a second run adds what is new.
After a run that was killed, read TARGET with Spark, which knows the files of batches that were not finished.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

OFFSETS_PER_BATCH = 5_000_000


def backfill(spark: SparkSession, path: str, target: str, checkpoint: str, topics: Sequence[str]) -> int:
    """Add what is new; return how many records that was."""
    reader = spark.readStream.format("kseg").option("startingOffsets", "earliest")
    reader = reader.option("kafka.isolation.level", "read_committed").option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
    if topics:
        reader = reader.option("subscribe", ",".join(topics))
    rows = reader.load(path).selectExpr("*", "date_format(timestamp, 'yyyy-MM-dd') AS day")
    sink = rows.writeStream.format("parquet").partitionBy("topic", "day").option("path", target)
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def main(path: str, target: str, checkpoint: str, *topics: str) -> int:
    """Run, and tell how much."""
    spark = SparkSession.builder.appName("backfill").getOrCreate()
    print(f"{backfill(spark, path, target, checkpoint, topics)} records added to {target}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: backfill_to_parquet.py PATH TARGET CHECKPOINT [TOPIC ...]")
    sys.exit(main(*sys.argv[1:]))
