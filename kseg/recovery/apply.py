"""Make a partition directory what a plan says, in an order that a crash may stop anywhere.

| step                                                 | what a crash behind it leaves                      |
|------------------------------------------------------|----------------------------------------------------|
| transient files, group by group as a broker          | what the same table settles to the same end        |
| dropped segments and snapshots, the last first       | the damaged segment as it was: it is cut again     |
| rewritten segments by `.cleaned` and `.swap`         | rolled back or forward, one segment at a time      |
| a changed segment's `.index` goes, its log is cut    | a segment without `.index`, which is rebuilt       |
| its indexes come, `.index` last                      | the same                                           |
| snapshots, leader epochs, checkpoints                | what every start corrects                          |

The clean-shutdown marker went before all of this, so a broker that starts in between checks the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from kseg import durable
from kseg.errors import StorageError
from kseg.log.checkpoints import update_checkpoint
from kseg.log.names import FileKind, FileState, parse_segment_file, segment_file_name
from kseg.log.swap import SEGMENT_FILES, replace_segments
from kseg.recovery.folder import Content, Folder, whole
from kseg.recovery.plan import Plan
from kseg.recovery.transients import apply_transients
from kseg.storage import LocalStore

_COPY_BYTES = 8 << 20


def apply_plan(plan: Plan) -> None:
    """Do what the plan says; the caller holds the directory, and has taken the clean-shutdown marker away."""
    rewritten = rewritten_segments(plan)
    cuts = {name for name in plan.changed if can_cut(plan, name)}
    _settle_transients(plan)
    bases = {base for old, new in rewritten.items() for base in (old, *new)}
    moved = {segment_file_name(base, kind) for base in bases for kind in SEGMENT_FILES}
    _remove_files(plan, moved)
    for base, new in rewritten.items():
        _swap_in(plan, base, new)
    for base in plan.folder.bases():
        if segment_file_name(base, FileKind.LOG) not in moved:
            _rebuild(plan, base, cuts)
    for name in plan.changed:
        parsed = parse_segment_file(name)
        if parsed is None or parsed.kind is FileKind.SNAPSHOT:
            durable.publish(plan.directory / name, plan.folder.read_bytes(name))
    for change in plan.checkpoints:
        update_checkpoint(str(plan.directory.parent), change.kind, {plan.tp: change.after})


def rewritten_segments(plan: Plan) -> dict[int, list[int]]:
    """Segments that are swapped for new ones: base offsets of the old, and of the new that are still wanted."""
    found = {}
    for base, new in plan.loaded.rewritten.items():
        wanted = [b for b in new if segment_file_name(b, FileKind.LOG) in plan.folder.files]
        if wanted:
            found[base] = wanted
    for name in plan.changed:
        parsed = parse_segment_file(name)
        if parsed is None or parsed.kind is not FileKind.LOG or name not in plan.folder.disk or can_cut(plan, name):
            continue
        if not any(parsed.base_offset in new for new in found.values()):
            found[parsed.base_offset] = [parsed.base_offset]
    return found


def disturbed_files(plan: Plan) -> list[str]:
    """Files, by their settled names, that `apply_plan` changes or deletes, if only for a while."""
    names = {*plan.changed, *plan.removed}
    bases = {base for old, new in rewritten_segments(plan).items() for base in (old, *new)}
    names |= {segment_file_name(base, kind) for base in bases for kind in SEGMENT_FILES}
    for base in plan.folder.bases():
        if any(segment_file_name(base, kind) in names for kind in SEGMENT_FILES):
            names.add(segment_file_name(base, FileKind.OFFSET_INDEX))
    return sorted(name for name in names if name in plan.folder.disk)


def can_cut(plan: Plan, name: str) -> bool:
    """Whether a file becomes a shorter one by cutting it where it is: not one that an interrupted swap renames."""
    disk = plan.folder.disk.get(name)
    content = plan.folder.files.get(name)
    if disk is None or content is None or content.data is not None or disk.name != name:
        return False
    return content.size < disk.size and content == whole(name, content.size)


def _settle_transients(plan: Plan) -> None:
    apply_transients(plan.directory, plan.transients)
    plan.folder.disk = {name: replace(file, name=name) for name, file in plan.folder.disk.items()}


def _remove_files(plan: Plan, moved: set[str]) -> None:
    """Segments from the last to the first, each log before its indexes; then the rest, and snapshots to be replaced."""
    gone = [name for name in plan.removed if name not in moved]
    stale = [name for name in plan.changed if name.endswith(FileKind.SNAPSHOT.value) and name in plan.folder.disk]
    logs = [name for name in gone if name.endswith(FileKind.LOG.value)]
    order: list[str] = []
    for name in reversed(logs):
        base = parse_segment_file(name)
        group = [name] if base is None else [segment_file_name(base.base_offset, kind) for kind in SEGMENT_FILES]
        order += [one for one in group if one in gone]
    order += [name for name in gone if name not in order]
    for name in (*order, *stale):
        durable.unlink(plan.directory / name, missing_ok=True)
    if order or stale:
        durable.fsync_dir(plan.directory)


def _swap_in(plan: Plan, old: int, new: list[int]) -> None:
    """Replace one segment by new ones."""
    folder, directory = plan.folder, plan.directory
    names = [(base, kind) for base in new for kind in SEGMENT_FILES if folder.get(base, kind) is not None]
    source = folder.disk.get(segment_file_name(old, FileKind.LOG))
    for base, kind in names:
        path = directory / segment_file_name(base, kind, FileState.CLEANED)
        write_content(folder, folder.files[segment_file_name(base, kind)], path)
        if kind is FileKind.LOG and source is not None:
            durable.set_mtime_ms(path, source.mtime_ms)
    replace_segments(directory, new, [old])


def _rebuild(plan: Plan, base: int, cuts: set[str]) -> None:
    """Cut a segment where it is, and give it new indexes."""
    folder, directory = plan.folder, plan.directory
    log, index, time_index, txn_index = (segment_file_name(base, kind) for kind in SEGMENT_FILES)
    indexes = [name for name in (time_index, txn_index, index) if name in folder.files]
    kept = {name for name in (log, *indexes) if folder.is_unchanged(name)}
    if len(kept) == 1 + len(indexes):
        return
    kept.discard(index)  # it goes first and comes last: without it a segment is rebuilt
    contents = {name: folder.read_bytes(name) for name in indexes if name not in kept}
    durable.unlink(directory / index, missing_ok=True)
    durable.fsync_dir(directory)
    if log in cuts:
        durable.truncate(directory / log, folder.files[log].size)
        durable.fsync_file(directory / log)
    elif log not in folder.disk:
        write_content(folder, folder.files[log], directory / log)
        durable.fsync_dir(directory)
    for name, data in contents.items():
        durable.publish(directory / name, data)


def write_content(folder: Folder, content: Content, path: Path) -> None:
    """Write a file of pieces, or of bytes, and force it to the disk."""
    with durable.closing(durable.create(path, exclusive=False), path) as fd:
        if content.data is not None:
            durable.write_all(fd, content.data, path)
        else:
            for chunk in _chunks(folder, content):
                durable.write_all(fd, chunk, path)
        durable.fsync_file(fd)


def _chunks(folder: Folder, content: Content) -> Iterable[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """The bytes of pieces, read from where they are on disk by now: under their settled names."""
    buffer = np.empty(min(_COPY_BYTES, max(content.size, 1)), np.uint8)
    for piece in content.pieces:
        with LocalStore().open(str(Path(folder.directory, piece.source))) as file:
            for start in range(piece.start, piece.end, _COPY_BYTES):
                size = min(_COPY_BYTES, piece.end - start)
                got = file.read_into(start, buffer[:size])
                if got < size:
                    raise StorageError("the file has become shorter", path=file.path)
                yield buffer[:size]
