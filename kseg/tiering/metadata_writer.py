"""Where the records of `__remote_log_metadata` go: into a stopped cluster's files, to a live cluster, or nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from kseg.errors import JobError, OptionError
from kseg.log.logdir import open_dir
from kseg.log.partition import Log
from kseg.settings.replicas import StoppedReplicas
from kseg.settings.select import PathLike, Selection
from kseg.settings.source import SettingsSource
from kseg.tiering.metadata_records import TOPIC, SegmentRecord, fold_records, metadata_partition, read_segment_records

_SECONDS: Final = 30.0


class MetadataTopic(Protocol):
    """What an offload needs of the metadata topic."""

    def refusal(self, topic_id: str, partition: int) -> str | None:
        """Why nothing can be written for a partition, None where it can."""

    def segments(self, topic_id: str, partition: int) -> dict[str, SegmentRecord]:
        """What the topic says of a partition's segments, by their ids."""

    def write(self, topic_id: str, partition: int, values: Sequence[bytes], *, now_ms: int) -> None:
        """Write records about a partition; they, and all before them, are durable when this returns."""


def _of_partition(records: dict[str, SegmentRecord], topic_id: str, partition: int) -> dict[str, SegmentRecord]:
    return {key: found for key, found in records.items() if (found.topic_id, found.partition) == (topic_id, partition)}


@dataclass(frozen=True, slots=True)
class NoTopic:
    """No broker will ever load what is offloaded: nobody needs records."""

    def refusal(self, topic_id: str, partition: int) -> str | None:
        """See MetadataTopic."""
        return None

    def segments(self, topic_id: str, partition: int) -> dict[str, SegmentRecord]:
        """See MetadataTopic."""
        return {}

    def write(self, topic_id: str, partition: int, values: Sequence[bytes], *, now_ms: int) -> None:
        """See MetadataTopic."""


class StoppedTopic:
    """The topic's partitions in the directories of stopped brokers; records go to all replicas alike.

    Args:
        logs: Those of the topic, of all directories that were given.
        partitions: How many the topic has, where no metadata log tells.
    """

    def __init__(self, logs: Iterable[Log], source: SettingsSource, partitions: int | None = None) -> None:
        self._replicas = StoppedReplicas(TOPIC, logs, source, partitions)

    def refusal(self, topic_id: str, partition: int) -> str | None:
        """See MetadataTopic."""
        if self._replicas.partitions is None:
            return (
                f"it is not known how many partitions {TOPIC} has: give the metadata log, or their number, or archive"
            )
        return self._replicas.refusal(self._number(topic_id, partition))

    def _number(self, topic_id: str, partition: int) -> int:
        assert self._replicas.partitions is not None
        return metadata_partition(topic_id, partition, self._replicas.partitions)

    def complete(self, *, now_ms: int) -> None:
        """Append to replicas what a run that died has appended to others of them only."""
        self._replicas.complete(now_ms=now_ms)

    def segments(self, topic_id: str, partition: int) -> dict[str, SegmentRecord]:
        """See MetadataTopic."""
        replica = self._replicas.open(self._number(topic_id, partition))
        return _of_partition(read_segment_records(replica), topic_id, partition)

    def write(self, topic_id: str, partition: int, values: Sequence[bytes], *, now_ms: int) -> None:
        """See MetadataTopic."""
        rows = pa.table(
            {"value": pa.array(values, pa.binary()), "timestamp": pa.array([now_ms] * len(values), pa.int64())}
        )
        self._replicas.append(self._number(topic_id, partition), rows, now_ms=now_ms)


class LiveTopic:
    """The topic of a cluster that runs, through confluent-kafka."""

    def __init__(self, bootstrap_servers: str) -> None:
        try:
            import confluent_kafka
        except ImportError:
            raise OptionError(
                "writing to a live cluster needs confluent-kafka", hint="pip install confluent-kafka"
            ) from None
        self._kafka = confluent_kafka
        self._servers = {"bootstrap.servers": bootstrap_servers}
        self._count: int | None = None

    def _partitions(self) -> int:
        if self._count is None:
            from confluent_kafka.admin import AdminClient

            try:
                found = AdminClient({**self._servers}).list_topics(TOPIC, timeout=_SECONDS).topics[TOPIC]
            except self._kafka.KafkaException as error:
                raise JobError(f"{self._servers['bootstrap.servers']}: {error}") from None
            self._count = len(found.partitions)
        return self._count

    def refusal(self, topic_id: str, partition: int) -> str | None:
        """See MetadataTopic."""
        return None if self._partitions() else f"the cluster has no {TOPIC}: is remote storage enabled there?"

    def segments(self, topic_id: str, partition: int) -> dict[str, SegmentRecord]:
        """See MetadataTopic."""
        number = metadata_partition(topic_id, partition, self._partitions())
        consumer = self._kafka.Consumer(
            {**self._servers, "group.id": "kseg-offload", "enable.auto.commit": False, "enable.partition.eof": True}
        )
        values: list[bytes | None] = []
        try:
            consumer.assign([self._kafka.TopicPartition(TOPIC, number, 0)])
            while (message := self._next(consumer)) is not None:
                values.append(message.value())
        finally:
            consumer.close()
        return _of_partition(fold_records(values), topic_id, partition)

    def _next(self, consumer: Any) -> Any:
        message = consumer.poll(_SECONDS)
        if message is None:
            raise JobError(f"{TOPIC} was not read to its end within {_SECONDS:.0f} s")
        error = message.error()
        if error is None:
            return message
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            return None
        raise JobError(f"{TOPIC}: {error}")

    def write(self, topic_id: str, partition: int, values: Sequence[bytes], *, now_ms: int) -> None:
        """See MetadataTopic."""
        number = metadata_partition(topic_id, partition, self._partitions())
        producer = self._kafka.Producer({**self._servers, "acks": "all", "enable.idempotence": True})
        failures: list[object] = []

        def note(error: object, _: object) -> None:
            if error is not None:
                failures.append(error)

        for value in values:
            producer.produce(TOPIC, partition=number, value=value, on_delivery=note)
        if producer.flush(_SECONDS) or failures:
            raise JobError(f"{TOPIC}-{number}: records were not taken: {failures[:1] or 'no answer'}")


def choose_topic(
    chosen: Selection,
    directories: Sequence[PathLike],
    partitions: int | None,
    bootstrap_server: str | None,
    *,
    archive: bool,
) -> MetadataTopic:
    """Where the records of a job go, by what it was told; the topic's files by default beside the partitions."""
    if archive:
        return NoTopic()
    if bootstrap_server is not None:
        return LiveTopic(bootstrap_server)
    places = [os.fspath(place) for place in directories]
    places = places or sorted({str(Path(log.directory).parent) for log in chosen.logs})
    logs = {log.directory: log for place in places for log in open_dir(place).partitions if log.topic == TOPIC}
    return StoppedTopic(logs.values(), chosen.source, partitions)
