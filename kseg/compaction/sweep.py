"""Both passes in one, for compressed logs: pieces from the last to the first, each decompressed once.

The keys of all that lies behind a piece are known when it is read, so it is known which of its records stay. What is
left of it is written in memory there and then, and put aside until its turn comes in pass 2.

There is only so much memory: `room` bytes for all. Where more is expected to be left of the log, or turns out to be, a
piece gets no more than those before it left of their shares: the last pieces of a log, of which most is left, get none
of it then, and the first ones, of which little is, all that they need. A piece that gets none, or is not usual, is read
again in pass 2.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

import numpy as np

from kseg.compaction.decode import Payloads
from kseg.compaction.keymap import KeptOffsets, KeyMap, do_nothing
from kseg.compaction.lanes import Means
from kseg.compaction.markers import NO_ROWS, TransactionRows
from kseg.compaction.pieces import Piece, walk_piece
from kseg.compaction.rewrite import Rewritten, Rules
from kseg.compaction.scan import KeyScanner
from kseg.compaction.slabs import Slab
from kseg.errors import FormatError
from kseg.log.walk import Chunk
from kseg.native import table as t

MOST_PIECE_BYTES: Final = 4 << 20
MIN_PIECE_BYTES: Final = 128 << 10
ARENA_BYTES: Final = 8 << 20  # what a piece should come to: it stays in the processor's cache until it is rewritten
MOST_ARENA_BYTES: Final = 16 << 20
PIECE_RECORDS: Final = 1 << 16
MOST_RECORDS: Final = 1 << 18
MOST_OFFSETS: Final = 1 << 24  # of a piece: a bit for each


def piece_bytes(growth: float, record_bytes: float) -> int:
    """How large pieces are whose bytes grow so many times when they are decompressed, with so many of them a record."""
    wanted = min(ARENA_BYTES / max(growth, 1.0), PIECE_RECORDS * record_bytes)
    return min(max(int(wanted), MIN_PIECE_BYTES), MOST_PIECE_BYTES)


def _whole_piece(piece: Piece, walk: Iterator[tuple[Chunk, range]]) -> tuple[Chunk, range] | None:
    """The batches of a piece, if they are in one chunk; the walk may go on."""
    found = next(walk, None)
    if found is None:
        return None
    chunk, rows = found
    table, last = chunk.table, rows.stop - 1
    if rows.stop < chunk.rows or table[t.POSITION, last] + table[t.SIZE, last] == piece.segment.size:
        return found
    held = Chunk(chunk.data.copy(), chunk.file_position, table[:, : chunk.rows].copy(), chunk.rows)
    return (held, rows) if next(walk, None) is None else None


class Sweep:
    """Scans pieces by their number, counted from the log's end, in which order they are begun; any thread may call it.

    Args:
        pieces: In the order of the log.
        first_offset: Records before it are looked up by their keys, once all keys are known.
        room: Tells how many bytes may be put aside by now.
        expected: About how many bytes will be left of all pieces.
        means: Have a decoder and a rewriter for each thread.

    Attributes:
        aside: What is left of pieces.
    """

    def __init__(
        self,
        scanner: KeyScanner,
        keys: KeyMap,
        pieces: Sequence[Piece],
        first_offset: int,
        rules: Rules,
        room: Callable[[], int],
        expected: float,
        means: Means,
    ) -> None:
        self._scanner = scanner
        self._keys = keys
        self._pieces = pieces[::-1]
        self._first_offset = first_offset
        self._rules = rules
        self._room = room
        self._expected = expected
        self._means = means
        self._shares = np.cumsum([piece.size for piece in self._pieces]) / max(sum(p.size for p in pieces), 1)
        self._local = threading.local()
        self._changed = threading.Condition()
        self._known = 0  # the keys of so many pieces are in the map
        self._put: set[int] = set()
        self._is_stopped = False
        self._used = 0
        self.aside: dict[Piece, Rewritten] = {}
        keys.before_growth = self._shrink

    def __call__(self, number: int) -> TransactionRows:
        """Scan a piece; return its transactional and control batches.

        Raises:
            FormatError: A batch is damaged.
            KeyMapFull: There is no room for all keys.
        """
        piece = self._pieces[number]
        try:
            if piece.start < self._first_offset or not self._sweep(number, piece):
                return self._scanner(piece)
            return NO_ROWS
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
        finally:
            self._is_put(number)

    def stop(self) -> None:
        """It is over, or some pieces will not be begun: nobody waits for their keys any more."""
        self._keys.before_growth = do_nothing
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _sweep(self, number: int, piece: Piece) -> bool:
        """Do it in one go; tell whether that could be done."""
        with closing(walk_piece(piece, room=self._means.decoder().room, most=2 * MOST_PIECE_BYTES)) as walk:
            found = _whole_piece(piece, walk)
            if found is None or not self._is_usual(*found):
                return False
            payloads = self._means.decoder().unpack_whole(*found, MOST_ARENA_BYTES)
            if payloads is None or payloads.records > MOST_RECORDS:
                return False
            kept, records = self._put_keys(number, payloads)
            if kept is not None:
                self._rewrite(number, piece, payloads, kept, records)
            for _ in walk:  # nothing comes, but the batch behind the piece is looked at: it has to follow
                pass
        return True

    def _is_usual(self, chunk: Chunk, rows: range) -> bool:
        """Whether bits can tell all of some batches, and none of them belongs to a transaction."""
        table = chunk.table[:, rows.start : rows.stop]
        is_plain = (table[t.ATTRIBUTES] & (t.TRANSACTIONAL_BIT | t.CONTROL_BIT) == 0) & (table[t.MAGIC] == 2)
        first, last = int(table[t.BASE_OFFSET, 0]), int(table[t.LAST_OFFSET, -1])
        return bool(is_plain.all()) and self._first_offset <= first <= last < first + MOST_OFFSETS

    def _put_keys(self, number: int, payloads: Payloads) -> tuple[KeptOffsets | None, int]:
        """Put the keys of a piece into the map once those behind it are there; tell which stay, of how many records."""
        entries, in_order = self._scanner.keys_of(payloads)
        table, rows = payloads.chunk.table, payloads.rows
        kept = KeptOffsets(int(table[t.BASE_OFFSET, rows.start]), int(table[t.LAST_OFFSET, rows.stop - 1]) + 1)
        with self._changed:
            self._changed.wait_for(lambda: self._known >= number or self._is_stopped)
        self._keys.put(entries, kept if in_order else None)
        self._is_put(number)
        return kept if in_order and not self._is_stopped else None, int(table[t.COUNT, rows.start : rows.stop].sum())

    def _is_put(self, number: int) -> None:
        """The keys of a piece are in the map, or never will be."""
        with self._changed:
            self._put.add(number)
            while self._known in self._put:
                self._known += 1
            self._changed.notify_all()

    def _rewrite(self, number: int, piece: Piece, payloads: Payloads, kept: KeptOffsets, records: int) -> None:
        """Put aside what is left of a piece, if there is room for it."""
        size = int(piece.size * int(np.bitwise_count(kept.bits).sum()) / max(records, 1))
        with self._changed:
            if self._used + size > self._limit(number, size):
                return
            self._used += size
        if not hasattr(self._local, "slab"):
            self._local.slab = Slab(self._means.slabs)
        slab: Slab = self._local.slab
        parts: list[tuple[t.Bytes, t.Table]] = []
        done = self._means.rewriter(self._rules, kept).rewrite_payloads(
            piece.segment, payloads, lambda data, table: parts.append((slab.store(data), table))
        )
        done.data, done.tables = [data for data, _ in parts], [table for _, table in parts]
        with self._changed:
            self._used += _held_bytes(done) - size
            self.aside[piece] = done

    def _limit(self, number: int, size: int) -> float:
        """How many bytes may lie aside with those of a piece."""
        room = self._room()
        if self._used + size <= room and self._expected <= room:
            return room
        if self._expected <= room:  # there is more than was expected: each piece has its share from now on
            self._expected = np.inf
            self._give_up(room * self._shares[number])
        return float(room * self._shares[number])

    def _shrink(self) -> None:
        """Give up what there is no room for as the map grows."""
        with self._changed:
            self._give_up(self._room())
        self._means.slabs.clear()

    def _give_up(self, most: float) -> None:
        """Have no more than so many bytes aside: the last pieces of the log go first, as slabs are filled."""
        for piece in list(self.aside):
            if self._used <= most:
                return
            self._used -= _held_bytes(self.aside.pop(piece))


def _held_bytes(done: Rewritten) -> int:
    return sum(part.nbytes for part in done.data) + sum(table.nbytes for table in done.tables)
