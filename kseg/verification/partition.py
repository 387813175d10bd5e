"""A partition as a whole: its segments' results joined, and compared with snapshots, epochs and checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kseg.errors import IndexFileError, KsegError, LogError, StorageError
from kseg.index.epoch import LeaderEpochs
from kseg.index.producer import parse_columns
from kseg.log.checkpoints import CheckpointKind, read_leader_epochs
from kseg.log.files import read_sidecar, snapshot_offsets
from kseg.log.metadata import read_partition_metadata
from kseg.log.names import (
    LEADER_EPOCH_FILE,
    METADATA_TOPIC,
    PARTITION_METADATA_FILE,
    SIDE_DIR,
    FileKind,
    FileState,
    parse_segment_file,
    parse_snapshot_file,
    segment_file_name,
)
from kseg.log.partition import Log
from kseg.log.producers import OpenTransaction
from kseg.storage import Entries
from kseg.types import TopicPartition
from kseg.verification.findings import Finding, Findings
from kseg.verification.history import History
from kseg.verification.segment import SegmentResult, SegmentTask
from kseg.views.transaction_log import TransactionLog

_KNOWN_FILES = frozenset({LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, "quorum-state"})
_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


class PartitionCheck:
    """One partition: makes the tasks of its segments, and joins their results."""

    def __init__(self, log: Log, *, deep: bool, was_closed: bool) -> None:
        self.log = log
        self.tp = TopicPartition(log.topic, log.partition)
        self.findings = Findings()
        self._deep, self._was_closed = deep, was_closed
        self._checkpoints = log.checkpoints  # before the listing: a live broker's log only grows
        self._log_start = self._checkpoints.get(CheckpointKind.LOG_START, self.tp) or 0
        log.refresh()
        self._entries: Entries = log.store.list(log.directory)
        self.snapshots = sorted(snapshot_offsets(self._entries))
        self.tasks = self._make_tasks(deep, was_closed)

    def _make_tasks(self, deep: bool, was_closed: bool) -> list[SegmentTask]:
        segments = self.log.segments
        bases = [segment.base_offset for segment in segments]
        tasks = []
        for segment, next_base in itertools.zip_longest(segments, bases[1:]):
            marks = self.snapshots if next_base is not None else [*self.snapshots, *self._marks()]
            cuts = {mark for mark in marks if segment.base_offset < mark and (next_base is None or mark < next_base)}
            tasks.append(
                SegmentTask(
                    self.log.store,
                    self.log.directory,
                    segment.base_offset,
                    segment.files,
                    next_base,
                    tuple(sorted(cuts)),
                    self.log.options,
                    deep,
                    was_closed,
                )
            )
        return tasks

    def _marks(self) -> list[int]:
        """Offsets of checkpoints, at which batches begin or end."""
        kinds = (CheckpointKind.HIGH_WATERMARK, CheckpointKind.RECOVERY_POINT)
        return [mark for kind in kinds if (mark := self._checkpoints.get(kind, self.tp)) is not None]

    def is_stale(self) -> bool:
        """Whether a running broker has rolled, replaced or deleted segments meanwhile; growth does not count.

        It renames files of a segment one after the other, and makes indexes behind the log: a listing amid lacks some.
        """
        now = {entry.name: (entry.size, entry.mtime_ms) for entry in self.log.store.list(self.log.directory)}
        planned = [task.files[FileKind.LOG] for task in self.tasks if not task.is_last]
        if any(now.get(entry.name) != (entry.size, entry.mtime_ms) for entry in planned):
            return True
        last = self.tasks[-1].files[FileKind.LOG] if self.tasks else None
        if last is not None and now.get(last.name, (-1, 0))[0] < last.size:
            return True
        if any(_index_names(task.base_offset) & now.keys() != _index_names_of(task) for task in self.tasks):
            return True
        files = (parse_segment_file(name) for name in now)
        live = [file for file in files if file and file.kind is FileKind.LOG and file.state is FileState.LIVE]
        last_base = self.tasks[-1].base_offset if self.tasks else -1
        return any(file.base_offset > last_base for file in live)

    def again(self) -> PartitionCheck:
        """The same partition as it is now."""
        log = Log(self.log.store, self.log.directory, options=self.log.options)
        return PartitionCheck(log, deep=self._deep, was_closed=self._was_closed)

    def finish(
        self, results: Sequence[SegmentResult | KsegError], coordinator: Callable[[], TransactionLog | None]
    ) -> list[Finding]:
        """Join what was found in the segments; gives all findings of the partition."""
        sound = []
        for task, result in zip(self.tasks, results, strict=True):
            if isinstance(result, SegmentResult):
                self.findings.extend(result.findings)
                sound.append(result)
            else:
                path = task.store.join(task.directory, task.files[FileKind.LOG].name)
                code = "KS101"
                if isinstance(result, StorageError):
                    code = "KS708" if result.missing else "KS709"  # a running broker may delete a segment meanwhile
                self.findings.add_error(code, result, path)
        self._check_files()
        if len(sound) == len(self.tasks) and sound:
            history = self._check_producers(sound)
            self._check_transactions(history, coordinator)
            self._check_epochs(sound)
            self._check_checkpoints(sound)
            self._check_holes(sound)
        elif not self.tasks:
            self._compare_checkpoints(self.log.end_offset)
        return [replace(finding, topic=self.tp.topic, partition=self.tp.partition) for finding in self.findings.list()]

    def _check_producers(self, results: list[SegmentResult]) -> History:
        start = results[0].base_offset
        history = History(start, self._log_start, self.findings)
        columns = {offset: self._read_snapshot(offset) for offset in self.snapshots if offset > start}
        damaged = False
        for task, result in zip(self.tasks, results, strict=True):
            damaged |= result.is_damaged
            for piece in result.pieces:
                history.join(piece, result.path)
                if piece is result.pieces[-1]:
                    end = task.next_base or result.last_offset + 1
                    holes = result.holes + result.unsure_holes + (result.last_offset + 1 < end)
                    history.end_segment(task.base_offset, end, holes=holes)
                snapshot = columns.get(piece.end_offset)
                if snapshot is not None and not damaged and piece.end_offset <= results[-1].last_offset + 1:
                    history.compare_snapshot(snapshot, piece.end_offset, self._snapshot_path(piece.end_offset))
            if not result.is_damaged and FileKind.OFFSET_INDEX in task.files:
                history.compare_index(result.txn_index, result.abort_markers, result.last_offset, result.path)
            history.expected.clear()
        self._look_for_snapshots(results, history.has_producers)
        return history

    def _snapshot_path(self, offset: int) -> str:
        return self.log.store.join(self.log.directory, f"{offset:020d}{FileKind.SNAPSHOT.value}")

    def _read_snapshot(self, offset: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]] | None:
        path = self._snapshot_path(offset)
        try:
            return parse_columns(read_sidecar(self.log.store, path), path)
        except IndexFileError as error:
            self.findings.add_error("KS401", error)
        except StorageError as error:
            if not error.missing:
                self.findings.add_error("KS708", error)
        return None

    def _look_for_snapshots(self, results: list[SegmentResult], has_producers: bool) -> None:
        bases = [result.base_offset for result in results]
        end = results[-1].last_offset + 1
        # a broker deletes those up to the log start
        missing = [base for base in bases[1:] if base not in self.snapshots and base > self._log_start]
        if missing and not self.snapshots and has_producers:
            self.findings.add("KS404", self.log.directory, f"{len(missing)} segments should have one")
        elif missing:
            self.findings.add("KS403", self.log.directory, f"missing at {_some(missing)}", offset=missing[0])
        strays = [offset for offset in self.snapshots if offset not in bases]
        wanted = [offset for offset in strays if offset > end or offset < bases[-1]]
        for offset in wanted:
            detail = f"behind the log's end, {end}" if offset > end else "no segment begins there"
            self.findings.add("KS405", self._snapshot_path(offset), detail, offset=offset)

    def _check_transactions(self, history: History, coordinator: Callable[[], TransactionLog | None]) -> None:
        for txn in history.open_transactions():
            known = coordinator()
            hanging = None if known is None else known.is_hanging(self.tp, txn)
            if hanging and not self._is_still_open(txn):  # it ended while we were reading
                continue
            detail = f"producer {txn.producer_id}, epoch {txn.producer_epoch}, open since offset {txn.first_offset}"
            self.findings.add("KS409" if hanging else "KS410", self.log.directory, detail, offset=txn.first_offset)

    def _is_still_open(self, txn: OpenTransaction) -> bool:
        try:
            now = Log(self.log.store, self.log.directory, options=self.log.options).open_transactions()
        except KsegError:
            return True
        return any((other.producer_id, other.first_offset) == (txn.producer_id, txn.first_offset) for other in now)

    def _check_epochs(self, results: list[SegmentResult]) -> None:
        runs = [(run, result.path) for result in results for run in result.epoch_runs]
        before = -1
        path = ""
        for (epoch, first, _, position), file in runs:
            if epoch < before and file != path:  # within a segment it was told already
                self.findings.add(
                    "KS501", file, f"leader epoch {epoch} behind {before}", position=position, offset=first
                )
            before, path = epoch, file
        place = self.log.store.join(self.log.directory, LEADER_EPOCH_FILE)
        try:
            epochs = read_leader_epochs(self.log.store, self.log.directory)
        except IndexFileError as error:
            self.findings.add_error("KS503", error)
            return
        except StorageError as error:
            self.findings.add_error("KS708", error)
            return
        if epochs is None:
            if runs:
                self.findings.add("KS505", place, f"batches have leader epochs up to {max(run[0] for run, _ in runs)}")
            return
        if epochs.entries or not any(result.lacks_epochs for result in results):  # a legacy batch clears the file
            self._compare_epochs(epochs, runs, place, results[-1].last_offset + 1)

    def _compare_epochs(
        self, epochs: LeaderEpochs, runs: list[tuple[tuple[int, int, int, int], str]], place: str, end: int
    ) -> None:
        for (epoch, first, last, position), file in runs:
            at_first, at_last = epochs.epoch_of(first), epochs.epoch_of(last)
            wrong = next((other for other in (at_first, at_last) if other not in (None, epoch)), None)
            if wrong is None and at_last is None and (epochs.entries or last < self._log_start):
                continue  # before the first entry, or all of it: cut off with the log start
            if wrong is not None or not epochs.entries:
                detail = (
                    f"offsets {first} to {last}: epoch {epoch}, the checkpoint has {'none' if wrong is None else wrong}"
                )
                self.findings.add("KS502", file, detail, position=position, offset=first)
        latest = epochs.latest
        if latest is not None and latest.start_offset > end:
            detail = f"epoch {latest.epoch} begins at {latest.start_offset}, the log ends at {end}"
            self.findings.add("KS504", place, detail, offset=latest.start_offset)

    def _check_checkpoints(self, results: list[SegmentResult]) -> None:
        last = results[-1]
        self._compare_checkpoints(last.last_offset + 1)
        for cut in last.odd_cuts:
            names = [kind.value for kind in CheckpointKind if self._checkpoints.get(kind, self.tp) == cut]
            names += [f"{cut:020d}.snapshot"] if cut in self.snapshots else []
            self.findings.add("KS606", last.path, f"offset {cut} of {', '.join(names)}", offset=cut)
        start = self._log_start
        below = [task.base_offset for task in self.tasks if task.next_base is not None and task.next_base <= start]
        if below:
            self.findings.add("KS303", self.log.directory, f"{len(below)} segments below {start}", offset=start)

    def _compare_checkpoints(self, end: int) -> None:
        """Tell of checkpoints that are behind the log's end: of a log without segments they are all that is left."""
        for kind, code in (
            (CheckpointKind.LOG_START, "KS602"),
            (CheckpointKind.HIGH_WATERMARK, "KS603"),
            (CheckpointKind.RECOVERY_POINT, "KS604"),
            (CheckpointKind.CLEANER, "KS605"),
        ):
            offset = self._checkpoints.get(kind, self.tp)
            if offset is not None and offset > end:
                self.findings.add(
                    code, self.log.directory, f"{kind.value} has {offset}, the log ends at {end}", offset=offset
                )
            elif offset is not None and offset < 0:
                self.findings.add("KS601", self.log.directory, f"{kind.value} has {offset}", offset=offset)

    def _check_holes(self, results: list[SegmentResult]) -> None:
        holes = sum(result.holes for result in results)
        missing = sum(result.missing for result in results)
        for task, result in zip(self.tasks, results, strict=True):
            if task.next_base is not None and result.last_offset + 1 < task.next_base:
                holes += 1
                missing += task.next_base - result.last_offset - 1
        if holes:
            self.findings.add("KS302", self.log.directory, f"{missing} offsets in {holes} places")

    def _check_files(self) -> None:
        store, directory = self.log.store, self.log.directory
        logs = {task.base_offset for task in self.tasks}
        for entry in self._entries:
            path = store.join(directory, entry.name)
            name = parse_segment_file(entry.name)
            if entry.is_dir:
                if entry.name != SIDE_DIR:
                    self.findings.add("KS704", path, "a directory")
            elif name is None:
                is_snapshot = self.tp.topic == METADATA_TOPIC and parse_snapshot_file(entry.name) is not None
                if entry.name not in _KNOWN_FILES and not is_snapshot:
                    self.findings.add("KS704", path, f"{entry.size} bytes")
            elif name.state is FileState.DELETED:
                self.findings.add("KS701", path, f"{entry.size} bytes")
            elif name.state is not FileState.LIVE:
                self.findings.add("KS702", path, f"{entry.size} bytes")
            elif name.kind not in (FileKind.LOG, FileKind.SNAPSHOT) and name.base_offset not in logs:
                self.findings.add("KS703", path, f"{entry.size} bytes")
        try:
            read_partition_metadata(store, directory)
        except LogError as error:
            self.findings.add_error("KS707", error)
        except StorageError as error:
            self.findings.add_error("KS708", error)


def _index_names(base_offset: int) -> set[str]:
    return {segment_file_name(base_offset, kind) for kind in _INDEXES}


def _index_names_of(task: SegmentTask) -> set[str]:
    return {task.files[kind].name for kind in _INDEXES if kind in task.files}


def _some(numbers: list[int], most: int = 5) -> str:
    text = ", ".join(map(str, numbers[:most]))
    return text if len(numbers) <= most else f"{text} and {len(numbers) - most} more"
