"""Find and take out the records that are to be erased, segment by segment."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg import durable
from kseg.compaction.decode import Run, RunDecoder
from kseg.compaction.markers import settle
from kseg.compaction.matching import Matcher, Search
from kseg.compaction.output import CleanedSegment
from kseg.compaction.pieces import cut_segment, walk_piece
from kseg.compaction.rewrite import Rewriter, Rules, last_entries
from kseg.compaction.tasks import File, Place
from kseg.errors import FormatError, JobError
from kseg.index.build import IndexBuilder
from kseg.index.txn import AbortedTxn
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.native import cleaning
from kseg.native import table as t
from kseg.native.records import BATCH_ROW
from kseg.storage import LocalStore, RandomFile

PIECE_BYTES: Final = 16 << 20
DIGEST_BYTES: Final = 4 << 20
ERASED: Final = cleaning.SUPERSEDED  # the same place of the counts: records that are not kept


@dataclass(frozen=True, slots=True)
class SegmentErasure:
    """What became of one segment; digests are SHA-256 of its log file."""

    base_offset: int
    records: int
    bytes_before: int
    bytes_after: int
    digest_before: str
    digest_after: str


@dataclass(frozen=True, slots=True, eq=False)
class Keeping:
    """What has to stay of a log: its end, each producer's last batch, the batches of open transactions."""

    end_offset: int
    producers: NDArray[np.int64]
    open_producers: NDArray[np.int64]
    open_firsts: NDArray[np.int64]

    @classmethod
    def of(cls, log: Log) -> Keeping:
        """Look it up."""
        producers = log.producers()
        transactions = sorted((p.producer_id, p.txn_first_offset) for p in producers if p.txn_first_offset >= 0)
        open_ = np.array(transactions, np.int64).reshape(-1, 2).T
        return cls(log.segments[-1].next_offset, last_entries(producers), open_[0].copy(), open_[1].copy())

    def until(self, end_offset: int) -> Keeping:
        """The same, but that the batch before another offset stays: the last one of a segment in a tier."""
        return dataclasses.replace(self, end_offset=end_offset)

    @property
    def rules(self) -> Rules:
        """Nothing expires, nothing is converted; the last batch stays."""
        return Rules(-1, self.end_offset, -1, -1, settle([], []), self.producers)


def count_matches(segment: Segment, search: Search) -> int:
    """How many records of a segment are meant.

    Raises:
        FormatError: A batch is damaged.
    """
    matcher, decoder, found = search.matcher(), RunDecoder(), 0
    try:
        for piece in cut_segment(segment, PIECE_BYTES):
            for chunk, rows in walk_piece(piece, room=decoder.room):
                skip = _control_rows(chunk.table, rows.stop)
                for run in decoder.decode(chunk, rows, skip):
                    found += int(matcher.matches(run, skip).sum())
    except FormatError as error:
        raise error.with_context(path=segment.path) from None
    return found


def _control_rows(table: t.Table, rows: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (table[t.MAGIC, :rows] == 2) & ((table[t.ATTRIBUTES, :rows] & t.CONTROL_BIT) != 0)
    return found


class _Eraser(Rewriter):
    """Rewrites a segment without the records that are meant, and changes no other batch."""

    def __init__(self, keeping: Keeping, matcher: Matcher) -> None:
        super().__init__(keeping.rules, lambda run: np.full(run.count, -1, np.int64))
        self._keeping = keeping
        self._matcher = matcher

    def _rule_array(self, segment: Segment) -> NDArray[np.int64]:
        rules = super()._rule_array(segment)
        rules[cleaning.CONVERT] = False
        rules[cleaning.LEGACY_DELETES_EXPIRED] = False
        return rules

    def _fates(
        self, table: t.Table, rows: range, rules: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        fates, skip = super()._fates(table, rows, rules)
        span = slice(rows.start, rows.stop)
        stays = table[t.COUNT, span] == 0  # empty already: whoever left it so needs it
        ids, firsts = self._keeping.open_producers, self._keeping.open_firsts
        if len(ids):
            places = np.minimum(np.searchsorted(ids, table[t.PRODUCER_ID, span]), len(ids) - 1)
            is_open = (ids[places] == table[t.PRODUCER_ID, span]) & (table[t.LAST_OFFSET, span] >= firsts[places])
            stays |= is_open
        fates[span] = np.where(stays, fates[span] | cleaning.RETAIN_EMPTY, fates[span])
        return fates & cleaning.RETAIN_EMPTY, np.zeros_like(skip)

    def _keeps(self, run: Run, fates: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        table = run.chunk.table
        skip = np.zeros(run.rows.stop, np.bool_)
        control = _control_rows(table, run.rows.stop)[run.columns[BATCH_ROW, : run.count]]
        keeps: NDArray[np.bool_] = control | ~self._matcher.matches(run, skip)
        counts[ERASED] += run.count - int(keeps.sum())
        return keeps


@dataclass(frozen=True, slots=True)
class EraseTask:
    """One segment to rewrite, into `.cleaned` files in a folder of its own.

    Attributes:
        aborted: The aborted transactions whose marker it has.
    """

    place: Place
    segment: Segment
    keeping: Keeping
    aborted: tuple[AbortedTxn, ...]
    index_interval_bytes: int


@dataclass(frozen=True, slots=True)
class ErasedFiles:
    """What is left of one segment, as it was when it was written: `.cleaned` files that no other attempt knows of."""

    erasure: SegmentErasure
    log: Path
    indexes: tuple[File, ...]

    def check(self) -> None:
        """Read all of it again.

        Raises:
            JobError: A file is not what the task wrote.
        """
        with LocalStore().open(str(self.log)) as file:
            is_same = file.size == self.erasure.bytes_after and _digest(file) == self.erasure.digest_after
        if not is_same:
            raise JobError("a task's file is not what the task wrote", path=str(self.log))
        for index in self.indexes:
            index.load()

    def move_to(self, target: Path) -> None:
        """Move the files, under the names that they have."""
        for path in (self.log, *(index.path for index in self.indexes)):
            durable.rename(path, target / path.name)


def erase_segment(task: EraseTask, search: Search) -> ErasedFiles:
    """Write what is left of a segment, complete and durable, and put nothing in its place yet.

    Raises:
        FormatError: A batch is damaged.
    """
    task.place.check()
    segment = task.segment
    eraser, hasher = _Eraser(task.keeping, search.matcher()), hashlib.sha256()
    builder = IndexBuilder(segment.base_offset, task.index_interval_bytes)
    output = CleanedSegment(task.place.new_folder("erased"), builder, like=Path(segment.path))

    def append(data: t.Bytes, table: t.Table) -> None:
        hasher.update(data.data)
        output.append(data, table)

    erased = 0
    try:
        for piece in cut_segment(segment, PIECE_BYTES):
            erased += int(eraser.rewrite(piece, append).counts[ERASED])
        output.finish(task.aborted, segment.mtime_ms)
    except BaseException:
        output.abandon()
        raise
    digests = digest_of(segment), hasher.hexdigest()
    erasure = SegmentErasure(segment.base_offset, erased, segment.size, output.size, *digests)
    return ErasedFiles(erasure, output.log_path, output.indexes)


def digest_of(segment: Segment) -> str:
    """SHA-256 of a segment's log file, wherever it is."""
    with segment.open() as file:
        return _digest(file)


def _digest(file: RandomFile) -> str:
    hasher, position = hashlib.sha256(), 0
    buffer = np.empty(DIGEST_BYTES, np.uint8)
    while got := file.read_into(position, buffer[: min(DIGEST_BYTES, file.size - position)]):
        hasher.update(buffer[:got].data)
        position += got
    return hasher.hexdigest()
