"""A stopped cluster's directory that kseg wrote: a tiered topic and `__remote_log_metadata`."""

from __future__ import annotations

import kseg
from kseg.log.checkpoints import CheckpointKind, write_checkpoint
from kseg.tiering import offload
from kseg.tiering.metadata_records import metadata_partition
from kseg.tiering.objects import RetryPolicy
from kseg.types import TopicPartition
from tests.log.written import START, clock, numbered
from tests.reference.rows import records_of

MARKER = ".kafka_cleanshutdown"
METADATA = "__remote_log_metadata"
ENABLED = {"remote.storage.enable": True, "local.retention.ms": 0, "retention.ms": -1, "retention.bytes": -1}
NOW = START + 3_600_000
QUICK = RetryPolicy(first_pause_s=0.0)


def make_cluster(
    folder, *, segments=4, per_segment=10, topic="a", partitions=1, metadata_partitions=1, batch_records=None
):
    """A log directory that was shut down cleanly; each sealed segment has an aborted transaction in it."""
    ends = {}
    for partition in range(partitions):
        tp = TopicPartition(topic, partition)
        with kseg.create_log(folder / str(tp), clock=clock) as writer:
            for number in range(segments):
                if number:
                    writer.roll()
                first = per_segment * number
                writer.append(
                    numbered(per_segment - 6, start=first),
                    batch_records=batch_records,
                    leader_epoch=number // 2,
                    producer_id=6,
                    transactional=True,
                )
                writer.append_marker(6, commit=False, timestamp_ms=START + first + 4)
                writer.append(numbered(5, start=first + 5))
            ends[tp] = writer.next_offset
    for number in range(metadata_partitions):
        with kseg.create_log(folder / f"{METADATA}-{number}", clock=clock):
            pass
        ends[TopicPartition(METADATA, number)] = 0
    for kind in (CheckpointKind.RECOVERY_POINT, CheckpointKind.HIGH_WATERMARK):
        write_checkpoint(str(folder), kind, ends)
    (folder / MARKER).write_bytes(b"clean")
    return folder


def partitions_elsewhere(folder):
    """So many partitions of the metadata topic that the topic's records, by its random id, are not in the first."""
    topic_id = kseg.open_log(folder / "a-0").topic_id
    return next(count for count in range(50, 100) if metadata_partition(topic_id, 0, count))


def run(folder, remote, **options):
    """Offload with all that has to be known."""
    given = {
        "layout": "plain",
        "topics": ["a"],
        "settings": ENABLED,
        "remote_metadata_partitions": 1,
        "now_ms": NOW,
        "retry": QUICK,
        **options,
    }
    return offload(folder, str(remote), **given)


def rows(path, *, remote=None, **options):
    return records_of(kseg.open_log(path, remote=remote).read(**options))
