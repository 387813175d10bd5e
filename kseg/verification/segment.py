"""One segment, looked at in one walk: its batches, its indexes, and what its partition has to know of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.errors import FormatError, IndexFileError, UnsupportedError
from kseg.format.batch import offset_shown
from kseg.index.txn import TxnIndex
from kseg.log.markers import has_markers, unreadable_markers
from kseg.log.names import FileKind, segment_file_name
from kseg.log.segment import Segment
from kseg.log.walk import Chunk, ReadOptions
from kseg.native import table as t
from kseg.native import verify as native
from kseg.native.header_reads import pread_address, read_checked
from kseg.native.headers import scan_checksums
from kseg.storage import Entry, LocalFile, RandomFile, Store
from kseg.types import MAX_OFFSET, NO_TIMESTAMP
from kseg.verification.findings import MOST_OF_A_KIND, Finding, Findings
from kseg.verification.indexes import IndexCheck
from kseg.verification.producers import Piece, PieceBuilder
from kseg.verification.records import RecordCheck
from kseg.verification.tail import resync, tell_tail

Numbers = NDArray[np.int64]
CHUNK_BYTES: Final = 1 << 20  # small enough to stay in the processor's cache between reading and checking
ROWS: Final = (1 << 13) + 8  # the same, and no power of two: columns would share one set of that cache
BATCH_BYTES: Final = 1 << 20  # of the largest batch that is not left to the walk that takes any
CALL_BYTES: Final = 32 << 20
MOST_RESYNCS: Final = 200
MOST_EPOCH_RUNS: Final = 10_000
NO_NEXT: Final = 2**63 - 1
WRONG_OFFSETS: Final = native.OFFSETS_FALL | native.OUT_OF_SEGMENT | native.INTO_NEXT
FLAGS: Final = (
    (native.OFFSETS_FALL, "KS105", "offsets {first} to {last} do not follow {before}"),
    (native.OUT_OF_SEGMENT, "KS106", "offsets {first} to {last} do not fit the segment of base {base}"),
    (native.INTO_NEXT, "KS301", "offsets {first} to {last} reach into the next segment, of base {next_base}"),
    (native.BAD_COUNT, "KS107", "{count} records in {size} bytes, for offsets {first} to {last}"),
    (native.BAD_CODEC, "KS108", "codec number {codec} in magic {magic}"),
    (native.BAD_TIME, "KS109", "base timestamp {base_timestamp}, greatest {max_timestamp}"),
    (native.BAD_EPOCH, "KS110", "leader epoch {epoch}"),
    (native.EPOCH_FALLS, "KS501", "leader epoch {epoch} behind a greater one"),
    (native.BAD_MARKER, "KS111", "no type can be read from the control record"),
    (native.BAD_PRODUCER, "KS112", "producer {producer}, epoch {producer_epoch}, sequence {sequence}"),
)


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment to look at; it can be pickled.

    Attributes:
        next_base: Base offset of the next segment, None for the last one.
        cuts: Offsets at which the state of producers is wanted, or at which batches should begin or end.
        was_closed: Whether a clean shutdown was marked: nothing torn is expected then.
    """

    store: Store
    directory: str
    base_offset: int
    files: Mapping[FileKind, Entry]
    next_base: int | None
    cuts: tuple[int, ...]
    options: ReadOptions
    deep: bool
    was_closed: bool

    @property
    def is_last(self) -> bool:
        """Whether it is the segment that is appended to."""
        return self.next_base is None


@dataclass(slots=True)
class SegmentResult:
    """What was found in a segment, and what its partition joins with other segments."""

    base_offset: int
    path: str
    findings: list[Finding] = field(default_factory=list)
    size: int = 0
    batches: int = 0
    records: int = 0
    last_offset: int = -1
    holes: int = 0
    missing: int = 0
    is_damaged: bool = False
    unsure_holes: int = 0
    """Legacy wrappers before which offsets may be missing: only their records tell the first offset."""
    lacks_epochs: bool = False
    """Whether batches have no leader epoch: legacy ones, and those that a cleaner has made of them."""
    max_timestamp: int = NO_TIMESTAMP
    epoch_runs: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Leader epoch, first offset, last offset, byte position of the first batch."""
    pieces: list[Piece] = field(default_factory=list)
    abort_markers: Numbers = field(default_factory=lambda: np.empty((2, 0), np.int64))
    txn_index: TxnIndex | None = None
    odd_cuts: list[int] = field(default_factory=list)
    """Cuts at which no batch begins or ends."""


def verify_segment(task: SegmentTask) -> SegmentResult:
    """Look at one segment."""
    segment = Segment(task.store, task.directory, task.base_offset, task.files, task.is_last, task.options)
    return _Walk(task, segment).run()


class _Walk:
    """The walk over one segment."""

    def __init__(self, task: SegmentTask, segment: Segment) -> None:
        self.task = task
        self.segment = segment
        self.findings = Findings()
        self.result = SegmentResult(task.base_offset, segment.path)
        # Indexes are read before the log: what a broker appends meanwhile is then only in the log.
        self.indexes = IndexCheck(segment.offset_index, segment.time_index, self.findings)
        self.records = RecordCheck(segment.path, task.options.max_batch_bytes, self.findings) if task.deep else None
        self.pieces = PieceBuilder(segment.path, task.base_offset, self.findings)
        self.cuts = [cut for cut in task.cuts if cut > task.base_offset]
        self.state = np.zeros(native.WALK_FIELDS, np.int64)
        self.state[native.WALK_BASE] = task.base_offset
        self.state[native.WALK_NEXT_BASE] = NO_NEXT if task.next_base is None else task.next_base
        self.state[native.WALK_LIMIT] = min(task.base_offset + native.MAX_RELATIVE, MAX_OFFSET - 1)
        self.state[native.WALK_LAST] = task.base_offset - 1
        self.state[native.WALK_EPOCH] = -1
        # where a batch with a wrong checksum starts that ends where the walk stands: its length may lie
        self.suspect = -1
        self.suspect_end = -1
        self.markers: list[Numbers] = []

    def run(self) -> SegmentResult:
        """Walk it to its end."""
        result = self.result
        with self.segment.open() as file:
            result.size = file.size
            end = self._walk(file)
        self._read_txn_index()  # behind the log: a broker writes a marker there first
        self._look_for_indexes()
        trusted = not self.task.is_last and FileKind.OFFSET_INDEX in self.segment.files  # else both are built anew
        self.indexes.finish(sealed=trusted, damaged=result.is_damaged or end < result.size)
        result.last_offset = int(self.state[native.WALK_LAST])
        result.holes = int(self.state[native.WALK_HOLES])
        result.missing = int(self.state[native.WALK_MISSING])
        result.records = int(self.state[native.WALK_RECORDS])
        result.max_timestamp = self.indexes.max_timestamp
        for cut in self.cuts:
            result.pieces.append(self.pieces.cut(cut))
        result.pieces.append(self.pieces.cut(self.task.next_base or result.last_offset + 1))
        if self.markers:
            result.abort_markers = np.concatenate(self.markers, axis=1)
        result.findings = self.findings.list()
        return result

    def _walk_sound(self, file: RandomFile) -> int:
        """Look at batches up to the first that is not plain and sound; return where that is.

        The kernel reads a step and checks it while it is in the processor's cache. What is odd is left to the walk that
        can say what it is.
        """
        address, options = pread_address(), self.task.options
        is_plain = self.records is None and not options.drop_page_cache and options.max_bytes_per_second is None
        if not is_plain or not address or not isinstance(file, LocalFile):
            return 0
        buffer, table = np.empty(min(BATCH_BYTES, options.max_batch_bytes), np.uint8), t.new_table(ROWS)
        position, rows, is_marked = 0, 1, False
        while rows and position < file.size:
            end = min(position + CALL_BYTES, file.size)  # so that a signal is not kept waiting
            rows, position, status = read_checked(address, file.fileno(), position, end, buffer, table, 0)
            if rows:
                self._look_at(table[:, :rows])
                is_marked = is_marked or (self.state[native.WALK_CONTROLS] > 0 and has_markers(table, rows))
            if status < 0:
                break
        if is_marked:  # their bytes are gone by now
            for chunk in self.segment.walk(file, end=int(position), chunk_bytes=CHUNK_BYTES):
                self._look_at_markers(chunk, np.zeros(chunk.rows, np.bool_))
        return int(position)

    def _walk(self, file: RandomFile) -> int:
        """Look at all batches; return the byte behind the last one."""
        position = self._walk_sound(file)
        for _ in range(MOST_RESYNCS):
            walker = self.segment.walk(file, start=position, end=file.size, chunk_bytes=CHUNK_BYTES)
            try:
                for chunk in walker:
                    self._look(chunk)
                torn, problem = walker.torn_position, None
            except FormatError as error:
                torn, problem = error.position, error
            if torn is None:
                return file.size
            if isinstance(problem, UnsupportedError):
                self.findings.add_error("KS114", problem)
                position = _behind(file, torn)
                self.result.is_damaged = True
                continue
            start = torn if self.suspect_end != torn else self.suspect
            found = resync(file, self.task.options, start, self.task.base_offset, int(self.state[native.WALK_LAST]) + 1)
            if found is None:
                tell_tail(file, torn, problem, self.findings, sealed=not self.task.is_last, closed=self.task.was_closed)
                return torn
            detail = f"{found - start} bytes, up to the next sound batch at byte {found}"
            self.findings.add(
                "KS101", file.path, detail if problem is None else f"{problem.message}: {detail}", position=start
            )
            self.result.is_damaged = True
            position = found
        self.findings.add("KS113", file.path, f"given up after {MOST_RESYNCS} damaged places", position=position)
        self.result.is_damaged = True
        return position

    def _look(self, chunk: Chunk) -> None:
        skip = self._check_sums(chunk)
        table = chunk.table[:, : chunk.rows]
        if skip.any():
            self.result.batches += int(skip.sum())
            table = np.ascontiguousarray(table[:, ~skip])
        self._look_at(table)
        self._look_at_markers(chunk, skip)
        if self.records is not None:
            self.records.add(chunk, skip)

    def _look_at_markers(self, chunk: Chunk, skip: NDArray[np.bool_]) -> None:
        """Tell markers that have a type, but that a broker cannot read; those without one are told by their flag."""
        rows = np.flatnonzero(unreadable_markers(chunk) & ~skip & (chunk.table[t.MARKER_TYPE, : chunk.rows] >= 0))
        for i, row in enumerate(rows[:MOST_OF_A_KIND].tolist()):
            more = max(len(rows) - MOST_OF_A_KIND, 0) if not i else 0
            position, offset = int(chunk.table[t.POSITION, row]), offset_shown(chunk.table, row)
            detail = "the transaction marker cannot be read"
            self.findings.add("KS111", self.segment.path, detail, position=position, offset=offset, more=more)

    def _look_at(self, sound: t.Table) -> None:
        """Look at rows whose checksums are right."""
        self.result.batches += sound.shape[1]
        flags, holes = np.empty((2, sound.shape[1]), np.int64)
        before = int(self.state[native.WALK_LAST])
        flagged = native.fill_flags(sound, sound.shape[1], self.state, flags, holes)
        if self.state[native.WALK_LEGACY]:
            holes += self._count_unsure(sound, before)
        if flagged:
            self._tell_flags(sound, flags, before)
            placed = flags & WRONG_OFFSETS == 0
            sound, holes = np.ascontiguousarray(sound[:, placed]), holes[placed]
        if sound.shape[1]:
            self.indexes.add(sound)
            self._note(sound, holes, before)

    def _count_unsure(self, table: t.Table, before: int) -> Numbers:
        """How many legacy wrappers up to each row may have a hole before them."""
        is_wrapper = (table[t.MAGIC] < 2) & (table[t.ATTRIBUTES] & t.CODEC_MASK != 0)
        spans = np.diff(table[t.LAST_OFFSET], prepend=before)
        counts: Numbers = self.result.unsure_holes + np.cumsum(is_wrapper & (spans > 1))
        self.result.unsure_holes = int(counts[-1])
        return counts

    def _check_sums(self, chunk: Chunk) -> NDArray[np.bool_]:
        skip = np.zeros(chunk.rows, np.bool_)
        row = 0
        while row < chunk.rows:
            bad, computed = scan_checksums(chunk.data, chunk.file_position, chunk.table, row, chunk.rows - row)
            if bad < 0:
                break
            position, size = int(chunk.table[t.POSITION, bad]), int(chunk.table[t.SIZE, bad])
            detail = f"checksum {int(chunk.table[t.CRC, bad]):08x}, computed {int(computed):08x}"
            self.findings.add(
                "KS102", self.segment.path, detail, position=position, offset=offset_shown(chunk.table, bad)
            )
            self.suspect, self.suspect_end = position, position + size
            self.result.is_damaged = True
            skip[bad] = True
            row = int(bad) + 1
        return skip

    def _tell_flags(self, table: t.Table, flags: Numbers, before: int) -> None:
        self.result.is_damaged |= bool((flags & WRONG_OFFSETS).any())
        lasts = np.append(before, table[t.LAST_OFFSET, :-1])
        for flag, code, text in FLAGS:
            rows = np.flatnonzero(flags & flag)
            for i, row in enumerate(rows[:MOST_OF_A_KIND].tolist()):
                first, last = offset_shown(table, row), int(table[t.LAST_OFFSET, row])
                attributes = int(table[t.ATTRIBUTES, row])
                detail = text.format(
                    first=first, last=last, before=lasts[row], base=self.task.base_offset,
                    next_base=self.task.next_base, count=table[t.COUNT, row], size=table[t.SIZE, row],
                    codec=attributes & t.CODEC_MASK, magic=table[t.MAGIC, row],
                    base_timestamp=table[t.BASE_TIMESTAMP, row], max_timestamp=table[t.MAX_TIMESTAMP, row],
                    epoch=table[t.LEADER_EPOCH, row], producer=table[t.PRODUCER_ID, row],
                    producer_epoch=table[t.PRODUCER_EPOCH, row], sequence=table[t.BASE_SEQUENCE, row],
                )  # fmt: skip
                more = max(len(rows) - MOST_OF_A_KIND, 0) if not i else 0
                place = int(table[t.POSITION, row])
                self.findings.add(code, self.segment.path, detail, position=place, offset=first, more=more)

    def _note(self, table: t.Table, holes: Numbers, before: int) -> None:
        """Keep what the partition has to know of sound rows."""
        rows = table.shape[1]
        lasts = table[t.LAST_OFFSET]
        has_producers = self.state[native.WALK_PRODUCERS] > 0
        start = 0
        while self.cuts and self.cuts[0] <= lasts[-1]:
            cut = self.cuts.pop(0)
            row = int(np.searchsorted(lasts, cut))
            ended = (int(lasts[row - 1]) if row else before) + 1
            if table[t.BASE_OFFSET, row] != cut and ended != cut and self.task.is_last:
                self.result.odd_cuts.append(cut)
            self.pieces.add(table, row - start, holes, start)
            self.result.pieces.append(self.pieces.cut(cut))
            start = row
        if has_producers:
            self.pieces.add(table, rows - start, holes, start)
            aborts = (table[t.MARKER_TYPE] == 0) & (table[t.ATTRIBUTES] & t.CONTROL_BIT != 0)
            if aborts.any():
                self.markers.append(table[[t.PRODUCER_ID, t.BASE_OFFSET]][:, aborts])
        self._note_epochs(table)

    def _note_epochs(self, table: t.Table) -> None:
        epochs = table[t.LEADER_EPOCH]
        self.result.lacks_epochs |= bool(epochs.min() < 0)
        runs = self.result.epoch_runs
        edges = [0, len(epochs)]
        if self.state[native.WALK_EPOCHS]:
            edges[1:1] = (np.flatnonzero(epochs[1:] != epochs[:-1])[:MOST_EPOCH_RUNS] + 1).tolist()
        for start, end in itertools.pairwise(edges):
            epoch, last = int(epochs[start]), int(table[t.LAST_OFFSET, end - 1])
            if runs and runs[-1][0] == epoch:
                runs[-1] = (epoch, runs[-1][1], last, runs[-1][3])
            elif epoch >= 0 and len(runs) < MOST_EPOCH_RUNS:
                runs.append((epoch, int(table[t.BASE_OFFSET, start]), last, int(table[t.POSITION, start])))

    def _read_txn_index(self) -> None:
        segment, name = self.segment, segment_file_name(self.task.base_offset, FileKind.TXN_INDEX)
        if FileKind.TXN_INDEX not in segment.files and self.task.is_last:  # made with the first abort, perhaps just now
            made = self.task.store.stat(self.task.store.join(self.task.directory, name))
            if made is not None:
                segment = replace(segment, files={**segment.files, FileKind.TXN_INDEX: made})
        if FileKind.TXN_INDEX not in segment.files:
            return
        try:
            self.result.txn_index = segment.txn_index
            problems = segment.txn_index.check(self.task.base_offset)
        except IndexFileError as error:
            problems = [error]
        for problem in problems:
            self.findings.add_error("KS211", problem)

    def _look_for_indexes(self) -> None:
        if not self.result.batches:
            return
        files = self.segment.files
        if FileKind.OFFSET_INDEX not in files:
            self.findings.add("KS204", self.segment.path, "a broker that starts builds it anew, and the time index")
        elif FileKind.TIME_INDEX not in files and self.task.is_last:
            self.findings.add("KS209", self.segment.path, "a broker that starts makes an empty one")


def _behind(file: RandomFile, position: int) -> int:
    """The byte behind a batch that is too large to be read."""
    prefix = bytearray(t.LOG_OVERHEAD)
    file.read_into(position, prefix)
    return position + t.LOG_OVERHEAD + int.from_bytes(prefix[8:12], "big")
