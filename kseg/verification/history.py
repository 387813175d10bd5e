"""Producers of a whole partition: the pieces of its segments joined, and compared with snapshots and indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.index.txn import TxnIndex
from kseg.log.producers import DEFAULT_EXPIRATION_MS, OpenTransaction
from kseg.native import producers as snapshot
from kseg.native import verify as native
from kseg.verification.findings import Findings
from kseg.verification.producers import KINDS, Piece

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]
ABORT: Final = 0

# rows of `History._known`: what is known of each producer
_EPOCH: Final = 0  # of the newest batch or marker
_SEQUENCE: Final = 1  # last of the newest batch under that epoch, -1: none
_TIME: Final = 2
_HOLES: Final = 3  # gaps of the log before that batch
_LAST: Final = 4  # last offset of that batch, -1: none
_DELTA: Final = 5
_OPEN: Final = 6  # first offset of the open transaction
_FIELDS: Final = 7


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets `[start, end)` of a segment; dense: no batch is missing from it."""

    start: int
    end: int
    dense: bool


class History:
    """Producers at the end of what was joined so far; nothing that lies before the first segment is known."""

    def __init__(self, start_offset: int, log_start: int, findings: Findings) -> None:
        self._ids = np.empty(0, np.int64)
        self._known = np.empty((_FIELDS, 0), np.int64)
        self._findings = findings
        self._start = start_offset
        self._log_start = log_start
        self._holes = 0
        self._stretches: list[Stretch] = []
        self.expected: dict[int, tuple[int, int, int]] = {}
        """Aborted transactions since `take_expected`: marker to producer, first offset, bound of the stable offset."""

    @property
    def has_producers(self) -> bool:
        """Whether any batch had a producer id."""
        return len(self._ids) > 0

    def end_segment(self, start: int, end: int, *, holes: int) -> None:
        """A segment that held `[start, end)` is joined; so many gaps were in it and behind it."""
        self._holes += holes
        self._stretches.append(Stretch(start, end, not holes))

    def join(self, piece: Piece, path: str) -> None:
        """Go on behind the next piece."""
        ids, seen, state = piece.state[snapshot.PRODUCER_ID], piece.seen, piece.state
        slots = self._make_room(ids)
        old = self._known[:, slots]
        self._follow(ids, old, seen, path)
        self._expect(ids, old, piece)
        known = self._known
        marked = seen[native.FIRST_MARKER] >= 0
        begun = np.where(old[_OPEN] >= 0, old[_OPEN], state[snapshot.TXN_FIRST_OFFSET])
        known[_OPEN, slots] = np.where(marked, state[snapshot.TXN_FIRST_OFFSET], begun)
        heard = marked | (state[snapshot.NEWEST_OFFSET] >= 0)  # of it itself: damage can make an epoch negative
        epochs = np.where(heard, state[snapshot.EPOCH], old[_EPOCH])
        fresh = (state[snapshot.NEWEST_OFFSET] >= 0) | (epochs != old[_EPOCH])  # else only markers of the same epoch
        known[_EPOCH, slots] = epochs
        for field, values in (
            (_SEQUENCE, state[snapshot.LAST_SEQUENCE]),
            (_TIME, seen[native.LAST_TIMESTAMP]),
            (_HOLES, seen[native.LAST_HOLES] + self._holes),
            (_LAST, state[snapshot.NEWEST_OFFSET]),
            (_DELTA, state[snapshot.OFFSET_DELTA]),
        ):
            known[field, slots] = np.where(fresh, values, old[field])

    def _make_room(self, ids: Numbers) -> Numbers:
        fresh = np.setdiff1d(ids, self._ids)
        if len(fresh):
            joined = np.concatenate([self._ids, fresh])
            order = np.argsort(joined)
            grown = np.full((_FIELDS, len(fresh)), -1, np.int64)
            self._ids, self._known = joined[order], np.concatenate([self._known, grown], axis=1)[:, order]
        return np.searchsorted(self._ids, ids)

    def _follow(self, ids: Numbers, old: Numbers, seen: Numbers, path: str) -> None:
        """Do the producers' first batches of a piece go on where they stood?"""
        wrote = (seen[native.FIRST_EPOCH] >= 0) & (old[_EPOCH] >= 0)
        same = (
            wrote
            & (seen[native.FIRST_EPOCH] == old[_EPOCH])
            & (old[_SEQUENCE] >= 0)
            & (seen[native.FIRST_SEQUENCE] >= 0)
        )
        ahead = (seen[native.FIRST_SEQUENCE] - old[_SEQUENCE] - 1) & native.MAX_RELATIVE
        again = same & (ahead >= 1 << 30)
        quiet = np.abs(seen[native.FIRST_TIMESTAMP].astype(float) - old[_TIME]) < DEFAULT_EXPIRATION_MS
        whole = seen[native.FIRST_HOLES] + self._holes == old[_HOLES]
        for kind, wrong in (
            (native.SEQUENCE_GAP, same & ~again & (ahead > 0) & quiet & whole),
            (native.SEQUENCE_AGAIN, again),
            (native.PRODUCER_EPOCH_FALLS, wrote & (seen[native.FIRST_EPOCH] < old[_EPOCH])),
        ):
            code, text = KINDS[kind]
            for i in np.flatnonzero(wrong).tolist():
                detail = text.format(
                    sequence=seen[native.FIRST_SEQUENCE, i], epoch=seen[native.FIRST_EPOCH, i], producer=ids[i]
                )
                self._findings.add(code, path, detail, offset=int(seen[native.FIRST_OFFSET, i]))
        for i in np.flatnonzero((old[_OPEN] >= 0) & (seen[native.FIRST_PLAIN] >= 0)).tolist():
            detail = f"producer {ids[i]} wrote outside of its open transaction"
            self._findings.add("KS408", path, detail, offset=int(seen[native.FIRST_PLAIN, i]))

    def _expect(self, ids: Numbers, old: Numbers, piece: Piece) -> None:
        """The transactions that the piece's markers abort, those that began before it included."""
        for producer, first, marker, stable in piece.aborted.T.tolist():
            self.expected[marker] = (producer, first, stable)
        seen = piece.seen
        late = (old[_OPEN] >= 0) & (seen[native.FIRST_MARKER] >= 0) & (seen[native.FIRST_MARKER_TYPE] == ABORT)
        for i in np.flatnonzero(late).tolist():
            marker = int(seen[native.FIRST_MARKER, i])
            stable = self.expected[marker][2] if marker in self.expected else marker + 1
            self.expected[marker] = (int(ids[i]), int(old[_OPEN, i]), stable)

    def compare_index(self, index: TxnIndex | None, markers: Numbers, last_offset: int, path: str) -> None:
        """Compare a segment's transaction index with the transactions that its markers abort."""
        expected, self.expected = self.expected, {}
        entries = [] if index is None else [entry for entry in index if entry.last_offset <= last_offset]
        there = set(zip(*markers.tolist(), strict=True))
        index_path = path if index is None or index.path is None else index.path
        dense = not self._holes and all(stretch.dense for stretch in self._stretches)
        for entry in entries:
            producer, first, stable = expected.pop(entry.last_offset, (-1, -1, -1))
            name = f"of producer {entry.producer_id} with a marker at {entry.last_offset}"
            if (entry.producer_id, entry.last_offset) not in there:
                self._findings.add("KS212", index_path, f"a transaction {name}", offset=entry.last_offset)
            elif producer != entry.producer_id or first < self._log_start:  # a rebuild begins at the log start
                continue
            elif entry.first_offset > first or (dense and entry.first_offset != first):
                detail = f"the transaction {name} began at {first}, not at {entry.first_offset}"
                self._findings.add("KS214", index_path, detail, offset=entry.last_offset)
            elif entry.last_stable_offset > stable:
                detail = f"the transaction {name}: at most {stable} was stable then, not {entry.last_stable_offset}"
                self._findings.add("KS214", index_path, detail, offset=entry.last_offset)
        for marker, (producer, first, _) in sorted(expected.items()):
            if first < self._log_start:
                continue
            detail = f"producer {producer} aborted what it wrote from offset {first} on, by a marker at {marker}"
            self._findings.add("KS213", index_path, detail, offset=marker)

    def compare_snapshot(self, columns: Numbers, end_offset: int, path: str) -> None:
        """Compare a producer snapshot, as columns, with what the batches below its offset say."""
        ids, last = columns[snapshot.PRODUCER_ID], columns[snapshot.NEWEST_OFFSET]
        txn, epoch = columns[snapshot.TXN_FIRST_OFFSET], columns[snapshot.EPOCH]
        slots = np.searchsorted(self._ids, ids)
        here = np.zeros(len(ids), np.bool_)
        if len(self._ids):
            slots = np.minimum(slots, len(self._ids) - 1)
            here = self._ids[slots] == ids
        known = np.full((_FIELDS, len(ids)), -1, np.int64)
        known[:, here] = self._known[:, slots[here]]
        # one that had expired and came back with a marker has no batch: its older ones are forgotten
        newer = (known[_EPOCH] > epoch) | ((known[_EPOCH] == epoch) & (known[_LAST] > last) & (last >= 0))
        same = here & (known[_LAST] == last) & (last >= 0)
        fields = [(_EPOCH, snapshot.EPOCH), (_SEQUENCE, snapshot.LAST_SEQUENCE), (_DELTA, snapshot.OFFSET_DELTA)]
        differs = np.any([known[ours] != columns[theirs] for ours, theirs in fields], axis=0)
        began = known[_OPEN]
        lost = (began >= self._log_start) & ((txn < 0) | (txn > began))
        cut = (began >= 0) & (began < self._log_start)  # a rebuild begins at the log start
        extra = (txn >= 0) & (txn != began) & ~lost & ~cut & self._dense_from(txn)
        for wrong, text in (
            (
                (last >= end_offset) | (txn >= end_offset),
                "producer {id}: offset {last} is not below the snapshot's own",
            ),
            (
                here & newer & (known[_LAST] >= self._log_start),
                "producer {id}: its newest batch ends at {last}, in the log at {ours}",
            ),
            ((last > known[_LAST]) & self._dense_at(last), "producer {id}: no batch of its ends at {last}"),
            (same & differs, "producer {id}: epoch or sequence of its batch that ends at {last} is another in the log"),
            (here & lost, "producer {id}: a transaction is open since {began}, the snapshot has {txn}"),
            (extra, "producer {id}: no transaction is open since {txn}"),
        ):
            for i in np.flatnonzero(wrong).tolist():
                detail = text.format(id=ids[i], last=last[i], ours=known[_LAST, i], began=began[i], txn=txn[i])
                self._findings.add("KS402", path, detail, offset=int(max(last[i], txn[i])))
        absent = ~np.isin(self._ids, ids) & (self._known[_OPEN] >= self._log_start)
        for i in np.flatnonzero(absent).tolist():
            detail = f"producer {self._ids[i]} has a transaction open since {self._known[_OPEN, i]}, and is not in it"
            self._findings.add("KS402", path, detail, offset=int(self._known[_OPEN, i]))

    def _dense_at(self, offsets: Numbers) -> Mask:
        """Whether each offset lies in a stretch from which no batch is missing."""
        dense = np.zeros(len(offsets), np.bool_)
        for stretch in self._stretches:
            if stretch.dense:
                dense |= (offsets >= stretch.start) & (offsets < stretch.end)
        return dense

    def _dense_from(self, offsets: Numbers) -> Mask:
        """Whether no batch is missing from each offset on."""
        start = self._start
        for stretch in self._stretches:
            if not stretch.dense:
                start = stretch.end
        return offsets >= start

    def open_transactions(self) -> list[OpenTransaction]:
        """Transactions without a marker, by first offset."""
        found = [
            OpenTransaction(
                int(self._known[_OPEN, i]), int(self._ids[i]), int(self._known[_EPOCH, i]), int(self._known[_TIME, i])
            )
            for i in np.flatnonzero(self._known[_OPEN] >= 0).tolist()
        ]
        return sorted(found)
