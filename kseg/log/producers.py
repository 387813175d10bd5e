"""Producer state of a partition, rebuilt from a snapshot and the batches behind it.

It answers what only a replay can tell: which transactions are open (they hold the last stable offset back), which were
aborted (the transaction index), and what a new producer snapshot has to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kseg.errors import LogError
from kseg.index.producer import FIELDS, ProducerEntry, format_columns, parse_columns
from kseg.index.txn import AbortedTxn, TxnIndex
from kseg.native import producers as native
from kseg.native.table import BASE_OFFSET, LAST_OFFSET, PRODUCER_ID, Table

DEFAULT_EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms
_NEW_PRODUCER: Final = (-1, -1, -1, -1, 0, -1, -1, -1)


@dataclass(frozen=True, slots=True, order=True)
class OpenTransaction:
    """A transaction that has no marker yet."""

    first_offset: int
    producer_id: int
    producer_epoch: int
    last_timestamp: int


class ProducerState:
    """Producers of one partition up to `end_offset`, moved on by rows of batch tables."""

    def __init__(self, end_offset: int = 0, columns: NDArray[np.int64] | None = None) -> None:
        self.end_offset = end_offset
        """All records below it are accounted for: the name of a snapshot that is written now."""
        columns = np.empty((FIELDS, 0), np.int64) if columns is None else columns
        self._producers = np.ascontiguousarray(columns[:, np.argsort(columns[native.PRODUCER_ID], kind="stable")])
        self._open_first = np.empty(0, np.int64)
        self._open_slots = np.empty(0, np.int64)
        self._completed: list[NDArray[np.int64]] = []
        self._aborted: list[NDArray[np.int64]] = []
        self._list_open()

    @classmethod
    def from_snapshot(cls, data: bytes, end_offset: int, path: str | None = None) -> Self:
        """Start from a producer snapshot; `end_offset` is the offset in its name.

        Raises:
            IndexFileError: The snapshot is broken.
        """
        columns = parse_columns(data, path)
        _, last = np.unique(
            columns[native.PRODUCER_ID, ::-1], return_index=True
        )  # of a repeated id the last one counts
        return cls(end_offset, columns[:, ::-1][:, last])

    def _list_open(self) -> None:
        first = self._producers[native.TXN_FIRST_OFFSET]
        slots = np.flatnonzero(first >= 0)
        slots = slots[np.argsort(first[slots], kind="stable")]
        self._open_first, self._open_slots = first[slots], slots

    def _make_slots(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Slots of the producers of rows, -1 for rows without one; producers not seen before get a slot."""
        wanted = np.unique(ids[ids >= 0])
        fresh = wanted[~self._look_up(wanted)[1]]
        if len(fresh):
            grown = np.tile(np.array(_NEW_PRODUCER, np.int64)[:, None], len(fresh))
            grown[native.PRODUCER_ID] = fresh
            grown = np.concatenate([self._producers, grown], axis=1)
            self._producers = np.ascontiguousarray(grown[:, np.argsort(grown[native.PRODUCER_ID])])
            self._list_open()
        return np.where(ids >= 0, self._look_up(ids)[0], -1)

    def add(self, table: Table, rows: int, *, first_row: int = 0, strict: bool = True) -> None:
        """Replay `rows` rows, from `first_row` on, in the order of their offsets.

        Raises:
            LogError: With `strict`, a producer wrote outside its open transaction; a broker refuses to load such a log.
                The rows are taken all the same.
        """
        if rows <= 0:
            return
        end_row = first_row + rows
        ids = table[PRODUCER_ID, first_row:end_row]
        self.end_offset = max(self.end_offset, int(table[LAST_OFFSET, end_row - 1]) + 1)
        if not (ids >= 0).any():
            return
        slots = self._make_slots(ids)
        room = np.empty(rows, np.int64)
        open_first = np.concatenate([self._open_first, room])
        open_slots = np.concatenate([self._open_slots, room])
        open_range = np.array([0, len(self._open_first)], np.int64)
        completed = np.empty((native.DONE_FIELDS, rows), np.int64)
        done, odd_row = native.fill_producers(
            table, first_row, end_row, slots, self._producers, open_first, open_slots, open_range, completed
        )
        self._list_open()
        if done:
            completed = completed[:, :done].copy()
            self._completed.append(completed)
            self._aborted.append(completed[: native.DONE_ABORTED, completed[native.DONE_ABORTED] == 1])
        if odd_row >= 0 and strict:
            message = f"producer {table[PRODUCER_ID, odd_row]} wrote outside of its open transaction"
            raise LogError(message, offset=int(table[BASE_OFFSET, odd_row]))

    @property
    def knows_any(self) -> bool:
        """Whether there is any producer."""
        return bool(self._producers.shape[1])

    def entries(self) -> list[ProducerEntry]:
        """All producers, by id."""
        return [ProducerEntry(*row) for row in self._producers.T.tolist()]

    def find(self, producer_id: int) -> ProducerEntry | None:
        """One producer, if it is known."""
        slots, known = self._look_up(np.array([producer_id], np.int64))
        return ProducerEntry(*self._producers[:, slots[0]].tolist()) if known[0] else None

    def copy(self) -> ProducerState:
        """The same producers, to try out what rows would do."""
        return ProducerState(self.end_offset, self._producers.copy())

    def only(self, producer_ids: NDArray[np.int64]) -> ProducerState:
        """A copy that knows no other producers than these, to try out what rows of theirs would do."""
        slots, known = self._look_up(np.unique(producer_ids))
        return ProducerState(self.end_offset, self._producers[:, slots[known]])

    def _look_up(self, producer_ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Slots where producers are, or would be, and which of them are known."""
        ids = self._producers[native.PRODUCER_ID]
        slots = np.searchsorted(ids, producer_ids)
        known = slots < len(ids)
        known[known] = ids[slots[known]] == producer_ids[known]
        return slots, known

    def open_transactions(self) -> list[OpenTransaction]:
        """Transactions without a marker, by first offset."""
        rows = self._producers[:, self._open_slots].T.tolist()
        return [
            OpenTransaction(
                row[native.TXN_FIRST_OFFSET], row[native.PRODUCER_ID], row[native.EPOCH], row[native.TIMESTAMP]
            )
            for row in rows
        ]

    @property
    def aborted(self) -> list[AbortedTxn]:
        """Transactions that rows added since the start, or since `take_aborted`, have aborted, by marker."""
        return list(self._aborted_index())

    def take_aborted(self) -> TxnIndex:
        """The same as an index, and forget them: called at the end of each segment, it gives that segment's index."""
        taken = self._aborted_index()
        self._aborted.clear()
        return taken

    def _aborted_index(self) -> TxnIndex:
        return TxnIndex(np.concatenate([np.empty((native.DONE_ABORTED, 0), np.int64), *self._aborted], axis=1))

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First offset of the earliest transaction that is open, or whose marker is not below the high watermark."""
        firsts = self._open_first[:1].tolist()
        for completed in self._completed:
            late = completed[native.DONE_LAST] >= high_watermark
            firsts += completed[native.DONE_FIRST, late].tolist()
        return min(firsts, default=None)

    def completed_behind(self, offset: int) -> list[int]:
        """First offsets of the transactions that rows added here have completed at or behind `offset`."""
        late = [done[native.DONE_FIRST, done[native.DONE_LAST] >= offset].tolist() for done in self._completed]
        return [first for firsts in late for first in firsts]

    def began_below(self, offset: int) -> bool:
        """Whether a transaction that is open, or that rows added here have completed, began below an offset."""
        firsts = [self._open_first[:1], *(done[native.DONE_FIRST] for done in self._completed)]
        return bool((np.concatenate(firsts) < offset).any())

    def knows_below(self, offset: int) -> bool:
        """Whether something of it may be from batches below an offset."""
        producers = self._producers
        first = producers[native.TXN_FIRST_OFFSET]
        below = (producers[native.NEWEST_OFFSET] < offset) | ((first >= 0) & (first < offset))
        return offset > 0 and bool((below | (producers[native.MARKER_EPOCH] >= 0)).any())

    def forget_completed(self, high_watermark: int) -> None:
        """Drop completed transactions whose marker is below the high watermark: it only grows."""
        kept = [completed[:, completed[native.DONE_LAST] >= high_watermark] for completed in self._completed]
        self._completed = [completed for completed in kept if completed.shape[1]]

    def expire(self, now_ms: int, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> None:
        """Drop producers that have no open transaction and have been silent for `expiration_ms`."""
        is_open = self._producers[native.TXN_FIRST_OFFSET] >= 0
        self._producers = self._producers[:, is_open | (self._producers[native.TIMESTAMP] > now_ms - expiration_ms)]
        self._list_open()

    def to_snapshot_bytes(self) -> bytes:
        """A producer snapshot of now; its name is `end_offset`."""
        return format_columns(self._producers)
