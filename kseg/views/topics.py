"""The view `topics`: a row for each partition that the metadata log of the cluster knows.

`underMinIsr` is null where min.insync.replicas is set neither for the topic nor for the whole cluster: the brokers' own
files decide then, and the metadata log does not hold them. Secret settings are redacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kseg.internal import cluster_metadata
from kseg.log.metadata_image import MetadataImage, PartitionImage, TopicImage
from kseg.log.metadata_log import read_image
from kseg.log.partition import Log
from kseg.views.columns import INT_LIST, TEXT_LIST, to_batches
from kseg.views.places import LogPlace, Unit, one_each

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topicId", pa.string()),
        ("partition", pa.int32()),
        ("leader", pa.int32()),
        ("leaderEpoch", pa.int32()),
        ("partitionEpoch", pa.int32()),
        ("replicas", INT_LIST),
        ("isr", INT_LIST),
        ("elr", INT_LIST),
        ("lastKnownElr", INT_LIST),
        ("removing", INT_LIST),
        ("adding", INT_LIST),
        ("directories", TEXT_LIST),
        ("underReplicated", pa.bool_()),
        ("underMinIsr", pa.bool_()),
        ("offline", pa.bool_()),
        ("minInsyncReplicas", pa.int32()),
        ("configs", pa.map_(pa.string(), pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class TopicsUnit:
    """The metadata log."""

    place: LogPlace

    def read(self) -> Iterator[pa.RecordBatch]:
        """Replay it."""
        return to_batches(SCHEMA, _rows(read_image(self.place.open())))


def plan(logs: Iterable[Log]) -> list[Unit]:
    """One unit, none where there is no `__cluster_metadata`."""
    found = one_each(log for log in logs if log.topic == cluster_metadata.TOPIC)
    return [TopicsUnit(LogPlace.of(log)) for log in found]


def _rows(image: MetadataImage) -> Iterator[dict[str, object]]:
    for name in sorted(image.topics):
        topic = image.topics[name]
        min_isr = image.min_isr(name)
        configs = sorted(image.topic_configs(name).items())
        for number in sorted(topic.partitions):
            yield _row(topic, topic.partitions[number], min_isr, configs)


def _row(
    topic: TopicImage, partition: PartitionImage, min_isr: int | None, configs: list[tuple[str, str]]
) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topicId": topic.topic_id,
        "partition": partition.partition,
        "leader": None if partition.is_offline else partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "lastKnownElr": partition.last_known_elr,
        "removing": partition.removing,
        "adding": partition.adding,
        "directories": partition.directories,
        "underReplicated": partition.is_under_replicated,
        "underMinIsr": None if min_isr is None else partition.is_under_min_isr(min_isr),
        "offline": partition.is_offline,
        "minInsyncReplicas": min_isr,
        "configs": configs,
    }
