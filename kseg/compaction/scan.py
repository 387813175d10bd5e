"""Pass 1: the keys of a range, and the transactional batches that are met on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kseg.compaction.decode import Payloads, RunDecoder
from kseg.compaction.key_reader import ROOM_ENTRIES, KeyReader
from kseg.compaction.markers import NO_ROWS, TransactionRows, transaction_rows
from kseg.compaction.pieces import Piece, cut_segment, walk_piece
from kseg.errors import FormatError
from kseg.format.file_span import FileSpan
from kseg.log.segment import Segment
from kseg.log.visibility import NONE_ABORTED, AbortedRanges
from kseg.log.walk import Chunk
from kseg.native.visibility import fill_hidden


class KeySink(Protocol):
    """Where keys go."""

    def put(self, entries: NDArray[np.int64]) -> None:
        """Take keys, rows of (low hash, high hash, offset), which change later; called from several threads."""


class KeyScanner:
    """Gives the keys of records that are neither aborted nor control records to a sink; any thread may call it.

    Args:
        first_offset: Records before it do not count, and what lies before it is only looked at for transactions.
        lingering: Of these the sink gets `~offset`: other records may supersede them, they supersede none.
        decoder: Gives the one of the thread that asks.

    Attributes:
        last_offset: The last one of all batches that were scanned.
        in_order: Whether no two records that were scanned can have the same offset.
    """

    def __init__(
        self,
        aborted: AbortedRanges,
        first_offset: int,
        sink: KeySink,
        hash_key: NDArray[np.uint64],
        lingering: AbortedRanges = NONE_ABORTED,
        decoder: Callable[[], RunDecoder] = RunDecoder,
    ) -> None:
        self._aborted = aborted
        self._lingering = lingering
        self._first_offset = first_offset
        self._sink = sink
        self._hash_key = hash_key
        self._decoder = decoder
        self._local = threading.local()
        self._lock = threading.Lock()
        self.last_offset = -1
        self.in_order = True

    def __call__(self, piece: Piece) -> TransactionRows:
        """Scan one piece; return its transactional and control batches.

        Raises:
            FormatError: A batch is damaged.
        """
        counts = piece.end > self._first_offset
        parts = [NO_ROWS]
        reader = self._reader

        def scan_straight(span: FileSpan) -> bool:
            return reader.read_straight(
                span,
                piece,
                self._aborted,
                self._first_offset,
                see=lambda chunk, rows: parts.append(transaction_rows(chunk, rows)),
                put=self._sink.put,
            )

        straight = scan_straight if counts and not len(self._lingering.producers) else None
        try:
            for chunk, rows in walk_piece(piece, check=counts, room=reader.room, straight=straight):
                if not counts:
                    parts.append(transaction_rows(chunk, rows))
                    continue
                hidden, has_transactions = _hidden(chunk, rows, self._aborted)
                if has_transactions:
                    parts.append(transaction_rows(chunk, rows))
                if len(self._lingering.producers):
                    lingers = _hidden(chunk, rows, self._lingering)[0] & ~hidden
                    reader.read_lingering(chunk, rows, ~lingers, self._first_offset)
                    hidden |= lingers
                reader.read(chunk, rows, hidden, self._first_offset)
                if reader.count >= ROOM_ENTRIES:
                    self._sink.put(reader.take())
            if reader.count:
                self._sink.put(reader.take())
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
        self._note(reader)
        return np.concatenate(parts, axis=1)

    def keys_of(self, found: Payloads) -> tuple[NDArray[np.int64], bool]:
        """The keys of plain batches that are decompressed already, and whether their offsets rise.

        They do not go to the sink, and are valid until the next call in this thread.

        Raises:
            FormatError: A record is damaged.
        """
        reader = self._reader
        in_order = reader.read_payloads(found, self._first_offset)
        self._note(reader)
        return reader.take(), in_order

    def _note(self, reader: KeyReader) -> None:
        with self._lock:
            self.last_offset = max(self.last_offset, reader.last_offset)
            self.in_order = self.in_order and reader.in_order

    @property
    def _reader(self) -> KeyReader:
        if not hasattr(self._local, "reader"):
            self._local.reader = KeyReader(self._hash_key, self._decoder())
        reader: KeyReader = self._local.reader
        return reader


def _hidden(chunk: Chunk, rows: range, aborted: AbortedRanges) -> tuple[NDArray[np.bool_], bool]:
    """Which batches count for nothing, and whether there are control or transactional ones."""
    hidden = np.zeros(rows.stop, np.bool_)
    found = fill_hidden(chunk.table, rows.start, rows.stop, aborted.producers, aborted.firsts, aborted.markers, hidden)
    return hidden, found


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
