"""The passes of a round on Spark. Executors share the partition's disk; only small results pass through the JVM.

Keys that fit the budget: each task writes the map of its pieces, the driver merges them into one, and the tasks of pass
2 map that file into memory. Keys that do not: they go through Spark's shuffle, sorted by hash, and what comes out is
the offsets of superseded records.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg import durable
from kseg.compaction.config import Strategy
from kseg.compaction.keymap import KeyMap, KeyMapFull, largest_map, new_hash_key
from kseg.compaction.markers import TransactionRows
from kseg.compaction.pieces import Piece, cut_segment
from kseg.compaction.rewrite import Append, Rewritten, Rules
from kseg.compaction.round import RewrittenGroup, Round
from kseg.compaction.scan import KeyScanner, cut_pieces
from kseg.compaction.spill import DroppedWriter, shared_offsets
from kseg.compaction.tasks import (
    Answers,
    Place,
    Resolved,
    ResolveTask,
    RewriteTask,
    RewrittenFile,
    ScanTask,
    bundled,
    resolve,
    rewrite,
    scan,
)
from kseg.errors import KsegError
from kseg.log.segment import Segment
from kseg.log.staging import write_nonce
from kseg.log.visibility import AbortedRanges
from kseg.progress import SILENT
from kseg.runner import run_tasks

PIECE_BYTES: Final = 16 << 20
_KEY_SCHEMA: Final = "file int, low long, high long, offset long"
_RESOLVED_SCHEMA: Final = "resolved binary"
_OUT_OF_ORDER: Final = -(2**63)  # in the place of an offset; no `~offset` is as small


class SparkPasses:
    """As `LocalPasses`, on Spark."""

    is_staged: Final = True

    def __init__(self, round_: Round, session: Any, folder: Callable[[], Path]) -> None:
        self._round = round_
        self._session = session
        path = folder()
        self._place = Place(path, write_nonce(path))
        self.strategy: Strategy = round_.keys.strategy
        self.reason = round_.keys.reason
        self.key_count = 0

    def find_keys(self, folder: Callable[[], Path]) -> tuple[Answers, list[TransactionRows]]:
        """Pass 1."""
        if self.strategy == "memory":
            try:
                return self._find_in_memory()
            except KeyMapFull:
                self.strategy = "spill"
                self.reason += "; there were more, and they did not fit"
        return self._find_by_shuffle()

    def _find_in_memory(self) -> tuple[Answers, list[TransactionRows]]:
        round_, hash_key = self._round, new_hash_key()
        first = round_.range.first_dirty
        slots = largest_map(round_.config.memory_budget)
        aborted = AbortedRanges.of([*round_.aborted, *round_.lingering])
        groups = bundled(cut_pieces(round_.segments, first, PIECE_BYTES))
        room = round_.keys.slots, round_.config.memory_budget
        tasks = [ScanTask(self._place, pieces, aborted, first, hash_key, *room) for pieces in groups]
        parts: list[TransactionRows] = []
        keys = KeyMap(slots, hash_key)
        with round_.phase("keys", sum(piece.size for pieces in groups for piece in pieces)):
            for scanned in self._run(scan, tasks, groups):
                if scanned.keys is None:
                    raise KeyMapFull
                entries = scanned.keys.load().view(np.int64).reshape(-1, 3)
                entries[:, 2] -= 1  # a slot holds the offset behind
                keys.put(entries)
                parts += scanned.transactions
        self.key_count = keys.keys
        return Answers(keys.to_file(self._place.new_file("map")), hash_key), parts

    def _find_by_shuffle(self) -> tuple[Answers, list[TransactionRows]]:
        round_, place, hash_key = self._round, self._place, new_hash_key()
        first, files = round_.segments[0].base_offset, round_.keys.files
        aborted, lingering = AbortedRanges.of(round_.aborted), AbortedRanges.of(round_.lingering)
        groups = bundled(cut_pieces(round_.segments, first, PIECE_BYTES))
        tasks = [ScanTask(place, pieces, aborted, 2**63 - 1, hash_key, 1) for pieces in groups]
        with round_.phase("keys", sum(piece.size for pieces in groups for piece in pieces)):
            parts = [rows for scanned in self._run(scan, tasks, groups) for rows in scanned.transactions]

        def emit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _emit_keys(groups[number], aborted, lingering, first, hash_key, files)

        directory = round_.log.directory
        task = ResolveTask(place, round_.range.first_dirty, files, round_.config.memory_budget)

        def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from resolved_rows(task, batches, directory)

        with round_.phase("keys", 1):
            source = self._session.range(0, len(groups), 1, len(groups))
            shuffled = source.mapInArrow(emit, _KEY_SCHEMA).repartition(files, "file")
            rows = shuffled.mapInArrow(compare, _RESOLVED_SCHEMA).collect()
        with DroppedWriter(place.new_file("dropped")) as dropped:
            for resolved in _checked([pickle.loads(row["resolved"]) for row in rows]):
                self.key_count += resolved.keys
                for offsets in resolved.dropped.load():
                    dropped.put(offsets.view(np.int64))
                durable.unlink(resolved.dropped.path)
        return Answers(dropped.file, hash_key), parts

    def rewrite(self, groups: Sequence[Sequence[Segment]], rules: Rules, latest: Answers) -> Generator[RewrittenGroup]:
        """Pass 2, group by group."""
        for group in groups:
            pieces = [piece for segment in group for piece in cut_segment(segment, PIECE_BYTES)]
            tasks = [RewriteTask(self._place, bundle, rules, latest) for bundle in bundled(pieces)]
            yield RewrittenGroup(group, partial(_load, self._run(rewrite, tasks)))

    def _run(self, work: Any, tasks: Sequence[Any], groups: Sequence[Sequence[Piece]] | None = None) -> list[Any]:
        weights = None if groups is None else [sum(piece.size for piece in pieces) for pieces in groups]
        progress = SILENT if groups is None else self._round.progress
        return _checked(run_tasks(work, tasks, spark=self._session, weights=weights, progress=progress))


def _checked(results: list[Any]) -> list[Any]:
    """The results of tasks, of which none failed."""
    for result in results:
        if isinstance(result, KsegError):
            raise result
    return results


def _load(files: Sequence[RewrittenFile], append: Append) -> Generator[Rewritten]:
    for file in files:
        yield file.load(append)


class _Rows:
    """A sink that makes rows for the shuffle."""

    def __init__(self, files: int) -> None:
        self._files = files
        self.batches: list[pa.RecordBatch] = []

    def put(self, entries: Any) -> None:
        """Take keys with their offsets, rows of (low hash, high hash, offset)."""
        file = ((entries[:, 1] & 0x7FFFFFFFFFFFFFFF) % self._files).astype(np.int32)
        columns = [file, *(entries[:, column].copy() for column in range(3))]
        self.batches.append(pa.record_batch([pa.array(c) for c in columns], names=["file", "low", "high", "offset"]))


def _emit_keys(
    pieces: Sequence[Piece], aborted: AbortedRanges, lingering: AbortedRanges, first: int, hash_key: Any, files: int
) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        rows = _Rows(files)
        scanner = KeyScanner(aborted, first, rows, hash_key, lingering)
        scanner(piece)
        if not scanner.in_order:
            rows.put(np.array([[0, 0, _OUT_OF_ORDER]], np.int64))
        yield from rows.batches


def resolved_rows(task: ResolveTask, batches: Iterator[pa.RecordBatch], directory: str) -> Iterator[pa.RecordBatch]:
    """Compare the keys of a task; its one row is what came of it, or the error that ended it."""
    first = next(batches, None)
    if first is None:
        return
    resolved: Resolved | KsegError
    try:
        resolved = resolve(task, _entries(itertools.chain([first], batches), directory))
    except KsegError as error:
        resolved = error
    yield pa.record_batch([[pickle.dumps(resolved)]], names=["resolved"])


def _entries(batches: Iterable[pa.RecordBatch], directory: str) -> Iterator[NDArray[np.int64]]:
    for batch in batches:
        entries = np.column_stack([batch.column(name).to_numpy() for name in ("low", "high", "offset")])
        if (entries[:, 2] == _OUT_OF_ORDER).any():
            raise shared_offsets(directory)
        yield entries
