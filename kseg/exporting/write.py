"""A task of an export: read splits, write Parquet files into the staging directory. No row leaves the process.

Memory is bounded whatever the data: rows wait in Arrow batches until they fill a row group, all that wait together take
at most `WAITING_BYTES` and then the largest group is written, and so many files are open at a time, of which the one
that was used longest ago is closed for a new one.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kseg.errors import KsegError, OptionError, StorageError
from kseg.exporting.layout import cut_by_slot, directory_of
from kseg.exporting.manifest import ExportedFile
from kseg.exporting.settings import ExportSettings
from kseg.exporting.target import Target, open_target
from kseg.log.damage import Damage
from kseg.log.plan import Split, read_split
from kseg.log.walk import ReadOptions
from kseg.schema import CORRUPT_COLUMN
from kseg.storage import RateLimiter
from kseg.storage_arrow import arrow_errors
from kseg.types import TopicPartition

NONCE_FILE: Final = "nonce"
WAITING_BYTES: Final = 96 << 20
MAX_DIRECTORIES: Final = 10_000  # of a task: timestamps at random would make a file for each record

# Columns that hold few values; a dictionary of keys or values only costs time, and those of offsets are never used.
_REPEATING: Final = (
    "partition",
    "timestampType",
    "leaderEpoch",
    "producerId",
    "producerEpoch",
    "headers.list.element.key",
)
_PAGE_BYTES: Final = 64 << 10  # what fits the processor's cache is encoded and compressed faster
_RISING: Final = ("offset", "timestamp", "sequence")
_WITHOUT_STATISTICS: Final = ("value", "headers", CORRUPT_COLUMN)


@dataclass(frozen=True, slots=True)
class ExportTask:
    """What one task exports, and where it puts its files."""

    number: int
    splits: tuple[Split, ...]
    target: str
    staging: str
    nonce: str
    run: int
    settings: ExportSettings
    how: ReadOptions


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that a task has written; `digest` is of its last bytes."""

    file: ExportedFile
    digest: int


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task has done."""

    files: tuple[StagedFile, ...]
    rows: dict[TopicPartition, int]
    damages: tuple[Damage, ...]


def export_task(task: ExportTask) -> TaskResult:
    """Write the files of a task; an attempt that fails takes its files away, another one has names of its own."""
    target = open_target(task.target)
    _check_place(target, task)
    files = _FileSet(target, task)
    rows: Counter[TopicPartition] = Counter()
    damages: list[Damage] = []
    schema = task.settings.read_schema
    limiter = RateLimiter(task.how.max_bytes_per_second)
    try:
        for split in task.splits:
            for batch in read_split(split, schema, task.how, damages, limiter):
                rows[TopicPartition(split.topic, split.partition)] += _count_records(batch)
                for slot, piece in cut_by_slot(batch, task.settings.by):
                    files.add((split.topic, slot), piece)
        return TaskResult(files.finish(), dict(rows), tuple(damages))
    except BaseException:
        files.abandon()
        raise


def _count_records(batch: pa.RecordBatch) -> int:
    """Rows that are records; those that tell damage are none."""
    tells = CORRUPT_COLUMN in batch.schema.names
    return int(batch.column(CORRUPT_COLUMN).null_count) if tells else batch.num_rows


def _check_place(target: Target, task: ExportTask) -> None:
    """A task that does not see what the driver has put there would write to a disk of its own."""
    try:
        seen = target.read(f"{task.staging}/{NONCE_FILE}").decode("ascii", "replace")
    except StorageError as error:
        if not error.missing:
            raise
        seen = ""
    if seen != task.nonce:
        raise StorageError(
            "an executor does not see what the driver has written there",
            path=task.target,
            hint="export to a directory that all machines share, or to an object store",
        )


@dataclass(slots=True)
class _Waiting:
    """Rows of one directory that are not written yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, target: Target, place: str, path: str, settings: ExportSettings) -> None:
        self.path = path
        self.place = place
        self.rows = 0
        names = settings.columns
        self._sink = target.create(place)
        self._writer = pq.ParquetWriter(
            self._sink,
            settings.file_schema,
            compression=settings.compression,
            compression_level=settings.compression_level,
            use_dictionary=[name for name in _REPEATING if name.partition(".")[0] in names] or False,
            column_encoding={name: "DELTA_BINARY_PACKED" for name in _RISING if name in names} or None,
            data_page_size=_PAGE_BYTES,
            write_statistics=[name for name in names if name not in _WITHOUT_STATISTICS] or False,
        )

    @property
    def size(self) -> int:
        """Bytes that were written."""
        return int(self._sink.tell())

    def write(self, table: pa.Table, group_rows: int) -> None:
        """Write rows, in row groups of at most so many."""
        with arrow_errors(self.place):
            self._writer.write_table(table, row_group_size=group_rows)
        self.rows += table.num_rows

    def close(self) -> None:
        """Write the footer; the file is complete then."""
        with arrow_errors(self.place):
            self._writer.close()
            self._sink.close()

    def abandon(self) -> None:
        """Give up: what is in the file is of no use."""
        with contextlib.suppress(OSError, pa.ArrowException, KsegError):
            self._sink.close()


class _FileSet:
    """The files of a task, by the directory that they are for."""

    def __init__(self, target: Target, task: ExportTask) -> None:
        self._target = target
        self._task = task
        self._settings = task.settings
        self._schema = task.settings.file_schema
        self._attempt = uuid.uuid4().hex[:12]
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        self._waiting_bytes = 0
        self._open: dict[tuple[str, int], _OpenFile] = {}  # the one that was used last stands last
        self._made: list[str] = []
        self._done: list[StagedFile] = []

    def add(self, key: tuple[str, int], batch: pa.RecordBatch) -> None:
        """Take rows of a topic and slot."""
        waiting = self._waiting.setdefault(key, _Waiting())
        if len(self._waiting) > MAX_DIRECTORIES:
            raise OptionError(
                f"timestamps of topic {key[0]} are of more than {MAX_DIRECTORIES} different times by"
                f" {self._settings.by}",
                hint="export this topic by day, or with by=None",
            )
        size = batch.nbytes
        waiting.batches.append(batch)
        waiting.size += size
        self._waiting_bytes += size
        if waiting.size >= self._settings.row_group_bytes:
            self._write(key)
        while self._waiting_bytes > WAITING_BYTES:
            self._write(max(self._waiting, key=lambda one: self._waiting[one].size))

    def _write(self, key: tuple[str, int]) -> None:
        """Write what waits, as a rule as one row group, and close the file if it is large enough now."""
        waiting = self._waiting[key]
        table = pa.Table.from_batches(waiting.batches).select(self._schema.names)
        self._waiting_bytes -= waiting.size
        self._waiting[key] = _Waiting()
        file = self._open.pop(key, None) or self._create(key)
        self._open[key] = file
        groups = -(-waiting.size // (2 * self._settings.row_group_bytes))  # of a batch that is larger than a group
        file.write(table, -(-table.num_rows // groups))
        if file.size >= self._settings.file_bytes:
            self._close(key)

    def _create(self, key: tuple[str, int]) -> _OpenFile:
        if len(self._open) >= self._target.max_open_files:
            self._close(next(iter(self._open)))
        task = self._task
        name = f"part-{task.run:06d}-{task.number:05d}-{len(self._made):04d}-{self._attempt}"
        codec = "" if self._settings.compression == "none" else f".{self._settings.compression}"
        name = f"{name}{codec}.parquet"
        place = f"{task.staging}/{name}"
        self._made.append(place)
        path = f"{directory_of(key[0], self._settings.by, key[1])}/{name}"
        return _OpenFile(self._target, place, path, self._settings)

    def _close(self, key: tuple[str, int]) -> None:
        file = self._open.pop(key)
        try:
            file.close()
        except BaseException:
            file.abandon()
            raise
        size, digest = self._target.check(file.place)
        name = file.place.rpartition("/")[2]
        self._done.append(StagedFile(ExportedFile(name, file.path, size, file.rows), digest))

    def finish(self) -> tuple[StagedFile, ...]:
        """Write what waits and close everything."""
        for key, waiting in list(self._waiting.items()):
            if waiting.batches:
                self._write(key)
            if key in self._open:
                self._close(key)
        return tuple(self._done)

    def abandon(self) -> None:
        """Take away what was written."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        for place in self._made:
            with contextlib.suppress(KsegError):
                self._target.remove(place)
