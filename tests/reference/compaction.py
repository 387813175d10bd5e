"""A round of cleaning over decoded batches, a record at a time, with dicts: what Kafka's Cleaner decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.reference import batch as v2
from tests.reference import legacy
from tests.reference.record import LOG_APPEND_TIME, Record

ABORT, COMMIT = 0, 1


@dataclass(frozen=True)
class Transaction:
    """An aborted transaction, as a transaction index lists it."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class Producer:
    """A producer's last entry: the last offset of its last data batch, or -1 where that is a marker of `epoch`."""

    epoch: int
    last_offset: int


@dataclass(frozen=True)
class Settings:
    """What decides besides the batches."""

    now_ms: int = 0
    upper_bound: int = -1
    new_horizon_ms: int = 0
    aborted: tuple[Transaction, ...] = ()
    empty_markers: frozenset[int] = frozenset()
    producers: Mapping[int, Producer] = field(default_factory=dict)
    legacy_deletes_expired: bool = False

    @property
    def new_horizon(self) -> int | None:
        """None where the sum of clock and retention was too large, and became negative."""
        return self.new_horizon_ms if self.new_horizon_ms >= 0 else None


def is_aborted(batch: v2.Batch, aborted: Iterable[Transaction]) -> bool:
    """Whether a batch is data of an aborted transaction."""
    if batch.is_control or not batch.is_transactional:
        return False
    return any(
        txn.producer_id == batch.producer_id and txn.first_offset <= batch.last_offset <= txn.last_offset
        for txn in aborted
    )


def latest_offsets(batches: Iterable[v2.Batch], aborted: Iterable[Transaction], first: int = 0) -> dict[bytes, int]:
    """Pass 1: the latest offset of each key."""
    visible = (batch for batch in batches if not batch.is_control and not is_aborted(batch, aborted))
    return latest_of(record for batch in visible for record in batch.records if record.offset >= first)


def latest_of(records: Iterable[Record]) -> dict[bytes, int]:
    """The latest offset of each key among some records."""
    latest: dict[bytes, int] = {}
    for record in records:
        if record.key is not None:
            latest[record.key] = max(latest.get(record.key, -1), record.offset)
    return latest


def clean(batches: Iterable[bytes], latest: Mapping[bytes, int], settings: Settings) -> list[bytes]:
    """Pass 2: the batches that are left, as bytes."""
    left = ((_clean_batch if data[16] == 2 else _clean_legacy)(data, latest, settings) for data in batches)
    return [data for data in left if data is not None]


def _clean_batch(data: bytes, latest: Mapping[bytes, int], settings: Settings) -> bytes | None:
    batch = v2.read_batch(data)
    horizon = batch.delete_horizon
    expired = horizon is not None and horizon <= settings.now_ms
    is_empty_marker = batch.is_control and (not batch.records or batch.base_offset in settings.empty_markers)
    if is_aborted(batch, settings.aborted) or (is_empty_marker and expired):
        kept: list[Record] = []
    else:
        kept = [record for record in batch.records if batch.is_control or _stays(record, latest, expired)]
    if not kept:
        return _emptied(batch) if _must_stay(batch, settings) else None
    tombstones = any(record.value is None for record in kept)
    sets_horizon = horizon is None and (tombstones or is_empty_marker)
    if len(kept) == len(batch.records) and not sets_horizon:
        return data
    return _rebuilt(batch, kept, settings.new_horizon if sets_horizon else horizon)


def _clean_legacy(data: bytes, latest: Mapping[bytes, int], settings: Settings) -> bytes | None:
    """One entry of magic 0 or 1: what stays of it becomes a batch of magic 2 that has no epoch and no producer."""
    entry, records = legacy.read_message(data), legacy.read_entry(data)
    kept = [record for record in records if _stays(record, latest, settings.legacy_deletes_expired)]
    append_time = entry.timestamp_type == LOG_APPEND_TIME
    flags = v2.LAT_BIT if append_time else 0
    if not kept:
        if entry.offset + 1 != settings.upper_bound:
            return None
        first, top = records[0].offset, entry.timestamp
        fields = v2.Fields(first, entry.offset - first, -1, flags=flags, base_timestamp=-1, max_timestamp=top)
        return v2.encode_batch([], fields)
    fields = v2.Fields(kept[0].offset, None, -1, codec=entry.codec, flags=flags)
    if append_time:
        fields = replace(fields, max_timestamp=entry.timestamp)
    if settings.new_horizon is not None and any(record.value is None for record in kept):
        fields = replace(fields, flags=flags | v2.HORIZON_BIT, base_timestamp=settings.new_horizon)
    return v2.encode_batch(kept, fields)


def _stays(record: Record, latest: Mapping[bytes, int], expired: bool) -> bool:
    if record.key is None or record.offset < latest.get(record.key, -1):
        return False
    return record.value is not None or not expired


def _must_stay(batch: v2.Batch, settings: Settings) -> bool:
    if batch.last_offset + 1 == settings.upper_bound:
        return True
    entry = settings.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
    if entry is None:
        return False
    if entry.last_offset >= 0:
        return batch.last_offset == entry.last_offset
    return batch.is_control and batch.producer_epoch == entry.epoch


def _fields(batch: v2.Batch) -> v2.Fields:
    return v2.Fields(
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_offset - batch.base_offset,
        leader_epoch=batch.leader_epoch,
        codec=batch.codec,
        flags=batch.attributes & (v2.LAT_BIT | v2.TXN_BIT | v2.CONTROL_BIT),
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _emptied(batch: v2.Batch) -> bytes:
    return v2.encode_batch([], replace(_fields(batch), codec=0, base_timestamp=-1))


def _rebuilt(batch: v2.Batch, kept: list[Record], horizon: int | None) -> bytes:
    fields = _fields(batch)
    if not fields.flags & v2.LAT_BIT:
        fields = replace(fields, max_timestamp=max(record.timestamp for record in kept))
    if horizon is not None:
        fields = replace(fields, flags=fields.flags | v2.HORIZON_BIT, base_timestamp=horizon)
    return v2.encode_batch(kept, fields)


def settle_markers(
    batches: Iterable[v2.Batch], aborted: Iterable[Transaction]
) -> tuple[frozenset[int], tuple[Transaction, ...]]:
    """Offsets of markers whose transaction has no batch left, and the aborted transactions that have one."""
    waiting = sorted(aborted, key=lambda txn: (txn.first_offset, txn.last_offset))
    open_aborted: dict[int, Transaction] = {}
    seen: set[int] = set()
    committed: set[int] = set()
    empty: set[int] = set()
    kept: list[Transaction] = []
    for batch in batches:
        while waiting and waiting[0].first_offset <= batch.last_offset:
            txn = waiting.pop(0)
            if txn.producer_id not in open_aborted:
                open_aborted[txn.producer_id] = txn
                seen.discard(txn.producer_id)
        owner = batch.producer_id
        if not batch.is_control:
            if batch.is_transactional:
                (seen if owner in open_aborted else committed).add(owner)
        elif not batch.records:
            empty.add(batch.base_offset)
        elif marker_type(batch) == ABORT:
            ended = open_aborted.pop(owner, None)
            if ended is not None and owner in seen:
                kept.append(ended)
            else:
                empty.add(batch.base_offset)
        elif marker_type(batch) == COMMIT:
            if owner not in committed:
                empty.add(batch.base_offset)
            committed.discard(owner)
    return frozenset(empty), tuple(kept)


def marker_type(batch: v2.Batch) -> int:
    """The type in a control record's key."""
    key = batch.records[0].key or b""
    return int.from_bytes(key[2:4], "big")
