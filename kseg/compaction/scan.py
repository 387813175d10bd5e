"""Pass 1: the keys of a range, and the transactional batches that are met on the way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kseg.compaction.decode import RunDecoder
from kseg.compaction.keymap import key_hashes, wanted_keys
from kseg.compaction.markers import NO_ROWS, TransactionRows, transaction_rows
from kseg.compaction.pieces import Piece, cut_segment, walk_piece
from kseg.errors import FormatError
from kseg.log.segment import Segment
from kseg.log.visibility import AbortedRanges
from kseg.native.records import OFFSET
from kseg.native.visibility import fill_hidden


class KeySink(Protocol):
    """Where keys go."""

    def put(self, hashes: NDArray[np.int64], offsets: NDArray[np.int64], wanted: NDArray[np.bool_]) -> None:
        """Take the wanted keys with their offsets; called from several threads."""


class KeyScanner:
    """Gives the keys of records that are neither aborted nor control records to a sink; any thread may call it.

    Args:
        first_offset: Records before it do not count, and what lies before it is only looked at for transactions.
    """

    def __init__(self, aborted: AbortedRanges, first_offset: int, sink: KeySink, hash_key: NDArray[np.uint64]) -> None:
        self._aborted = aborted
        self._first_offset = first_offset
        self._sink = sink
        self._hash_key = hash_key
        self._local = threading.local()

    def __call__(self, piece: Piece) -> TransactionRows:
        """Scan one piece; return its transactional and control batches.

        Raises:
            FormatError: A batch is damaged.
        """
        counts = piece.end > self._first_offset
        parts = [NO_ROWS]
        a = self._aborted
        try:
            for chunk, rows in walk_piece(piece, check=counts):
                parts.append(transaction_rows(chunk, rows))
                if not counts:
                    continue
                hidden = np.empty(rows.stop, np.bool_)
                fill_hidden(chunk.table, rows.start, rows.stop, a.producers, a.firsts, a.markers, hidden)
                for run in self._decoder.decode(chunk, rows, hidden):
                    wanted = wanted_keys(run, hidden, self._first_offset)
                    self._sink.put(key_hashes(run, self._hash_key), run.columns[OFFSET], wanted)
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
        return np.concatenate(parts, axis=1)

    @property
    def _decoder(self) -> RunDecoder:
        if not hasattr(self._local, "decoder"):
            self._local.decoder = RunDecoder()
        decoder: RunDecoder = self._local.decoder
        return decoder


def cut_pieces(segments: Sequence[Segment], border: int, piece_bytes: int) -> list[Piece]:
    """The pieces of some segments, in order; one that `border` lies in is cut there."""
    pieces: list[Piece] = []
    for segment in segments:
        for piece in cut_segment(segment, piece_bytes):
            if piece.start < border < piece.end and segment.base_offset < border:
                pieces.append(Piece(segment, piece.start, border, piece.size // 2))
                pieces.append(Piece(segment, border, piece.end, piece.size - piece.size // 2))
            else:
                pieces.append(piece)
    return pieces
