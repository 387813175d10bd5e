"""Bring one partition's segments back from a tier, into files that a broker loads.

All files are written, and checked, below `<partition>/.kseg/` first; then they get their names, from the last segment
down to the first, the log file of each last. So at every moment what is there is a log that ends where it shall: a
broker that started in between would miss the oldest segments, but would not give their offsets away.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kseg import durable
from kseg.errors import LogError, OffsetOutOfRangeError
from kseg.index.epoch import LeaderEpochs
from kseg.index.txn import TxnIndex
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, write_leader_epochs
from kseg.log.config import LogConfig
from kseg.log.metadata import PartitionMetadata, read_partition_metadata, write_partition_metadata
from kseg.log.names import FileKind, parse_segment_file, segment_file_name
from kseg.log.partition import Log
from kseg.log.staging import staging
from kseg.log.writer_place import partition_path
from kseg.log.writer_segment import ActiveSegment
from kseg.log.writer_session import WriteSession
from kseg.storage import LocalStore
from kseg.tiering.restore_report import RestoredSegment
from kseg.tiering.segments import RemoteSegment

_IN_ORDER: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.LOG)


def segments_in_range(
    segments: Sequence[RemoteSegment], start: int | None, end: int | None, where: str
) -> list[RemoteSegment]:
    """The segments that hold offsets of `[start, end)`, which must follow each other without a gap.

    Raises:
        OffsetOutOfRangeError: None does.
        LogError: Offsets between them are missing.
    """
    chosen = [
        segment
        for segment in segments
        if (end is None or segment.start_offset < end)
        and (start is None or segment.next_offset is None or segment.next_offset > start)
    ]
    if not chosen:
        raise OffsetOutOfRangeError(f"no segment of {where} holds these offsets")
    for before, after in itertools.pairwise(chosen):
        if before.next_offset is not None and before.next_offset > after.start_offset:
            raise LogError(
                f"{where}: segments at {before.start_offset} and {after.start_offset} overlap, each with offsets that "
                "no other has",
                hint="restore a range that needs only one of them",
            )
        if before.next_offset is not None and before.next_offset != after.start_offset:
            raise LogError(
                f"{where}: after offset {before.next_offset - 1} the next segment in the tier begins at "
                f"{after.start_offset}",
                hint="restore a range without the gap; 'kseg fsck' lists what a tier lacks",
            )
    return chosen


@contextmanager
def restoring(directory: Path, topic_id: str, end: int | None) -> Iterator[tuple[WriteSession, Path]]:
    """The right to fill a partition's directory, which is made where it is missing, and a folder to prepare files in.

    Raises:
        LogError: It is another topic's, or holds segments that what is restored, up to `end`, does not end before.
    """
    directory, tp = partition_path(directory)
    session = WriteSession(directory.parent, tp)
    failed = True
    try:
        refuse_other_topic(directory, topic_id)
        refuse_overlap(directory, end)
        durable.make_dir(directory, exist_ok=True)
        with staging(directory) as folder:
            yield session, folder
        failed = False
    finally:
        session.end(failed=failed)


def refuse_other_topic(directory: Path, topic_id: str) -> None:
    """Refuse a directory of another topic."""
    metadata = read_partition_metadata(LocalStore(), str(directory))
    if metadata is not None and metadata.topic_id != topic_id:
        raise LogError(f"it belongs to topic id {metadata.topic_id}, not to {topic_id}", path=str(directory))


def refuse_overlap(directory: Path, end: int | None) -> None:
    """Refuse a directory whose segments the restored ones do not end at."""
    bases = local_bases(directory)
    if bases and end != bases[0]:
        raise LogError(
            f"its first segment begins at {bases[0]}, and what is restored ends at {end}",
            path=str(directory),
            hint=f"restore up to offset {bases[0]}, or into another directory",
        )


def local_bases(directory: Path) -> list[int]:
    """Base offsets of the segments that a directory has."""
    store = LocalStore()
    if store.stat(str(directory)) is None:
        return []
    names = (parse_segment_file(entry.name) for entry in store.list(str(directory)) if not entry.is_dir)
    return sorted(name.base_offset for name in names if name is not None and name.kind is FileKind.LOG)


def place_segments(
    directory: Path,
    folder: Path,
    session: WriteSession,
    restored: Sequence[RestoredSegment],
    topic_id: str,
    epochs: LeaderEpochs,
) -> None:
    """Give the files that were prepared their names: from now on they are the log."""
    is_new = not local_bases(directory)
    session.begin_changes()
    if read_partition_metadata(LocalStore(), str(directory)) is None:
        write_partition_metadata(str(directory), PartitionMetadata(topic_id))
    if is_new:
        write_leader_epochs(str(directory), epochs.truncate_from_start(restored[0].base_offset))
    durable.fsync_dir(folder)
    for segment in reversed(restored):
        if segment.next_offset is not None:
            _move(folder, directory, segment_file_name(segment.next_offset, FileKind.SNAPSHOT))
        for kind in _IN_ORDER:
            _move(folder, directory, segment_file_name(segment.base_offset, kind))
        durable.fsync_dir(directory)
    durable.fsync_dir(directory.parent)
    if is_new:
        end = restored[-1].next_offset
        if end is not None and Log(LocalStore(), str(directory)).end_offset < end:
            _make_empty_segment(directory, end)
    marks = read_checkpoint(LocalStore(), str(directory.parent), CheckpointKind.HIGH_WATERMARK) or {}
    if session.tp not in marks:  # nor is it where a run died before this
        session.move_checkpoints(Log(LocalStore(), str(directory)).end_offset)


def _make_empty_segment(directory: Path, base_offset: int) -> None:
    """Let the log end where the tier's does, where its last offsets hold no records: they were given away once."""
    segment = ActiveSegment.create(directory, base_offset, LogConfig(), now_ms=int(time.time() * 1000))
    try:
        segment.seal(TxnIndex.of(()))
    finally:
        segment.close()


def _move(folder: Path, directory: Path, name: str) -> None:
    if (folder / name).exists() and not (directory / name).exists():
        durable.rename(folder / name, directory / name)
