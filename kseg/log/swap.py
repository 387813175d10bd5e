"""Put new segments in the place of old ones, by Kafka's protocol, so that a crash in the middle is carried to its end.

The new segments are there as complete, durable `.cleaned` files. Each phase is made durable before the next begins,
which is stronger than Kafka, whose loader tolerates every state in between (`docs/file-format.md`, "Names"):

1. `.cleaned` becomes `.swap`, from the highest base offset down: as long as a `.cleaned` file is left, a start-up drops
   all of it and goes on with the old segments. One segment is durable before the next: of a disk that kept the lower
   one's names and not the higher one's, a start-up would take the lower one alone for the whole;
2. the old files become `.deleted`: from here on a start-up goes on with the new segments;
3. `.swap` becomes the final name, from the lowest base offset up, and each log's is durable before the next name
   changes: a start-up deletes whatever has a final name in the range of a `.log.swap`;
4. what is `.deleted` is deleted, and so are the producer snapshots of segments that are no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kseg import durable
from kseg.errors import LogError
from kseg.log.names import FileKind, FileState, segment_file_name

# Kafka's order of files: the log first, so that what is left of a broken rename can be told
SEGMENT_FILES: Final = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


def replace_segments(directory: Path, new_bases: Iterable[int], old_bases: Iterable[int]) -> None:
    """Replace the segments at `old_bases` by the `.cleaned` ones at `new_bases`.

    Raises:
        LogError: A new one is not there; nothing has changed.
    """
    new, old = sorted(new_bases), sorted(old_bases)
    for base in new:
        path = directory / segment_file_name(base, FileKind.LOG, FileState.CLEANED)
        if not path.exists():
            raise LogError("a segment that was to take the place of others is not there", path=str(path))
    durable.fsync_dir(directory)
    for base in reversed(new):
        _rename(directory, base, FileState.CLEANED, FileState.SWAP)
        durable.fsync_dir(directory)
    for base in old:
        _rename(directory, base, FileState.LIVE, FileState.DELETED)
    durable.fsync_dir(directory)
    for base in new:
        _rename(directory, base, FileState.SWAP, FileState.LIVE, SEGMENT_FILES[:1])
        durable.fsync_dir(directory)
        _rename(directory, base, FileState.SWAP, FileState.LIVE, SEGMENT_FILES[1:])
    durable.fsync_dir(directory)
    for base in old:
        for kind in SEGMENT_FILES:
            durable.unlink(directory / segment_file_name(base, kind, FileState.DELETED), missing_ok=True)
    for base in set(old) - set(new):
        durable.unlink(directory / segment_file_name(base, FileKind.SNAPSHOT), missing_ok=True)
    durable.fsync_dir(directory)


def _rename(
    directory: Path, base: int, before: FileState, after: FileState, kinds: Iterable[FileKind] = SEGMENT_FILES
) -> None:
    for kind in kinds:
        source = directory / segment_file_name(base, kind, before)
        if source.exists():
            durable.rename(source, directory / segment_file_name(base, kind, after))
