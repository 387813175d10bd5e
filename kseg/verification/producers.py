"""What a run of batches says of producers, so that runs can be looked at apart and joined afterwards.

A segment is looked at without knowing what came before it. It keeps, for each producer, how it begins and how it ends
there; `kseg.verification.history` joins these in the order of offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.errors import LogError
from kseg.index.producer import parse_columns
from kseg.log.producers import DEFAULT_EXPIRATION_MS, ProducerState
from kseg.native import table as t
from kseg.native import verify as native
from kseg.verification.findings import Findings

Numbers = NDArray[np.int64]
KINDS: Final = {
    native.SEQUENCE_GAP: ("KS406", "sequence {sequence} of producer {producer} does not follow its last"),
    native.SEQUENCE_AGAIN: ("KS407", "sequence {sequence} of producer {producer} comes again"),
    native.PRODUCER_EPOCH_FALLS: ("KS411", "epoch {epoch} of producer {producer} is below its last"),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Producers of a run of batches that ends at `end_offset`.

    Attributes:
        seen: `[SEEN_FIELDS, producer]` of `scan_sequences`: how each producer begins and ends.
        state: `[FIELDS, producer]` of a producer snapshot, as if nothing had come before; same order.
        aborted: `[4, transaction]`: producer, first offset, marker, last stable offset, as if nothing had come before.
    """

    end_offset: int
    seen: Numbers
    state: Numbers
    aborted: Numbers


class PieceBuilder:
    """Takes rows of a segment, piece by piece."""

    def __init__(self, path: str, start_offset: int, findings: Findings) -> None:
        self._path = path
        self._findings = findings
        self._begin(start_offset)

    def _begin(self, start_offset: int) -> None:
        self._state = ProducerState(start_offset)
        self._ids = np.empty(0, np.int64)
        self._seen = np.empty((native.SEEN_FIELDS, 0), np.int64)

    def add(self, table: t.Table, rows: int, holes: Numbers, first_row: int = 0) -> None:
        """Take rows; `holes` as `fill_flags` gives them."""
        table = table[:, first_row : first_row + rows]
        ids = table[t.PRODUCER_ID]
        if not (ids >= 0).any():
            return
        try:
            self._state.add(table, rows)
        except LogError as error:
            self._findings.add_error("KS408", error, self._path)
        slots = self._slots(ids)
        out = np.empty((2, rows), np.int64)
        count = native.scan_sequences(
            table, rows, slots, holes[first_row : first_row + rows], 0, DEFAULT_EXPIRATION_MS, self._seen, out
        )
        for row, kind in out[:, :count].T.tolist():
            code, text = KINDS[kind]
            detail = text.format(
                sequence=table[t.BASE_SEQUENCE, row], epoch=table[t.PRODUCER_EPOCH, row], producer=ids[row]
            )
            place = int(table[t.POSITION, row])
            self._findings.add(code, self._path, detail, position=place, offset=int(table[t.BASE_OFFSET, row]))

    def _slots(self, ids: Numbers) -> Numbers:
        fresh = np.setdiff1d(ids[ids >= 0], self._ids)
        if len(fresh):
            joined = np.concatenate([self._ids, fresh])
            order = np.argsort(joined)
            self._ids = joined[order]
            grown = np.full((native.SEEN_FIELDS, len(fresh)), -1, np.int64)
            self._seen = np.ascontiguousarray(np.concatenate([self._seen, grown], axis=1)[:, order])
        return np.where(ids >= 0, np.searchsorted(self._ids, ids), -1)

    def cut(self, end_offset: int) -> Piece:
        """End a piece, and begin the next."""
        state = parse_columns(self._state.to_snapshot_bytes())  # by producer id, as `_seen` is
        piece = Piece(end_offset, self._seen, state, self._state.take_aborted().columns)
        self._begin(end_offset)
        return piece
