"""What transaction coordinators say in `__transaction_state`, and which open transactions it leaves hanging.

| the coordinator's word on the producer of a transaction that a log has open | hanging                              |
|-----------------------------------------------------------------------------|--------------------------------------|
| nothing, and all of `__transaction_state` is here                           | yes                                  |
| nothing, and a part of it is missing                                        | not known                            |
| Empty, CompleteCommit, CompleteAbort, Dead                                  | yes                                  |
| Ongoing                                                                     | unless partition and epoch are its own |
| PrepareCommit, PrepareAbort, PrepareEpochFence                              | unless the partition is its own      |

Once an end is prepared the coordinator's epoch may be one ahead of the log's (KIP-890), so it does not tell anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from kseg.internal import transaction_state
from kseg.internal.framing import UNKNOWN
from kseg.internal.schema import Fields
from kseg.log.partition import Log
from kseg.log.producers import OpenTransaction
from kseg.log.replay import decode_latest, load_latest
from kseg.types import TopicPartition
from kseg.views.metadata_log import find_image
from kseg.views.places import one_each

_ONGOING: Final = "Ongoing"
_PREPARED: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass(frozen=True, slots=True)
class TransactionEntry:
    """What a coordinator says of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int
    state: str
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]
    start_ms: int
    last_update_ms: int

    @classmethod
    def of(cls, decoded: Fields) -> Self:
        """Make it of a decoded TransactionLog record."""
        value = decoded["value"]
        status = value["transactionStatus"]
        states = transaction_state.STATES
        return cls(
            decoded["key"]["transactionalId"],
            value["producerId"],
            value["producerEpoch"],
            value.get("previousProducerId", -1),
            states[status] if 0 <= status < len(states) else f"Unknown({status})",
            value["transactionTimeoutMs"],
            tuple(
                TopicPartition(of_topic["topic"], partition)
                for of_topic in value["transactionPartitions"] or ()
                for partition in of_topic["partitionIds"]
            ),
            value["transactionStartTimestampMs"],
            value["transactionLastUpdateTimestampMs"],
        )


class TransactionLog:
    """All that the coordinators say.

    Attributes:
        entries: By transactional id.
        is_complete: Whether all of `__transaction_state` was read: what it does not name does not exist.
    """

    def __init__(self, entries: Iterable[TransactionEntry], *, is_complete: bool) -> None:
        self.entries = {entry.transactional_id: entry for entry in entries}
        self.is_complete = is_complete
        # An id that a producer gave up still names who it was; but the present owner of an id comes first.
        self._by_producer = {entry.previous_producer_id: entry for entry in self.entries.values()}
        self._by_producer |= {entry.producer_id: entry for entry in self.entries.values()}

    @classmethod
    def load(cls, logs: Iterable[Log]) -> Self:
        """Read the partitions of `__transaction_state`; how many there should be, the metadata log among `logs` says.

        Without a metadata log they are taken for complete when no number is left out.
        """
        logs = list(logs)
        wanted = one_each(log for log in logs if log.topic == transaction_state.TOPIC)
        decoded = [record for _, record in decode_latest(transaction_state.TOPIC, load_latest(wanted))]
        entries = [TransactionEntry.of(record) for record in decoded if record["type"] != UNKNOWN]
        image = find_image(logs)
        topic = None if image is None else image.topics.get(transaction_state.TOPIC)
        numbers = {log.partition for log in wanted}
        expected = set(range(max(numbers, default=0) + 1)) if topic is None else set(topic.partitions)
        return cls(entries, is_complete=numbers >= expected and len(entries) == len(decoded))

    def of_producer(self, producer_id: int) -> TransactionEntry | None:
        """The transactional id that a producer id belongs to, or belonged to last."""
        return self._by_producer.get(producer_id) if producer_id >= 0 else None

    def is_hanging(self, tp: TopicPartition, found: OpenTransaction) -> bool | None:
        """Whether nobody will end a transaction that a log has open; None where that is not known."""
        entry = self.of_producer(found.producer_id)
        if entry is None:
            return True if self.is_complete else None
        if entry.producer_id != found.producer_id or tp not in entry.partitions:
            return True
        if entry.state == _ONGOING:
            return entry.producer_epoch != found.producer_epoch
        return entry.state not in _PREPARED
