"""Pass 2: write anew what is left of a piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.compaction.decode import Payloads, Run, RunDecoder
from kseg.compaction.keymap import KeptOffsets
from kseg.compaction.markers import Transactions
from kseg.compaction.pieces import Piece, walk_piece
from kseg.errors import FormatError, UnsupportedError
from kseg.format.batch import offset_shown
from kseg.format.codec import PackFunctions
from kseg.format.file_span import FileSpan
from kseg.index.producer import ProducerEntry
from kseg.log.segment import Segment
from kseg.native import cleaning, encode, sifting, steps
from kseg.native import table as t
from kseg.native.compress import PACK_FIELDS, SCRATCH_BYTES
from kseg.native.header_reads import pread_address
from kseg.native.memory import pooled
from kseg.native.records import TOTALS
from kseg.types import Codec

LatestOffsets = Callable[[Run], NDArray[np.int64]]
Append = Callable[[t.Bytes, t.Table], None]
"""Takes batches that lie back to back in some bytes, with positions in them; the bytes may change afterwards."""
Exchange = Callable[[t.Bytes, int, t.Table], t.Bytes]
"""Takes batches that lie in so many of the first bytes of a room, which it may keep; gives one that is as large."""
_CODECS: Final = 5
OUT_BYTES: Final = 1 << 20  # what is written is handed over in parts of about this size
WRITTEN_ROWS: Final = 1000  # and of not many more batches than this


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides over batches and records in a round; see `native.cleaning`."""

    now_ms: int
    upper_bound: int
    new_horizon_ms: int
    legacy_horizon_ms: int
    transactions: Transactions
    producers: NDArray[np.int64]

    def to_array(self, segment_mtime_ms: int) -> NDArray[np.int64]:
        """The kernel's form, for one segment."""
        rules = np.zeros(cleaning.RULES, np.int64)
        rules[cleaning.NOW] = self.now_ms
        rules[cleaning.UPPER_BOUND] = self.upper_bound
        rules[cleaning.NEW_HORIZON] = self.new_horizon_ms
        rules[cleaning.CONVERT] = True
        rules[cleaning.LEGACY_DELETES_EXPIRED] = segment_mtime_ms <= self.legacy_horizon_ms
        return rules


def last_entries(producers: list[ProducerEntry]) -> NDArray[np.int64]:
    """Each producer's last entry in the log, as the kernel wants it."""
    rows = [(p.producer_id, p.epoch, p.last_offset) for p in sorted(producers, key=lambda p: p.producer_id)]
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 3).T)


@dataclass(slots=True)
class Rewritten:
    """What is left of a piece: bytes, a table of its batches with positions in them, and counts."""

    data: list[t.Bytes] = field(default_factory=list)
    tables: list[t.Table] = field(default_factory=list)
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(cleaning.COUNTS, np.int64))
    bytes_read: int = 0

    def append(self, data: t.Bytes, table: t.Table) -> None:
        """Take batches, in memory of their own."""
        held = pooled(len(data))
        held[:] = data
        self.data.append(held)
        self.tables.append(table)


def _nowhere(data: t.Bytes, table: t.Table) -> None:
    """Nothing is rewritten yet."""


class RewriteRoom:
    """Memory that a thread rewrites in, one piece after the other, whatever they are of."""

    def __init__(self) -> None:
        self.packers: dict[int, PackFunctions] = {}
        self.functions = np.zeros((_CODECS, PACK_FIELDS), np.int64)
        self.packing = np.empty(SCRATCH_BYTES, np.uint8)
        self.scratch = np.empty(0, np.uint8)
        self.out = np.empty(0, np.uint8)
        self.written, self.rebuilt = t.new_table(0), t.new_table(0)


class Rewriter:
    """Rewrites pieces by the rules of a round; one object per thread.

    Args:
        latest: Tells which records are superseded.
    """

    def __init__(
        self,
        rules: Rules,
        latest: LatestOffsets,
        decoder: RunDecoder | None = None,
        room: RewriteRoom | None = None,
    ) -> None:
        self._rules = rules
        self._latest = latest
        self._decoder = decoder or RunDecoder()
        self._room = room or RewriteRoom()
        self._filled = 0
        self._batches = 0
        self._totals = np.zeros(TOTALS, np.int64)
        self._append: Append = _nowhere
        self._exchange: Exchange | None = None

    def rewrite(self, piece: Piece, append: Append | None = None, *, exchange: Exchange | None = None) -> Rewritten:
        """Rewrite one piece.

        Args:
            append: Takes what is left, which is then not part of the result.
            exchange: Takes it instead, with the memory that it lies in.

        Raises:
            FormatError: A batch is damaged.
        """
        result = Rewritten()
        self._filled = self._batches = 0
        self._append, self._exchange = append or result.append, exchange
        rules = self._rule_array(piece.segment)
        kept = self._kept
        straight = None if kept is None else lambda span: self._rewrite_straight(span, piece, kept, rules, result)
        try:
            for chunk, rows in walk_piece(piece, room=self._decoder.room, straight=straight):
                fates, skip = self._fates(chunk.table, rows, rules)
                self._find_packers(int(cleaning.codecs_of(chunk.table, rows.start, rows.stop)))
                result.bytes_read += _size(chunk.table, rows)
                for payloads in self._decoder.unpack(chunk, rows, skip):
                    self._rewrite_payloads(payloads, fates, rules, result.counts)
            self._hand_over()
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
        return result

    def rewrite_payloads(self, segment: Segment, payloads: Payloads, append: Append) -> Rewritten:
        """Rewrite batches that are decompressed already, none of which is skipped.

        Args:
            append: Takes what is left, which is not part of the result.

        Raises:
            FormatError: A batch is damaged.
        """
        result = Rewritten(bytes_read=_size(payloads.chunk.table, payloads.rows))
        self._filled = self._batches = 0
        self._append, self._exchange = append, None
        rules = self._rule_array(segment)
        fates, _ = self._fates(payloads.chunk.table, payloads.rows, rules)
        self._find_packers(int(cleaning.codecs_of(payloads.chunk.table, payloads.rows.start, payloads.rows.stop)))
        for group in payloads.groups(OUT_BYTES):
            self._rewrite_payloads(group, fates, rules, result.counts)
        self._hand_over()
        return result

    def _rewrite_payloads(
        self, payloads: Payloads, fates: NDArray[np.int64], rules: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> None:
        self._make_room(payloads)
        rest = self._sift(payloads, fates, counts)
        if rest:
            run = self._decoder.decode_rows(payloads, rest)
            self._rewrite_run(run, fates, rules, counts)
        if self._filled >= OUT_BYTES:
            self._hand_over()

    def _rewrite_straight(
        self, span: FileSpan, piece: Piece, kept: KeptOffsets, rules: NDArray[np.int64], result: Rewritten
    ) -> bool:
        """Rewrite what kernels alone can, straight from the file; tell whether nothing of the piece is left."""
        decoder, room, own = self._decoder, self._decoder.steps, self._room
        transactions, producers = self._rules.transactions, self._rules.producers
        aborted = transactions.aborted
        cursor = span.new_cursor(sifting.CURSOR)
        status = steps.GOT
        while status not in (steps.ENDED, steps.ODD):
            cursor[sifting.FILLED], cursor[sifting.BATCHES] = self._filled, self._batches
            status = sifting.sift_file(
                pread_address(), span.descriptor, span.end, room.buffer, room.table, piece.segment.base_offset,
                decoder.arena, decoder.limit, decoder.functions.addresses, room.starts, room.ends, piece.start,
                piece.end, aborted.producers, aborted.firsts, aborted.markers, transactions.empty_markers, producers,
                producers[cleaning.LAST_ID], rules, room.fates, room.skip, kept.bits, kept.first_offset,
                own.functions, own.packing, own.scratch, own.out, OUT_BYTES, own.written, result.counts, cursor,
                self._totals,
            )  # fmt: skip
            self._filled, self._batches = int(cursor[sifting.FILLED]), int(cursor[sifting.BATCHES])
            if status == sifting.PACKERS:
                self._find_packers(int(cursor[sifting.CODECS]))
            elif status in (steps.FULL, sifting.REST):
                payloads = decoder.payloads_of(cursor)
                if status == sifting.REST:
                    run = decoder.decode_rows(payloads, payloads.rows)
                    self._rewrite_run(run, room.fates, rules, result.counts)
                    cursor[steps.ROW] = cursor[steps.READY]
                elif payloads.rows:
                    self._make_room(payloads)
            if self._filled >= OUT_BYTES:
                self._hand_over()
        left = range(int(cursor[steps.ROW]), int(cursor[steps.ROWS]))
        result.bytes_read += int(cursor[sifting.BYTES]) - (_size(room.table, left) if left else 0)
        span.move(room.table, cursor)
        return status == steps.ENDED

    @property
    def _kept(self) -> KeptOffsets | None:
        return self._latest if isinstance(self._latest, KeptOffsets) else None

    def _rule_array(self, segment: Segment) -> NDArray[np.int64]:
        return self._rules.to_array(segment.mtime_ms)

    def _fates(
        self, table: t.Table, rows: range, rules: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The fate of each batch, and whether its records are not even looked at."""
        fates, skip = np.zeros(rows.stop, np.int64), np.zeros(rows.stop, np.bool_)
        transactions, producers = self._rules.transactions, self._rules.producers
        aborted = transactions.aborted
        cleaning.fill_fates(
            table, rows.start, rows.stop, aborted.producers, aborted.firsts, aborted.markers,
            transactions.empty_markers, producers, producers[cleaning.LAST_ID], rules, fates, skip,
        )  # fmt: skip
        return fates, skip

    def _sift(self, found: Payloads, fates: NDArray[np.int64], counts: NDArray[np.int64]) -> range:
        """Rewrite usual batches where their records' offsets tell all; return the rows that are left to do."""
        kept, rows, own = self._kept, found.rows, self._room
        if kept is None:
            return rows
        row, batches, filled = sifting.sift_batches(
            found.chunk.data, found.arena, found.chunk.file_position, found.chunk.table, rows.start, rows.stop,
            found.starts, found.ends, fates, kept.bits, kept.first_offset, own.functions, own.packing, own.scratch,
            own.out, self._filled, own.written, self._batches, counts, self._totals,
        )  # fmt: skip
        self._batches, self._filled = int(batches), int(filled)
        return range(row, rows.stop)

    def _keeps(self, run: Run, fates: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        keeps = np.empty(run.count, np.bool_)
        cleaning.fill_keeps(run.chunk.table, fates, run.columns, run.count, self._latest(run), keeps, counts)
        return keeps

    def _rewrite_run(
        self, run: Run, fates: NDArray[np.int64], rules: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> None:
        table, own = run.chunk.table, self._room
        keeps = self._keeps(run, fates, counts)
        row, batches, rebuilt, filled = cleaning.rewrite_batches(
            run.chunk.data, run.arena, run.chunk.file_position, table, run.rows.start, run.rows.stop, run.starts,
            run.ends, run.columns, 0, run.count, fates, keeps, rules, own.functions, own.packing, own.scratch,
            own.out, self._filled, own.written, self._batches, own.rebuilt, counts,
        )  # fmt: skip
        if row < run.rows.stop:
            codec = Codec(int(table[t.ATTRIBUTES, row]) & t.CODEC_MASK)
            raise UnsupportedError(
                f"the {codec.label} library could not compress a batch",
                position=int(table[t.POSITION, row]),
                offset=offset_shown(table, row),
            )
        encode.write_headers(own.out, own.rebuilt, rebuilt)
        self._batches, self._filled = int(batches), int(filled)

    def _hand_over(self) -> None:
        if self._batches:
            table = self._room.written[:, : self._batches].copy()
            if self._exchange is None:
                self._append(self._room.out[: self._filled], table)
            else:
                self._room.out = self._exchange(self._room.out, self._filled, table)
            self._filled = self._batches = 0

    def _find_packers(self, codecs: int) -> None:
        for number in range(1, _CODECS):
            if codecs >> number & 1 and number not in self._room.packers:
                self._room.packers[number] = PackFunctions(Codec(number), addresses=self._room.functions[number])

    def _make_room(self, found: Payloads) -> None:
        """Room for all of some batches, however they turn out."""
        rows, own = len(found.rows), self._room
        records, out = cleaning.room_for(
            found.chunk.table, found.rows.start, found.rows.stop, found.skip, found.starts, found.ends
        )
        if own.out.size - self._filled < out or own.written.shape[1] - self._batches < rows:
            self._hand_over()
            if own.out.size < out:
                own.out = np.empty(OUT_BYTES + out + out // 4, np.uint8)
            if own.written.shape[1] < rows:
                own.written, own.rebuilt = t.new_table(WRITTEN_ROWS + rows), t.new_table(WRITTEN_ROWS + rows)
        if own.scratch.size < records:
            own.scratch = np.empty(records + records // 4, np.uint8)


def _size(table: t.Table, rows: range) -> int:
    """Bytes of rows, which lie back to back."""
    last = rows.stop - 1
    return int(table[t.POSITION, last] + table[t.SIZE, last] - table[t.POSITION, rows.start])
