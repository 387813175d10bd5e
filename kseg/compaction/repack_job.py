"""Write segments anew: with another codec or level, small ones merged, indexes rebuilt, nothing removed."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from kseg.compaction.aborted import listed_aborts
from kseg.compaction.checking import check_segments
from kseg.compaction.config import CleanerConfig
from kseg.compaction.decode import Payloads, RunDecoder
from kseg.compaction.output import CleanedSegments, Roller
from kseg.compaction.partition import finish_interrupted, write_session
from kseg.compaction.pieces import Piece, cut_segment, walk_piece
from kseg.compaction.policy import group_segments
from kseg.compaction.repack_report import PartitionRepack, RepackReport
from kseg.compaction.rewrite import Append, Rewritten
from kseg.compaction.snapshots import write_snapshots
from kseg.compaction.tasks import Place, RewrittenFile, bundled, store_rewritten
from kseg.compaction.turns import Turns
from kseg.errors import FormatError, KsegError, LockedError, UnsupportedError
from kseg.format.batch import offset_shown
from kseg.format.codec import PackFunctions, check_level
from kseg.index.txn import AbortedTxn
from kseg.log.lock import DirLock
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.staging import staging, write_nonce
from kseg.log.swap import replace_segments
from kseg.native import encode
from kseg.native import table as t
from kseg.native.compress import BLOCK_SLACK, packed_bound
from kseg.native.repacking import repack_batches
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks, stream_tasks
from kseg.settings.select import PathLike, select_logs
from kseg.types import Codec

PIECE_BYTES: Final = 2 << 20  # of what a thread does at a time; it may grow to many times of that
TASK_PIECE_BYTES: Final = 16 << 20  # of what a task of Spark does
WAITING_BYTES: Final = 16 << 20  # for each thread: what is ready before its turn to be written
_Into: TypeAlias = Callable[[Append], Generator[Rewritten]]
"""Repacks a group; what becomes of it goes to the function that it gets, in order."""


class Repacker:
    """Compresses the batches of pieces anew; one object per thread."""

    def __init__(self, codec: Codec, level: int | None) -> None:
        self._codec = codec
        self._functions = PackFunctions(codec, level)
        self._decoder = RunDecoder()
        self._out = np.empty(0, np.uint8)

    def repack(self, piece: Piece, append: Append) -> Rewritten:
        """Repack one piece; `append` takes what becomes of it, a run of batches at a time.

        Raises:
            FormatError: A batch is damaged.
        """
        result = Rewritten()
        try:
            for chunk, rows in walk_piece(piece, room=self._decoder.room):
                result.bytes_read += int(chunk.table[t.SIZE, rows.start : rows.stop].sum())
                for payloads in self._decoder.unpack(chunk, rows, np.zeros(rows.stop, np.bool_)):
                    self._decoder.check_records(payloads)
                    self._repack_run(payloads, append)
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
        return result

    def _repack_run(self, run: Payloads, append: Append) -> None:
        table, rows = run.chunk.table, run.rows
        sizes = int(table[t.SIZE, rows.start : rows.stop].sum())
        room = sizes + packed_bound(run.payload_bytes) + len(rows) * (t.HEADER_SIZE + BLOCK_SLACK)
        if self._out.size < room:
            self._out = np.empty(room + room // 4, np.uint8)
        written, rebuilt = t.new_table(len(rows)), t.new_table(len(rows))
        row, count, size = repack_batches(
            run.chunk.data, run.arena, run.chunk.file_position, table, rows.start, rows.stop, run.starts, run.ends,
            int(self._codec), self._functions.addresses, self._functions.scratch, self._out, written, rebuilt,
        )  # fmt: skip
        if row < rows.stop:
            raise UnsupportedError(
                f"the {self._codec.label} library could not compress a batch",
                position=int(table[t.POSITION, row]),
                offset=offset_shown(table, row),
            )
        encode.write_headers(self._out, rebuilt, count)
        append(self._out[:size], written)


@dataclass(frozen=True, slots=True)
class RepackTask:
    """Some pieces to repack in another process."""

    place: Place
    pieces: tuple[Piece, ...]
    codec: Codec
    level: int | None


def repack_task(task: RepackTask) -> RewrittenFile:
    """Repack a task's pieces into files."""
    task.place.check()
    repacker = Repacker(task.codec, task.level)
    return store_rewritten(task.place, task.pieces, repacker.repack)


@dataclass(frozen=True, slots=True)
class _Request:
    codec: Codec
    level: int | None
    config: CleanerConfig
    spark: Any
    workers: int | None
    dry_run: bool
    progress: Progress


def repack(
    path: PathLike,
    *,
    codec: Codec | str,
    level: int | None = None,
    segment_bytes: int = 1 << 30,
    index_interval_bytes: int = 4096,
    topics: Iterable[str] | None = None,
    spark: Any = None,
    workers: int | None = None,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> RepackReport:
    """Compress the batches of sealed segments with another codec or level, and merge small segments.

    Records, offsets, timestamps and producers stay as they are; batches stay batches. Control batches and legacy
    messages (magic 0 and 1) are copied.

    Args:
        path: A local log directory, a tree of them, or one partition.
        codec: none, gzip, snappy, lz4 or zstd.
        level: Of the codec; by default Kafka's.
        segment_bytes: Neighbouring segments are merged up to this size, counted as they are; where they grow beyond it,
            they become several again.
        topics: These only; by default all but internal ones.
        spark: A session to run on; None runs in threads of this process.
        dry_run: Compress, but write nothing.

    Raises:
        LockedError: A broker or another job holds the directory.
        OptionError: An argument is wrong.
    """
    began = time.perf_counter()
    chosen_codec = codec if isinstance(codec, Codec) else Codec.parse(codec)
    check_level(chosen_codec, level)
    config = CleanerConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    chosen = select_logs(path, topics, None, None, None)
    request = _Request(chosen_codec, level, config, spark, workers, dry_run, progress)
    done = []
    with ExitStack() as stack:
        if not dry_run:
            for parent in sorted({str(Path(log.directory).parent) for log in chosen.logs}):
                stack.enter_context(DirLock(parent))
        for log in chosen.logs:
            refusal = chosen.source.refuse_topic(log.topic)
            if refusal is not None:
                name = log.topic, log.partition, log.directory
                done.append(PartitionRepack(*name, skipped=refusal.reason, is_usual=refusal.is_usual))
                continue
            done.append(_repack(log, request))
    return RepackReport(tuple(done), chosen_codec.label, dry_run, time.perf_counter() - began, chosen.unread())


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What became of a group of segments."""

    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int


def _repack(log: Log, request: _Request) -> PartitionRepack:
    done: list[_Replaced] = []
    try:
        return _repack_partition(log, request, done)
    except LockedError:
        raise
    except KsegError as error:
        if request.dry_run or not done:
            return PartitionRepack(log.topic, log.partition, log.directory, error=str(error))
        before = f"{sum(group.segments_before for group in done)} segments were repacked before, and stay so"
        return _described(log, done, error=f"{error}; {before}")


def _described(log: Log, done: Sequence[_Replaced], seconds: float = 0.0, error: str | None = None) -> PartitionRepack:
    return PartitionRepack(
        log.topic,
        log.partition,
        log.directory,
        error=error,
        segments_before=sum(group.segments_before for group in done),
        segments_after=sum(group.segments_after for group in done),
        bytes_before=sum(group.bytes_before for group in done),
        bytes_after=sum(group.bytes_after for group in done),
        seconds=round(seconds, 3),
    )


def _repack_partition(log: Log, request: _Request, done: list[_Replaced]) -> PartitionRepack:
    """Repack group by group; each is told in `done` once it is in its place."""
    began = time.perf_counter()
    with ExitStack() as stack:
        session = None if request.dry_run else stack.enter_context(write_session(log))
        if session is not None:
            finish_interrupted(log, session)
        sealed = log.segments[:-1]
        if not sealed:
            name = log.topic, log.partition, log.directory
            return PartitionRepack(*name, skipped="it has no sealed segment", is_usual=True)
        if session is not None:
            session.begin_changes()
        groups = group_segments(sealed, request.config, log.segments[-1].base_offset)
        size = sum(s.size for s in sealed)
        if session is not None and len(groups) > 1:  # damage is told before the first group is replaced
            request.progress.begin(f"{log.topic}-{log.partition} check", size)
            try:
                check_segments(sealed, spark=request.spark, workers=request.workers, progress=request.progress)
            finally:
                request.progress.end()
        request.progress.begin(f"{log.topic}-{log.partition}", size)
        stack.callback(request.progress.end)
        place = None
        if request.spark is not None and session is not None:
            folder = stack.enter_context(staging(Path(log.directory)))
            place = Place(folder, write_nonce(folder))
        aborted = {} if request.dry_run else listed_aborts(log, sealed)  # of all, before the first group is replaced
        for group in groups:
            segments, bytes_after = _repack_group(log, group, request, place, aborted)
            done.append(_Replaced(len(group), segments, sum(s.size for s in group), bytes_after))
        return _described(log, done, time.perf_counter() - began)


def _repack_group(
    log: Log,
    group: Sequence[Segment],
    request: _Request,
    place: Place | None,
    aborted: Mapping[int, Sequence[AbortedTxn]],
) -> tuple[int, int]:
    """Put new segments in the place of a group; return how many there are, and their bytes."""
    into = _runs_here(group, request) if place is None else _runs_on_spark(group, request, place)
    if request.dry_run:
        return _count_group(group, request, into)
    directory = Path(log.directory)
    output = CleanedSegments(
        directory,
        group[0].base_offset,
        request.config,
        aborted=[txn for segment in group for txn in aborted[segment.base_offset]],
        mtime_ms=group[-1].mtime_ms,
    )
    try:
        _run(into, output.append, request)
        output.finish()
        bases = output.base_offsets
        write_snapshots(log, bases[1:])
    except BaseException:
        output.abandon()
        raise
    replace_segments(directory, bases, [segment.base_offset for segment in group])
    return len(bases), output.size


def _count_group(group: Sequence[Segment], request: _Request, into: _Into) -> tuple[int, int]:
    roller = Roller(group[0].base_offset, request.config)
    size = 0

    def count(data: t.Bytes, table: t.Table) -> None:
        nonlocal size
        size += len(data)
        for _ in roller.place(table):
            pass

    _run(into, count, request)
    return roller.segments, size


def _run(into: _Into, append: Append, request: _Request) -> None:
    with closing(into(append)) as results:
        for result in results:
            request.progress.advance(result.bytes_read)


def _runs_here(group: Sequence[Segment], request: _Request) -> _Into:
    local = threading.local()
    turns = Turns((request.workers or os.cpu_count() or 1) * WAITING_BYTES)

    def work(task: tuple[int, Piece]) -> Rewritten:
        number, piece = task
        if not hasattr(local, "repacker"):
            local.repacker = Repacker(request.codec, request.level)
        try:
            result: Rewritten = local.repacker.repack(piece, functools.partial(turns.put, number))
            turns.end(number)
        except BaseException:
            turns.stop()
            raise
        return result

    pieces = [piece for segment in group for piece in cut_segment(segment, PIECE_BYTES)]
    return functools.partial(turns.gather, stream_tasks(work, enumerate(pieces), workers=request.workers))


def _runs_on_spark(group: Sequence[Segment], request: _Request, place: Place) -> _Into:
    pieces = [piece for segment in group for piece in cut_segment(segment, TASK_PIECE_BYTES)]
    tasks = [RepackTask(place, bundle, request.codec, request.level) for bundle in bundled(pieces)]

    def into(append: Append) -> Generator[Rewritten]:
        for result in run_tasks(repack_task, tasks, spark=request.spark):
            if isinstance(result, KsegError):
                raise result
            yield result.load(append)

    return into
