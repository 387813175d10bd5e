"""Write segments anew: with another codec or level, small ones merged, indexes rebuilt, nothing removed."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from kseg.compaction.config import CleanerConfig
from kseg.compaction.decode import Run, RunDecoder
from kseg.compaction.output import CleanedSegment
from kseg.compaction.partition import finish_interrupted, write_session
from kseg.compaction.pieces import Piece, cut_segment, walk_piece
from kseg.compaction.policy import group_segments
from kseg.compaction.report import left_alone
from kseg.compaction.rewrite import Rewritten
from kseg.compaction.tasks import Place, RewrittenFile, bundled, store_rewritten
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
from kseg.reports import Report
from kseg.runner import run_tasks, stream_tasks
from kseg.settings.select import PathLike, select_logs
from kseg.tables import Column, format_size, format_table
from kseg.types import Codec

PIECE_BYTES: Final = 16 << 20
_COLUMNS = (
    Column("PARTITION", at_least=16),
    Column("SEGMENTS", right=True),
    Column("BEFORE", right=True),
    Column("AFTER", right=True),
    Column("RATIO", right=True),
    Column("SECONDS", right=True, droppable=1),
)


@dataclass(frozen=True, slots=True)
class PartitionRepack(Report):
    """One partition; where `skipped` or `error` is set, nothing was changed and it says why."""

    topic: str
    partition: int
    path: str
    skipped: str | None = None
    error: str | None = None
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RepackReport(Report):
    """All partitions of a run."""

    partitions: tuple[PartitionRepack, ...]
    codec: str
    dry_run: bool
    seconds: float

    @property
    def done(self) -> tuple[PartitionRepack, ...]:
        """Those that were, or would be, written anew."""
        return tuple(p for p in self.partitions if p.skipped is None and p.error is None)

    def lines(self, width: int = 80) -> list[str]:
        """The report as a table, then what was left alone, and why."""
        rows = [
            (
                f"{p.topic}-{p.partition}",
                f"{p.segments_before} -> {p.segments_after}",
                format_size(p.bytes_before),
                format_size(p.bytes_after),
                f"{p.bytes_after / p.bytes_before:.2f}" if p.bytes_before else None,
                f"{p.seconds:.1f}",
            )
            for p in self.done
        ]
        table = format_table(_COLUMNS, rows, width) if rows else []
        word = "would be repacked" if self.dry_run else "repacked"
        number = f"{len(self.done)} partition{'' if len(self.done) == 1 else 's'} {word}"
        return [*table, f"{number} with {self.codec}", *left_alone(self.partitions)]


class Repacker:
    """Compresses the batches of pieces anew; one object per thread."""

    def __init__(self, codec: Codec, level: int | None) -> None:
        self._codec = codec
        self._functions = PackFunctions(codec, level)
        self._decoder = RunDecoder()
        self._out = np.empty(0, np.uint8)

    def repack(self, piece: Piece) -> Rewritten:
        """Repack one piece.

        Raises:
            FormatError: A batch is damaged.
        """
        result = Rewritten()
        try:
            for chunk, rows in walk_piece(piece, room=self._decoder.room):
                result.bytes_read += int(chunk.table[t.SIZE, rows.start : rows.stop].sum())
                for run in self._decoder.decode(chunk, rows, np.zeros(rows.stop, np.bool_)):
                    self._repack_run(run, result)
        except FormatError as error:
            raise error.with_context(path=piece.segment.path) from None
        return result

    def _repack_run(self, run: Run, result: Rewritten) -> None:
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
        result.data.append(self._out[:size].copy())
        result.tables.append(written)


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
    return store_rewritten(task.place, [repacker.repack(piece) for piece in task.pieces])


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
        segment_bytes: Neighbouring segments are merged up to this size, counted as they are.
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
                done.append(PartitionRepack(log.topic, log.partition, log.directory, skipped=refusal.reason))
                continue
            done.append(_repack(log, request))
    return RepackReport(tuple(done), chosen_codec.label, dry_run, time.perf_counter() - began)


def _repack(log: Log, request: _Request) -> PartitionRepack:
    name = log.topic, log.partition, log.directory
    try:
        return _repack_partition(log, request)
    except LockedError:
        raise
    except KsegError as error:
        return PartitionRepack(*name, error=str(error))


def _repack_partition(log: Log, request: _Request) -> PartitionRepack:
    began = time.perf_counter()
    with ExitStack() as stack:
        session = None if request.dry_run else stack.enter_context(write_session(log))
        if session is not None:
            finish_interrupted(log, session)
        sealed = log.segments[:-1]
        if not sealed:
            return PartitionRepack(log.topic, log.partition, log.directory, skipped="it has no sealed segment")
        if session is not None:
            session.begin_changes()
        groups = group_segments(sealed, request.config, log.segments[-1].base_offset)
        request.progress.begin(f"{log.topic}-{log.partition}", sum(s.size for s in sealed))
        stack.callback(request.progress.end)
        place = None
        if request.spark is not None and session is not None:
            folder = stack.enter_context(staging(Path(log.directory)))
            place = Place(folder, write_nonce(folder))
        after = sum(_repack_group(Path(log.directory), group, request, place) for group in groups)
        return PartitionRepack(
            log.topic,
            log.partition,
            log.directory,
            segments_before=len(sealed),
            segments_after=len(groups),
            bytes_before=sum(s.size for s in sealed),
            bytes_after=after,
            seconds=round(time.perf_counter() - began, 3),
        )


def _repack_group(directory: Path, group: Sequence[Segment], request: _Request, place: Place | None) -> int:
    made = _run_here(group, request) if place is None else _run_on_spark(group, request, place)
    if request.dry_run:
        size = 0
        with closing(made) as results:
            for result in results:
                size += sum(len(data) for data in result.data)
                request.progress.advance(result.bytes_read)
        return size
    output = CleanedSegment(directory, group[0].base_offset, request.config.index_interval_bytes)
    try:
        with closing(made) as results:
            for result in results:
                for data, table in zip(result.data, result.tables, strict=True):
                    output.append(data, table)
                request.progress.advance(result.bytes_read)
        aborted: list[AbortedTxn] = [txn for segment in group for txn in segment.txn_index]
        output.finish(aborted, group[-1].mtime_ms)
    except BaseException:
        output.abandon()
        raise
    replace_segments(directory, [output.base_offset], [segment.base_offset for segment in group])
    return output.size


def _run_here(group: Sequence[Segment], request: _Request) -> Generator[Rewritten]:
    local = threading.local()

    def work(piece: Piece) -> Rewritten:
        if not hasattr(local, "repacker"):
            local.repacker = Repacker(request.codec, request.level)
        result: Rewritten = local.repacker.repack(piece)
        return result

    pieces = [piece for segment in group for piece in cut_segment(segment, PIECE_BYTES)]
    return stream_tasks(work, pieces, workers=request.workers)


def _run_on_spark(group: Sequence[Segment], request: _Request, place: Place) -> Generator[Rewritten]:
    pieces = [piece for segment in group for piece in cut_segment(segment, PIECE_BYTES)]
    tasks = [RepackTask(place, bundle, request.codec, request.level) for bundle in bundled(pieces)]
    for result in run_tasks(repack_task, tasks, spark=request.spark):
        if isinstance(result, KsegError):
            raise result
        yield result.load()
