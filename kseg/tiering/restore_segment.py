"""Bring one segment back from a tier, with the parts that fit its batches; the others are built anew.

Brokers trust what is beside a segment: a transaction index that lacks an entry shows aborted records, a snapshot of
another offset refuses producers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kseg import durable
from kseg.errors import FormatError, IndexFileError
from kseg.index.epoch import LeaderEpochs
from kseg.index.txn import TxnIndex
from kseg.log.files import snapshot_offsets
from kseg.log.names import FileKind, segment_file_name
from kseg.log.partition import Log
from kseg.log.segment import Segment
from kseg.log.visibility import replay_producers
from kseg.log.walk import check_order
from kseg.storage import Entry, LocalStore, RandomFile
from kseg.tiering.layout import PlainPart
from kseg.tiering.objects import PIECE_BYTES
from kseg.tiering.parts import CheckedLog
from kseg.tiering.producer_parts import state_before
from kseg.tiering.restore_report import RestoredSegment
from kseg.tiering.segments import RemoteSegment
from kseg.tiering.small_parts import SMALL_PARTS, EpochRuns, Problems, SmallParts
from kseg.tiering.tier import Tier

__all__ = ["FetchTask", "FetchedSegment", "fetch_segment", "rebuild_parts", "restored_epochs"]

_FILES: Final = {
    PlainPart.OFFSET_INDEX: FileKind.OFFSET_INDEX,
    PlainPart.TIME_INDEX: FileKind.TIME_INDEX,
    PlainPart.TXN_INDEX: FileKind.TXN_INDEX,
}


@dataclass(frozen=True, slots=True)
class FetchTask:
    """A segment to fetch into a folder; the tier is opened where the task runs. `before` is the one before it."""

    tier: Tier
    segment: RemoteSegment
    folder: str
    before: RemoteSegment | None = None


@dataclass(frozen=True, slots=True)
class FetchedSegment:
    """A segment whose log and sound parts are in the folder.

    Attributes:
        problems: The parts that do not fit the batches, and are not there.
        epochs: The history of leader epochs that came with it.
        epoch_runs: The leader epochs of its batches.
    """

    restored: RestoredSegment
    problems: Problems
    epochs: LeaderEpochs
    epoch_runs: EpochRuns

    @property
    def end_offset(self) -> int:
        """The offset behind the segment."""
        assert self.restored.next_offset is not None
        return self.restored.next_offset


def fetch_segment(task: FetchTask) -> FetchedSegment:
    """Write a segment's files, durably, and check every batch of it, and the other parts against the batches.

    Raises:
        FormatError: The batches that came back are damaged.
        StorageError: The tier or the disk failed, again and again.
    """
    segment, folder = task.segment, Path(task.folder)
    base, stem = segment.start_offset, f"{segment.directory}/{segment.name.stem}"
    log_path = folder / segment_file_name(base, FileKind.LOG)
    with task.tier.open(stem + PlainPart.LOG.value) as file:
        _write(log_path, _pieces(file))
    parts, unreadable = _read_parts(task.tier, segment)
    before = {} if task.before is None else _read_parts(task.tier, task.before)[0]
    small = SmallParts(parts, base, stem, state_before(before.get(PlainPart.SNAPSHOT), base))
    end = _check(log_path, segment, small)
    problems = small.finish(end) | unreadable
    sound = {part: data for part, data in parts.items() if part not in problems}
    for part, data in sound.items():
        if part in _FILES:
            _write(folder / segment_file_name(base, _FILES[part]), [data])
        elif part is PlainPart.SNAPSHOT:
            _write(folder / segment_file_name(end, FileKind.SNAPSHOT), [data])
    if segment.max_timestamp is not None and segment.max_timestamp >= 0:
        durable.set_mtime_ms(log_path, segment.max_timestamp)
    epochs = (
        LeaderEpochs.parse(sound[PlainPart.LEADER_EPOCHS]) if sound.get(PlainPart.LEADER_EPOCHS) else LeaderEpochs()
    )
    restored = RestoredSegment(base, end, segment.size, segment.name.segment_id)
    return FetchedSegment(restored, problems, epochs, small.epochs)


def _read_parts(tier: Tier, segment: RemoteSegment) -> tuple[dict[PlainPart, bytes], Problems]:
    """The small parts of a segment, and those that encryption says were changed."""
    stem = f"{segment.directory}/{segment.name.stem}"
    parts, problems = {}, {}
    for part in SMALL_PARTS:
        if part in segment.sidecars:
            try:
                parts[part] = tier.read(stem + part.value)
            except (FormatError, IndexFileError) as error:
                problems[part] = IndexFileError(error.message, path=error.path or stem + part.value)
    return parts, problems


def _pieces(file: RandomFile) -> Iterator[bytes]:
    for position in range(0, file.size, PIECE_BYTES):
        piece = bytearray(min(PIECE_BYTES, file.size - position))
        if file.read_into(position, piece) < len(piece):
            raise FormatError("the object ends too early", path=file.path, position=position)
        yield bytes(piece)


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    with durable.closing(durable.create(path, exclusive=False), path) as fd:
        durable.write_pieces(fd, pieces, path)
        durable.fsync_file(fd)


def _check(path: Path, remote: RemoteSegment, small: SmallParts) -> int:
    """Check the batches that came back; return the offset behind the segment."""
    size = path.stat().st_size
    if size != remote.size:
        raise FormatError(f"{size} bytes came back, {remote.size} were expected", path=str(path))
    files = {FileKind.LOG: Entry(path.name, size, 0, False)}
    segment = Segment(LocalStore(), str(path.parent), remote.start_offset, files, is_last=False)
    last = remote.start_offset - 1
    with segment.open() as file:
        walk = segment.walk(file, check=True)
        for chunk in walk:
            last = check_order(chunk, remote.start_offset, last, str(path))
            small.add(chunk.table[:, : chunk.rows])
        walk.raise_if_torn()
    if remote.next_offset is not None and last >= remote.next_offset:
        raise FormatError(f"holds offset {last}, and the segment ends at {remote.next_offset}", path=str(path))
    return last + 1 if remote.next_offset is None else remote.next_offset


def rebuild_parts(folder: Path, fetched: Sequence[FetchedSegment]) -> list[RestoredSegment]:
    """Build what did not fit the batches from these, oldest first; what was built is told with each segment."""
    restored = []
    for found in fetched:
        if found.problems.keys() - {PlainPart.LEADER_EPOCHS}:
            _rebuild(folder, found)
        told = tuple(str(problem) for part, problem in found.problems.items() if part is not PlainPart.LEADER_EPOCHS)
        restored.append(replace(found.restored, rebuilt=told))
    return restored


def _rebuild(folder: Path, found: FetchedSegment) -> None:
    log, base, end = Log(LocalStore(), str(folder)), found.restored.base_offset, found.end_offset
    segment = next(segment for segment in log.segments if segment.base_offset == base)
    made: dict[FileKind, bytes] = {}
    if not found.problems.keys().isdisjoint((PlainPart.OFFSET_INDEX, PlainPart.TIME_INDEX)):
        built = CheckedLog(segment, end).indexes
        made[FileKind.OFFSET_INDEX] = built.offset_index.to_bytes()
        made[FileKind.TIME_INDEX] = built.time_index.to_bytes()
    snapshots = snapshot_offsets(log.store.list(log.directory))
    state = replay_producers(log.segments, snapshots, upto=end, snapshot_limit=base)
    aborted = [txn for txn in state.aborted if base <= txn.last_offset < end]
    if PlainPart.TXN_INDEX in found.problems and aborted:
        made[FileKind.TXN_INDEX] = TxnIndex.of(aborted).to_bytes()
    for kind, data in made.items():
        _write(folder / segment_file_name(base, kind), [data])
    if PlainPart.SNAPSHOT in found.problems:
        _write(folder / segment_file_name(end, FileKind.SNAPSHOT), [state.to_snapshot_bytes()])


def restored_epochs(fetched: Sequence[FetchedSegment]) -> tuple[LeaderEpochs, str | None]:
    """The leader epochs of what came back: the last segment's history, or that of the batches where these differ.

    Returns:
        The epochs, and why they are those of the batches, if they are.
    """
    runs = EpochRuns()
    for found in fetched:
        runs.join(found.epoch_runs)
    last = fetched[-1]
    problem = last.problems.get(PlainPart.LEADER_EPOCHS) or runs.wrong(last.epochs, last.end_offset, "")
    return (last.epochs, None) if problem is None else (runs.to_epochs(), str(problem))
