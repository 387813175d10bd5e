"""Compaction: what Kafka's log cleaner does, for logs of any size, alone or on Spark."""

from kseg.compaction.config import CleanerConfig
from kseg.compaction.erase_job import erase
from kseg.compaction.erase_report import EraseReport
from kseg.compaction.job import compact
from kseg.compaction.matching import read_keys
from kseg.compaction.remote import RemoteOptions
from kseg.compaction.repack_job import repack
from kseg.compaction.repack_report import RepackReport
from kseg.compaction.report import CompactionReport, PartitionCompaction

__all__ = [
    "CleanerConfig",
    "CompactionReport",
    "EraseReport",
    "PartitionCompaction",
    "RemoteOptions",
    "RepackReport",
    "compact",
    "erase",
    "read_keys",
    "repack",
]
