"""Jars that Spark lacks and tests compare with or read with, fetched once with Maven: its Kafka connector, its Avro.

`python -m tests.kafka.connector` fills the cache folder that tests/kafka/jars.py describes.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from tests.kafka.jars import DEPENDENCY, Missing, fetched

# The newest that registries have and that run in pyspark 4.3; Spark brings the rest of what they depend on.
_ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
    ("org.apache.spark", "spark-avro_2.13", "4.1.1"),
)
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


@functools.cache
def connector_jars() -> list[Path]:
    """Return the jars for Spark's class path that make `format("kafka")` and `from_avro` work; raises Missing."""
    pom = "\n    ".join(
        DEPENDENCY.format(group=group, artifact=artifact, version=version, more=_ALONE)
        for group, artifact, version in _ARTIFACTS
    )
    try:
        return sorted(fetched("spark-connector", pom).glob("*.jar"))
    except Missing as missing:
        raise Missing(f"Spark's Kafka connector: {missing}") from None


def main() -> int:
    """Fetch the jars; say in one line why not."""
    try:
        connector_jars()
    except Missing as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
