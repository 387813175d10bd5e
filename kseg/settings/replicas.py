"""Write to an internal topic of a stopped cluster: a record goes to all replicas of its partition, or nowhere.

A record in one replica of three is truncated away when the cluster starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from kseg.errors import JobError
from kseg.index.epoch import EpochStart, LeaderEpochs
from kseg.log.partition import Log, open_log
from kseg.log.writer import append_to
from kseg.settings.source import SettingsSource
from kseg.types import TopicPartition


def epochs_below(log: Log, offset: int) -> tuple[EpochStart, ...]:
    """The leader epochs that begin below an offset; one that begins at the log's end is of a write that died."""
    return LeaderEpochs(tuple(log.leader_epochs())).truncate_from_end(offset).entries


class StoppedReplicas:
    """A topic's partitions in the directories of stopped brokers.

    Args:
        logs: Those of the topic, of all directories that were given.
        partitions: How many the topic has, where no metadata log tells.

    Attributes:
        partitions: How many the topic has, None where nobody tells.
    """

    def __init__(self, topic: str, logs: Iterable[Log], source: SettingsSource, partitions: int | None = None) -> None:
        self.topic = topic
        self._replicas: dict[int, list[Log]] = {}
        for log in logs:
            self._replicas.setdefault(log.partition, []).append(log)
        self._source = source
        known = None if source.image is None else source.image.topics.get(topic)
        self.partitions = partitions if known is None else len(known.partitions)

    def refusal(self, number: int) -> str | None:
        """Why nothing can be written to a partition, None where it can."""
        replicas = self._replicas.get(number, [])
        if not replicas:
            return f"{self.topic}-{number}, which tells brokers of it, is in no directory that was given"
        missing = self._source.check_replicas(TopicPartition(self.topic, number), replicas, this_replica_only=False)
        if missing is not None:
            return f"{missing}; a record in some replicas only would be truncated away"
        return self._differences([open_log(log.directory) for log in replicas])

    def _differences(self, replicas: Sequence[Log]) -> str | None:
        """Why replicas are not the same log: one of them would be truncated to another when the cluster starts."""
        ends = {(log.end_offset, epochs_below(log, log.end_offset)) for log in replicas}
        if len(ends) == 1:
            return None
        places = ", ".join(f"{log.directory} ends at {log.end_offset}" for log in replicas)
        return f"replicas of {self.topic} differ ({places}): start the cluster, let it catch up, and stop it again"

    def groups(self) -> list[list[Log]]:
        """The replicas of each partition."""
        return list(self._replicas.values())

    def open(self, number: int) -> Log:
        """A partition as it is now; all its replicas are alike."""
        return open_log(self._replicas[number][0].directory)

    def append(self, number: int, rows: pa.Table, *, now_ms: int, hint: str | None = None) -> None:
        """Append rows to all replicas of a partition; they are durable when this returns.

        Args:
            hint: What to do where replicas differ.

        Raises:
            JobError: The replicas differ: an earlier append has reached some of them only.
        """
        replicas = self._replicas[number]
        reason = self._differences([open_log(log.directory) for log in replicas])
        if reason is not None:
            raise JobError(reason, hint=hint)
        for log in replicas:
            with append_to(log.directory, clock=lambda: now_ms / 1000) as writer:
                writer.append(rows)
