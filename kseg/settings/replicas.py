"""Write to an internal topic of a stopped cluster: a record goes to all replicas of its partition, or nowhere.

A record in one replica of three is truncated away when the cluster starts. A run that dies between two replicas is
completed by the next one (`kseg.settings.replica_journal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from kseg.errors import JobError
from kseg.log.partition import Log, open_log
from kseg.log.writer import append_to
from kseg.settings import replica_journal
from kseg.settings.replica_journal import epochs_below, plan_completion
from kseg.settings.source import SettingsSource
from kseg.types import TopicPartition


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
        now = _opened(replicas)
        reason = self._differences(now)
        return None if reason is None or plan_completion(now) is not None else reason

    def _differences(self, replicas: Sequence[Log]) -> str | None:
        """Why replicas are not the same log: one of them would be truncated to another when the cluster starts."""
        ends = {(log.end_offset, epochs_below(log, log.end_offset)) for log in replicas}
        if len(ends) == 1:
            return None
        places = ", ".join(f"{log.directory} ends at {log.end_offset}" for log in replicas)
        return f"replicas of {self.topic} differ ({places}): start the cluster, let it catch up, and stop it again"

    def complete(self, *, now_ms: int) -> None:
        """Append to replicas what a run that died has appended to others of them only."""
        for number in self._replicas:
            self._complete(number, now_ms)

    def _complete(self, number: int, now_ms: int) -> None:
        replicas = _opened(self._replicas[number])
        if not any(replica_journal.has_journal(log.directory) for log in replicas):
            return
        if self._differences(replicas) is not None:
            plans = plan_completion(replicas)
            if plans is None:  # who checks them next says so
                return
            for log, tail in plans:
                with append_to(log.directory, clock=lambda: now_ms / 1000) as writer:
                    for header, rows in tail:
                        writer.append(rows, leader_epoch=header.leader_epoch)
        for log in replicas:
            replica_journal.end(log.directory)

    def open(self, number: int) -> Log:
        """A partition as it is now: all its replicas are alike, or will be once they are completed."""
        return max(_opened(self._replicas[number]), key=lambda log: log.end_offset)

    def append(self, number: int, rows: pa.Table, *, now_ms: int) -> None:
        """Append rows to all replicas of a partition; they are durable when this returns.

        Raises:
            JobError: The replicas differ, and not because a run that died has reached some of them only.
        """
        self._complete(number, now_ms)
        replicas = self._replicas[number]
        reason = self._differences(_opened(replicas))
        if reason is not None:
            raise JobError(reason)
        journal = replicas[0].directory if len(replicas) > 1 and rows.num_rows else None
        if journal is not None:
            replica_journal.begin(journal, rows)
        for log in replicas:
            with append_to(log.directory, clock=lambda: now_ms / 1000) as writer:
                writer.append(rows)
        if journal is not None:
            replica_journal.end(journal)


def _opened(replicas: Iterable[Log]) -> list[Log]:
    """The same logs, as they are now."""
    return [open_log(log.directory) for log in replicas]
