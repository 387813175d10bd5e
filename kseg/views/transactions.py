"""The view `transactions`: what coordinators say, beside what the logs themselves hold.

A row without a topic is the coordinator's word on one transactional id. A row with one is about a producer in a
partition: how many of its transactions the markers there have committed and aborted, and whether one is open, which
holds read_committed consumers back; `hanging` tells whether it will stay so (`transaction_log`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from kseg.internal import cluster_metadata, transaction_state
from kseg.log.partition import Log
from kseg.log.producers import OpenTransaction
from kseg.native import table as t
from kseg.types import TopicPartition
from kseg.views.columns import TIMESTAMP, list_of, to_batches, to_micros
from kseg.views.places import UNIT_BYTES, LogPlace, Unit, one_each, open_all, pack
from kseg.views.transaction_log import TransactionEntry, TransactionLog

PARTITION: Final = pa.struct([("topic", pa.string()), ("partition", pa.int32())])
SCHEMA: Final = pa.schema(
    [
        ("transactionalId", pa.string()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int16()),
        ("state", pa.string()),
        ("timeoutMs", pa.int32()),
        ("partitions", list_of(PARTITION)),
        ("start", TIMESTAMP),
        ("lastUpdate", TIMESTAMP),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("isOpen", pa.bool_()),
        ("logProducerEpoch", pa.int16()),
        ("firstOffset", pa.int64()),
        ("lastTimestamp", TIMESTAMP),
        ("hanging", pa.bool_()),
        ("committed", pa.int64()),
        ("aborted", pa.int64()),
    ]
)
_ABORT, _COMMIT = 0, 1


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """What a log holds of one producer's transactions."""

    producer_id: int
    committed: int
    aborted: int
    open: OpenTransaction | None


def producer_facts(log: Log) -> list[ProducerFacts]:
    """The transactions of a log by producer: markers are counted from batch headers, all of them."""
    counts: dict[tuple[int, int], int] = {}
    for segment in log.segments:
        with segment.open() as file:
            for chunk in segment.walk(file, end=segment.sound_size if segment.is_last else None):
                kinds = chunk.table[t.MARKER_TYPE, : chunk.rows]
                wanted = (kinds == _ABORT) | (kinds == _COMMIT)
                pairs = chunk.table[[t.PRODUCER_ID, t.MARKER_TYPE], : chunk.rows][:, wanted]
                found, numbers = np.unique(pairs, axis=1, return_counts=True)
                for (producer_id, kind), number in zip(found.T.tolist(), numbers.tolist(), strict=True):
                    counts[producer_id, kind] = counts.get((producer_id, kind), 0) + number
    still_open = {found.producer_id: found for found in log.open_transactions()}
    ids = sorted({producer_id for producer_id, _ in counts} | still_open.keys())
    return [
        ProducerFacts(pid, counts.get((pid, _COMMIT), 0), counts.get((pid, _ABORT), 0), still_open.get(pid))
        for pid in ids
    ]


@dataclass(frozen=True, slots=True)
class CoordinatorUnit:
    """The partitions of `__transaction_state`."""

    places: Sequence[LogPlace]

    def read(self) -> Iterator[pa.RecordBatch]:
        """A row for each transactional id."""
        entries = TransactionLog.load(open_all(self.places)).entries
        return to_batches(SCHEMA, (_coordinator_row(entries[name]) for name in sorted(entries)))


@dataclass(frozen=True, slots=True)
class PartitionsUnit:
    """Some partitions, and the logs that tell of their transactions' fate."""

    places: Sequence[LogPlace]
    coordinator: Sequence[LogPlace]

    def read(self) -> Iterator[pa.RecordBatch]:
        """A row for each producer of transactions in each partition."""
        # In this order, so that a transaction which runs meanwhile is known to its coordinator.
        found = [(place, log, producer_facts(log)) for place in self.places for log in open_all([place])]
        if not any(facts for _, _, facts in found):
            return iter(())
        coordinator = TransactionLog.load(open_all(self.coordinator))
        return to_batches(
            SCHEMA,
            (_partition_row(place, log, facts, coordinator) for place, log, of_log in found for facts in of_log),
        )


def plan(logs: Iterable[Log], *, unit_bytes: int = UNIT_BYTES) -> list[Unit]:
    """A unit for what coordinators say, and units of whole partitions."""
    chosen = one_each(logs)
    told_by = (transaction_state.TOPIC, cluster_metadata.TOPIC)
    coordinator = tuple(LogPlace.of(log) for log in chosen if log.topic in told_by)
    sized = ((LogPlace.of(log), sum(s.size for s in log.segments)) for log in chosen if log.topic not in told_by)
    units: list[Unit] = [PartitionsUnit(places, coordinator) for places in pack(sized, unit_bytes)]
    if any(log.topic == transaction_state.TOPIC for log in chosen):
        units.insert(0, CoordinatorUnit(coordinator))
    return units


def _coordinator_row(entry: TransactionEntry) -> dict[str, object]:
    return {
        "transactionalId": entry.transactional_id,
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "state": entry.state,
        "timeoutMs": entry.timeout_ms,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in entry.partitions],
        "start": to_micros(entry.start_ms),
        "lastUpdate": to_micros(entry.last_update_ms),
    }


def _partition_row(place: LogPlace, log: Log, facts: ProducerFacts, coordinator: TransactionLog) -> dict[str, object]:
    entry = coordinator.of_producer(facts.producer_id)
    row: dict[str, object] = {} if entry is None else _coordinator_row(entry)
    still_open = facts.open
    hanging: bool | None = False
    if still_open is not None:
        hanging = coordinator.is_hanging(TopicPartition(log.topic, log.partition), still_open)
        if hanging and not _is_still_open(place, still_open):  # it ended while we were reading
            still_open, hanging = None, False
    return row | {
        "producerId": facts.producer_id,
        "topic": log.topic,
        "partition": log.partition,
        "isOpen": still_open is not None,
        "logProducerEpoch": None if still_open is None else still_open.producer_epoch,
        "firstOffset": None if still_open is None else still_open.first_offset,
        "lastTimestamp": None if still_open is None else to_micros(still_open.last_timestamp),
        "hanging": hanging,
        "committed": facts.committed,
        "aborted": facts.aborted,
    }


def _is_still_open(place: LogPlace, found: OpenTransaction) -> bool:
    return any(
        (other.producer_id, other.first_offset) == (found.producer_id, found.first_offset)
        for other in place.open().open_transactions()
    )
