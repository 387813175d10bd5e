"""Compaction: what Kafka's log cleaner does, for logs of any size, alone or on Spark."""

from kseg.compaction.config import CleanerConfig
from kseg.compaction.job import compact
from kseg.compaction.report import CompactionReport, PartitionCompaction

__all__ = ["CleanerConfig", "CompactionReport", "PartitionCompaction", "compact"]
