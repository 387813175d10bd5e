"""Kafka's ProducerStateManager on a folder: which snapshots it loads, deletes and writes while a log is loaded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kseg.errors import IndexFileError, LogError
from kseg.log.files import stray_snapshots
from kseg.log.markers import check_markers
from kseg.log.names import MAX_OFFSET, FileKind, segment_file_name
from kseg.log.producers import ProducerState
from kseg.native import table as t
from kseg.native.table import Table
from kseg.recovery.folder import Folder
from kseg.recovery.segments import LoadedSegment


class ProducerSnapshots:
    """Producer state of a log that is being loaded, with the snapshots of its folder."""

    def __init__(self, folder: Folder, *, now_ms: int, expiration_ms: int, strict: bool = True) -> None:
        self._folder = folder
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self.strict = strict
        """Whether what a broker that replays it does not start on is refused."""
        self.state = ProducerState(0)
        self.map_end = 0
        """All records below it are accounted for."""
        self._last_snapshot = 0

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known."""
        return not self.state.entries()

    def add(self, table: Table, rows: int, path: str) -> None:
        """Replay batches of a log file; the map's end does not move.

        Raises:
            LogError: A broker that replays them does not start, where that is refused.
        """
        try:
            self.state.add(table, rows, strict=self.strict)
        except LogError as error:
            raise LogError(
                f"a broker cannot load this log: {error.message}",
                path=path,
                offset=error.offset,
                hint="recover with --salvage --all to leave the batch out",
            ) from error

    def add_recovered(self, table: Table, rows: int, path: str) -> None:
        """Replay batches of a segment that is recovered; batches of magic 2 move the map's end."""
        self.add(table, rows, path)
        newer = np.flatnonzero(table[t.MAGIC, :rows] >= 2)
        if len(newer):
            self.map_end = int(table[t.LAST_OFFSET, newer[-1]]) + 1

    def take_snapshot(self) -> None:
        """Write a snapshot at the map's end, unless the last one is not older."""
        if self.map_end > self._last_snapshot:
            self._folder.put(self.map_end, FileKind.SNAPSHOT, self.state.to_snapshot_bytes())
            self._last_snapshot = self.map_end

    def truncate_and_reload(self, log_start: int, log_end: int) -> None:
        """Drop snapshots outside `(log_start, log_end]`, and load the newest that is left."""
        for offset in self._folder.snapshots():
            if offset > log_end or offset <= log_start:
                self._folder.remove(offset, FileKind.SNAPSHOT)
        if log_end != self.map_end:
            self._load(log_start)
            return
        self.map_end = max(self.map_end, log_start)
        self._last_snapshot = max(self._folder.snapshots(), default=log_start)

    def start_at(self, offset: int) -> None:
        """Forget everything, and all snapshots."""
        for snapshot in self._folder.snapshots():
            self._folder.remove(snapshot, FileKind.SNAPSHOT)
        self.state = ProducerState(offset)
        self.map_end, self._last_snapshot = offset, 0

    def _load(self, log_start: int) -> None:
        for offset in reversed(self._folder.snapshots()):
            name = segment_file_name(offset, FileKind.SNAPSHOT)
            try:
                self.state = ProducerState.from_snapshot(self._folder.read_bytes(name), offset, name)
            except IndexFileError:  # torn snapshots are normal after a crash: the next older one serves
                self._folder.remove(offset, FileKind.SNAPSHOT)
                continue
            self.state.expire(self._now_ms, self._expiration_ms)
            self.map_end = self._last_snapshot = offset
            return
        self.state = ProducerState(log_start)
        self.map_end = self._last_snapshot = log_start

    def rebuild(self, segments: Sequence[LoadedSegment], log_start: int, log_end: int, *, clean: bool) -> None:
        """Bring the state to `log_end`: from the newest snapshot, then by the batches behind it.

        Snapshots are written at the bases of the last two segments where the replay passes them, and at the end.
        After a clean shutdown a log without any snapshot is taken for one of an old broker: nothing is replayed.
        """
        bases = [segment.base_offset for segment in segments[-2:]]
        if clean and not self._folder.snapshots():
            for offset in (*bases, log_end):
                self.map_end = offset
                self.take_snapshot()
            return
        was_empty = self.is_empty and self.map_end >= log_end
        self.truncate_and_reload(log_start, log_end)
        if log_end > self.map_end and not was_empty:
            self._replay(segments, log_start, log_end, bases)
        self.map_end = log_end
        self.take_snapshot()

    def _replay(self, segments: Sequence[LoadedSegment], log_start: int, log_end: int, bases: list[int]) -> None:
        floor = max((s.base_offset for s in segments if s.base_offset <= log_end), default=None)
        for segment in between(segments, self.map_end, log_end):
            start = max(segment.base_offset, self.map_end, log_start)
            self.map_end = start
            if segment.base_offset in bases:
                self.take_snapshot()
            end = segment.translate(log_end) if segment.base_offset == floor else None
            first = segment.translate(start)
            if first is not None:
                for chunk in segment.walk(first, end):
                    if self.strict:
                        check_markers(chunk, segment.path)
                    self.add(chunk.table, chunk.rows, segment.path)


def between(segments: Sequence[LoadedSegment], start: int, end: int | None = None) -> list[LoadedSegment]:
    """Segments from the one that holds `start` on, up to those that begin before `end`."""
    floor = max((s.base_offset for s in segments if s.base_offset <= start), default=start)
    return [s for s in segments if floor <= s.base_offset and (end is None or s.base_offset < end)]


def remove_strays(folder: Folder) -> None:
    """Delete snapshots that belong to no segment, but for the newest one behind the last segment's base."""
    for offset in stray_snapshots(folder.snapshots(), folder.bases(), MAX_OFFSET):
        folder.remove(offset, FileKind.SNAPSHOT)
