"""How far consumer groups are behind, from a log directory alone: no broker is asked, and none need run.

    python examples/consumer_lag.py PATH [LIMIT]

Exits with 1 where a group is more than LIMIT records behind in one partition (0 unless told). Give the whole log
directory: commits are in `__consumer_offsets`. A broker's disk has those of the groups that it coordinates.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession


def read_lag(spark: SparkSession, path: str) -> DataFrame:
    """Return a row for each group and partition, the furthest behind first."""
    columns = ("group", "topic", "partition", "offset", "endOffset", "lag", "commitTimestamp")
    offsets = spark.read.format("kseg").option("view", "offsets").option("columns", ",".join(columns)).load(path)
    return offsets.orderBy("lag", ascending=False)


def main(path: str, limit: str = "0") -> int:
    """Show the lag; the exit status tells whether a group is too far behind."""
    spark = SparkSession.builder.appName("consumer-lag").getOrCreate()
    lag = read_lag(spark, path).cache()
    lag.show(100, truncate=False)
    behind = lag.where(f"lag > {int(limit)}").count()
    lag.unpersist()
    return 1 if behind else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: consumer_lag.py PATH [LIMIT]")
    sys.exit(main(*sys.argv[1:]))
