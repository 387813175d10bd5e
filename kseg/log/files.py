"""Which files of a partition directory are its segments, whatever a crash or a running cleaner has left there.

A directory is read as a broker would read it after its start-up passes, without changing it:

| on disk                                | what counts                                                              |
|----------------------------------------|--------------------------------------------------------------------------|
| `.deleted`                             | nothing                                                                  |
| `.cleaned`                             | nothing; and no `.swap` file at or above the lowest of them counts       |
| `.log.swap`                            | it replaces every live file in `[its base, its next offset)`             |
| `.index.swap` and others without a log | they take their final name                                               |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from kseg.errors import IndexFileError
from kseg.log.names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    SIDE_DIR,
    FileKind,
    FileState,
    SegmentFile,
    parse_segment_file,
)
from kseg.storage import Entry, Store

SegmentFiles = dict[int, dict[FileKind, Entry]]
MAX_SIDECAR_BYTES = 256 << 20  # far above segment.index.bytes of any real topic
_OF_A_PARTITION = (PARTITION_METADATA_FILE, LEADER_EPOCH_FILE)


def live_files(entries: Iterable[Entry], next_offset_of: Callable[[Entry, int], int]) -> SegmentFiles:
    """The files of each segment by base offset, ascending; sidecars without a log are left out, snapshots are kept.

    Args:
        next_offset_of: Gives the next offset of a `.log.swap` file, from its entry and base offset.
    """
    named = [(entry, name) for entry in entries if not entry.is_dir and (name := parse_segment_file(entry.name))]
    min_cleaned = min((name.base_offset for _, name in named if name.state is FileState.CLEANED), default=None)
    live: dict[SegmentFile, Entry] = {name: entry for entry, name in named if name.state is FileState.LIVE}
    swaps = {
        name: entry
        for entry, name in named
        if name.state is FileState.SWAP and (min_cleaned is None or name.base_offset < min_cleaned)
    }
    swap_logs = {name: entry for name, entry in swaps.items() if name.kind is FileKind.LOG}
    if swap_logs:
        start = min(name.base_offset for name in swap_logs)
        end = max(next_offset_of(entry, name.base_offset) for name, entry in swap_logs.items())
        live = {name: entry for name, entry in live.items() if not start <= name.base_offset < end}
    live |= {SegmentFile(name.base_offset, name.kind): entry for name, entry in swaps.items()}
    segments: SegmentFiles = {}
    for name in sorted(live):
        segments.setdefault(name.base_offset, {})[name.kind] = live[name]
    return {base: files for base, files in segments.items() if FileKind.LOG in files}


def has_segments(entries: Iterable[Entry]) -> bool:
    """Whether a directory is a partition's: it has a log file, or what is left of one. Then it may be an empty log."""
    names = (parse_segment_file(entry.name) for entry in entries)
    return any(name is not None and name.kind is FileKind.LOG for name in names)


def is_bare(entries: Iterable[Entry]) -> bool:
    """Whether a directory without a log file has nothing in it but, perhaps, other files of a partition.

    A broker makes an empty log of it: it died between making the directory and the first segment.
    """
    return all(
        entry.name == SIDE_DIR
        if entry.is_dir
        else entry.name.removesuffix(".tmp") in _OF_A_PARTITION or parse_segment_file(entry.name) is not None
        for entry in entries
    )


def check_sidecar_size(size: int, path: str) -> None:
    """Refuse a file beside a log that is larger than any real one.

    Raises:
        IndexFileError: It is.
    """
    if size > MAX_SIDECAR_BYTES:
        raise IndexFileError(f"{size} bytes are too many for such a file", path=path)


def read_sidecar(store: Store, path: str) -> bytes:
    """A whole file beside a log, if it has the size of one.

    Raises:
        IndexFileError: It is too large to be believed.
    """
    data = store.read(path, MAX_SIDECAR_BYTES + 1)
    check_sidecar_size(len(data), path)
    return data


def snapshot_offsets(entries: Iterable[Entry]) -> list[int]:
    """Offsets of the producer snapshots that are there, descending."""
    names = (parse_segment_file(entry.name) for entry in entries)
    wanted = {
        name.base_offset for name in names if name and name.kind is FileKind.SNAPSHOT and name.state is FileState.LIVE
    }
    return sorted(wanted, reverse=True)


def stray_snapshots(snapshots: Iterable[int], bases: Collection[int], end_offset: int) -> list[int]:
    """Snapshots that a broker would delete when it loads the log.

    Those of segments stay, and of the others the newest one behind the last segment's base: the last shutdown's.
    """
    others = [offset for offset in snapshots if offset not in bases]
    kept = max((offset for offset in others if max(bases, default=0) < offset <= end_offset), default=None)
    return [offset for offset in others if offset != kept]
