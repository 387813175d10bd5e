"""One round over one partition, in this process: find the latest offset of every key, then rewrite group by group."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.compaction.config import CleanerConfig
from kseg.compaction.decode import RunDecoder
from kseg.compaction.keymap import KeyMap
from kseg.compaction.markers import TransactionRows, settle, transaction_rows
from kseg.compaction.output import CleanedSegment
from kseg.compaction.pieces import Piece, cut_segment, walk_piece
from kseg.compaction.policy import CleanableRange, group_segments
from kseg.compaction.rewrite import Rewriter, Rewritten, Rules, last_entries
from kseg.errors import FormatError
from kseg.index.producer import ProducerEntry
from kseg.index.txn import AbortedTxn
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.swap import replace_segments
from kseg.log.visibility import AbortedRanges
from kseg.native import cleaning
from kseg.native.visibility import fill_hidden
from kseg.progress import SILENT, Progress
from kseg.runner import stream_tasks

PIECE_BYTES: Final = 16 << 20


@dataclass(slots=True)
class Round:
    """What a round works on; made before anything is changed."""

    log: Log
    config: CleanerConfig
    range: CleanableRange
    now_ms: int
    producers: list[ProducerEntry]
    aborted: list[AbortedTxn]
    workers: int | None = None
    progress: Progress = SILENT
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def segments(self) -> list[Segment]:
        """The segments that the round rewrites: all below its end, clean ones too."""
        return [s for s in self.log.segments if s.base_offset < self.range.first_uncleanable]

    @property
    def groups(self) -> list[list[Segment]]:
        """What becomes one segment each."""
        return group_segments(self.segments, self.config, self.range.first_uncleanable)

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[None]:
        """Time a phase and show its progress."""
        began = time.perf_counter()
        self.progress.begin(f"{self.log.topic}-{self.log.partition} {name}", total)
        try:
            yield
        finally:
            self.progress.end()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def rules(self, parts: Sequence[TransactionRows]) -> Rules:
        """The rules of the round, once all transactions were followed."""
        clean = [s for s in self.log.segments if s.base_offset < self.range.first_dirty]
        retention = self.config.delete_retention_ms
        return Rules(
            now_ms=self.now_ms,
            upper_bound=self.range.first_uncleanable,
            new_horizon_ms=self.now_ms + retention,
            legacy_horizon_ms=clean[-1].mtime_ms - retention if clean else 0,
            transactions=settle(parts, self.aborted),
            producers=last_entries(self.producers),
        )


def start_round(
    log: Log,
    config: CleanerConfig,
    cleanable: CleanableRange,
    now_ms: int,
    *,
    workers: int | None = None,
    progress: Progress = SILENT,
) -> Round:
    """Look up what a round has to know of the whole log: live producers and aborted transactions."""
    oldest = now_ms - config.producer_id_expiration_ms
    producers = [p for p in log.producers() if p.txn_first_offset >= 0 or p.timestamp > oldest]
    first = log.segments[0].base_offset
    aborted = log.aborted_transactions(first, cleanable.first_uncleanable)
    return Round(log, config, cleanable, now_ms, producers, aborted, workers, progress)


class KeyScanner:
    """Pass 1: puts the keys of pieces into a map, and collects the transactional batches on the way."""

    def __init__(self, round_: Round, keys: KeyMap) -> None:
        self._round = round_
        self._keys = keys
        self._aborted = AbortedRanges.of(round_.aborted)
        self._local = threading.local()

    def __call__(self, piece: Piece) -> TransactionRows:
        """Scan one piece; a piece that is clean already has no keys to give."""
        first_dirty = self._round.range.first_dirty
        is_clean = piece.end <= first_dirty
        parts = []
        try:
            for chunk, rows in walk_piece(piece, check=not is_clean):
                parts.append(transaction_rows(chunk, rows))
                if is_clean:
                    continue
                hidden = np.empty(rows.stop, np.bool_)
                a = self._aborted
                fill_hidden(chunk.table, rows.start, rows.stop, a.producers, a.firsts, a.markers, hidden)
                for run in self._decoder().decode(chunk, rows, hidden):
                    self._keys.put(run, hidden, first_dirty)
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
        return np.concatenate(parts, axis=1) if parts else transaction_rows_of_nothing()

    def _decoder(self) -> RunDecoder:
        if not hasattr(self._local, "decoder"):
            self._local.decoder = RunDecoder()
        decoder: RunDecoder = self._local.decoder
        return decoder


def transaction_rows_of_nothing() -> TransactionRows:
    """No rows."""
    return np.empty((6, 0), np.int64)


def cut_pieces(segments: Sequence[Segment], first_dirty: int) -> list[Piece]:
    """The pieces of some segments, in order; one that is clean and dirty is cut at the border."""
    pieces: list[Piece] = []
    for segment in segments:
        for piece in cut_segment(segment, PIECE_BYTES):
            if piece.start < first_dirty < piece.end:
                pieces.append(Piece(segment, piece.start, first_dirty, piece.size // 2))
                piece = Piece(segment, first_dirty, piece.end, piece.size - piece.size // 2)
            pieces.append(piece)
    return pieces


def scan_keys(round_: Round, keys: KeyMap) -> list[TransactionRows]:
    """Pass 1 over all pieces."""
    pieces = cut_pieces(round_.segments, round_.range.first_dirty)
    parts = []
    with round_.phase("keys", sum(piece.size for piece in pieces)):
        for piece, part in zip(
            pieces, stream_tasks(KeyScanner(round_, keys), pieces, workers=round_.workers), strict=True
        ):
            parts.append(part)
            round_.progress.advance(piece.size)
    return parts


def rewrite_groups(round_: Round, keys: KeyMap, rules: Rules) -> NDArray[np.int64]:
    """Pass 2: each group becomes one segment, which takes its place before the next group is begun."""
    counts = np.zeros(cleaning.COUNTS, np.int64)
    local = threading.local()

    def rewrite(piece: Piece) -> Rewritten:
        if not hasattr(local, "rewriter"):
            local.rewriter = Rewriter(rules, keys.latest)
        result: Rewritten = local.rewriter.rewrite(piece)
        return result

    with round_.phase("rewrite", sum(segment.size for segment in round_.segments)):
        for group in round_.groups:
            pieces = [piece for segment in group for piece in cut_segment(segment, PIECE_BYTES)]
            counts += _rewrite_group(round_, group, rules, stream_tasks(rewrite, pieces, workers=round_.workers))
    return counts


def _rewrite_group(
    round_: Round, group: Sequence[Segment], rules: Rules, results: Iterator[Rewritten]
) -> NDArray[np.int64]:
    directory = Path(round_.log.directory)
    counts = np.zeros(cleaning.COUNTS, np.int64)
    output = CleanedSegment(directory, group[0].base_offset, round_.config.index_interval_bytes)
    try:
        for result in results:
            for data, table in zip(result.data, result.tables, strict=True):
                output.append(data, table)
            counts += result.counts
            round_.progress.advance(result.bytes_read)
        following = [s.base_offset for s in round_.segments if s.base_offset > group[-1].base_offset]
        end = following[0] if following else round_.range.first_uncleanable
        aborted = rules.transactions.kept_between(group[0].base_offset, end)
        output.finish(aborted, group[-1].mtime_ms)
    except BaseException:
        output.abandon()
        raise
    replace_segments(directory, [output.base_offset], [segment.base_offset for segment in group])
    return counts
