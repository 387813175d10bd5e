"""Find records that a log holds twice: the same producer id, epoch and sequence number in one partition.

    python examples/audit_duplicates.py PATH

PATH is a log directory, a topic's folder or a partition. Keys and values are not copied. Exits with 1 where there are
duplicates.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import kseg

IDENTITY = ["topic", "partition", "producerId", "producerEpoch", "sequence"]


def find_duplicates(spark: SparkSession, path: str) -> DataFrame:
    """Return the identities that occur more than once, with their offsets."""
    numbered = kseg.scan(spark, path, columns=[*IDENTITY, "offset"]).where("sequence >= 0")
    offsets = sf.sort_array(sf.collect_list("offset")).alias("offsets")
    return numbered.groupBy(*IDENTITY).agg(offsets).where(sf.size("offsets") > 1).orderBy(*IDENTITY)


def main(path: str) -> int:
    """Show duplicates; the exit status tells whether there are any."""
    spark = SparkSession.builder.appName("audit-duplicates").getOrCreate()
    duplicates = find_duplicates(spark, path).cache()
    duplicates.show(truncate=False)
    found = duplicates.count()
    duplicates.unpersist()
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: audit_duplicates.py PATH")
    sys.exit(main(sys.argv[1]))
