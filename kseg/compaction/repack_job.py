"""Write segments anew: with another codec or level, small ones merged, indexes rebuilt, nothing removed."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from kseg.compaction.aborted import listed_aborts
from kseg.compaction.checking import check_segments
from kseg.compaction.config import CleanerConfig, check_means
from kseg.compaction.decode import Payloads, RunDecoder
from kseg.compaction.lanes import Means
from kseg.compaction.output import CleanedSegments, Roller
from kseg.compaction.partition import finish_interrupted, write_session
from kseg.compaction.pieces import Piece, cut_segment, walk_piece
from kseg.compaction.placing import placing_within, room_needed
from kseg.compaction.policy import group_segments
from kseg.compaction.repack_report import PartitionRepack, RepackReport
from kseg.compaction.rewrite import Append, Rewritten
from kseg.compaction.round import Totals
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
from kseg.native import cleaning, encode
from kseg.native import table as t
from kseg.native.compress import BLOCK_SLACK, packed_bound
from kseg.native.repacking import repack_batches
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks, spark_failures, stream_tasks
from kseg.settings.select import PathLike, select_logs
from kseg.types import Codec

PIECE_BYTES: Final = 2 << 20  # of what a thread does at a time; it may grow to many times of that
TASK_PIECE_BYTES: Final = 16 << 20  # of what a task of Spark does
WAITING_BYTES: Final = 16 << 20  # for each thread: what is ready before its turn to be written
SAMPLES: Final = 8  # pieces that tell how much room there has to be
SAMPLE_BYTES: Final = 256 << 10
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


@spark_failures()
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
        JobError: Spark failed.
    """
    began = time.perf_counter()
    chosen_codec = Codec.parse(codec)
    check_level(chosen_codec, level)
    check_means(spark, workers)
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


def _repack(log: Log, request: _Request) -> PartitionRepack:
    totals = Totals()
    try:
        return _repack_partition(log, request, totals)
    except LockedError:
        raise
    except KsegError as error:
        if request.dry_run or not totals.groups:
            return PartitionRepack(log.topic, log.partition, log.directory, error=str(error))
        before = f"{totals.segments_before} segments were repacked before, and stay so"
        return _described(log, totals, error=f"{error}; {before}")


def _described(log: Log, totals: Totals, seconds: float = 0.0, error: str | None = None) -> PartitionRepack:
    return PartitionRepack(
        log.topic,
        log.partition,
        log.directory,
        error=error,
        segments_before=totals.segments_before,
        segments_after=totals.segments_after,
        bytes_before=totals.bytes_before,
        bytes_after=totals.bytes_after,
        seconds=round(seconds, 3),
    )


def _repack_partition(log: Log, request: _Request, totals: Totals) -> PartitionRepack:
    """Repack group by group; `totals` tells of those that are in their place."""
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
        if session is None:
            _count_groups(groups, request, totals)
        else:
            _replace_groups(log, groups, request, totals)
        return _described(log, totals, time.perf_counter() - began)


def _replace_groups(log: Log, groups: Sequence[Sequence[Segment]], request: _Request, totals: Totals) -> None:
    directory = Path(log.directory)
    aborted = listed_aborts(log, [segment for group in groups for segment in group])  # before any is replaced
    room = room_needed(
        groups,
        log.segments[-1].base_offset,
        request.config,
        aborted=max(sum(len(aborted[segment.base_offset]) for segment in group) for group in groups),
        is_staged=request.spark is not None,
        ratio=_sampled_ratio(groups, request),
    )
    with ExitStack() as stack:
        place = None
        if request.spark is not None:
            folder = stack.enter_context(staging(directory))
            place = Place(folder, write_nonce(folder))
        placing = stack.enter_context(placing_within(room, directory, totals, Means(), log))
        for group in groups:
            listed = [txn for segment in group for txn in aborted[segment.base_offset]]
            placing.put(_write_group(directory, group, request, place, listed), group)


def _sampled_ratio(groups: Sequence[Sequence[Segment]], request: _Request) -> float:
    """The size of new segments to that of old ones, where a sample has it largest."""
    if len(groups) == 1:  # it makes no difference when it is replaced
        return 1.0
    repacker = Repacker(request.codec, request.level)
    pieces = [piece for group in groups for segment in group for piece in cut_segment(segment, SAMPLE_BYTES)]
    step = max(-(-len(pieces) // SAMPLES), 1)
    return max((_ratio_of(repacker, piece) for piece in pieces[::step]), default=1.0)


def _ratio_of(repacker: Repacker, piece: Piece) -> float:
    sizes: list[int] = []

    def count(data: t.Bytes, table: t.Table) -> None:
        sizes.append(len(data))

    read = repacker.repack(piece, count).bytes_read
    return sum(sizes) / max(read, 1)


def _write_group(
    directory: Path, group: Sequence[Segment], request: _Request, place: Place | None, aborted: Sequence[AbortedTxn]
) -> CleanedSegments:
    """Write what a group becomes, complete and durable; nothing is left of it after a failure."""
    into = _runs_here(group, request) if place is None else _runs_on_spark(group, request, place)
    mtime_ms = group[-1].mtime_ms
    output = CleanedSegments(directory, group[0].base_offset, request.config, aborted=aborted, mtime_ms=mtime_ms)
    try:
        _run(into, output.append, request)
        output.finish()
    except BaseException:
        output.abandon()
        raise
    return output


def _count_groups(groups: Sequence[Sequence[Segment]], request: _Request, totals: Totals) -> None:
    for group in groups:
        segments, size = _count_group(group, request, _runs_here(group, request))
        totals.add(group, np.zeros(cleaning.COUNTS, np.int64), size, segments)


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
