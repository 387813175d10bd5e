"""Partitions of tiers whose segments are retired in tests."""

from __future__ import annotations

import os

import kseg
from kseg.settings.source import SettingsSource
from kseg.tiering.metadata_writer import NoTopic, StoppedTopic
from kseg.tiering.objects import open_tier
from kseg.tiering.retirement import PartitionTier
from kseg.tiering.tier import Tier
from tests.tiering.cluster import METADATA, QUICK

DAY_MS = 24 * 3_600_000


def partition_tier(tier, folder=None):
    """The only partition of a tier; `folder` holds the cluster's metadata, where there is one."""
    (partition,) = Tier(str(tier)).partitions()
    topic = NoTopic()
    if folder is not None:
        topic = StoppedTopic([kseg.open_log(folder / f"{METADATA}-0")], SettingsSource(), 1)
    return PartitionTier.of(open_tier(str(tier), retry=QUICK), partition, topic)


def names(tier):
    """The segments of a tier's only partition, by start offset."""
    reader = Tier(str(tier))
    (partition,) = reader.partitions()
    return {segment.start_offset: segment.name for segment in reader.segments(partition)}


def make_old(tier, ms=DAY_MS):
    """Let everything in a tier be older."""
    for path in tier.rglob("*"):
        if path.is_file():
            found = path.stat()
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - ms * 1_000_000))


def objects(tier):
    """Names of all objects, marks aside."""
    return sorted(path.name for path in tier.rglob("*") if path.is_file() and not path.name.startswith("."))


def marks(tier):
    return sorted(path.name for path in tier.rglob(".kseg-retired-*.json"))
