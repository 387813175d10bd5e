"""What a repair takes away, kept in `<partition>/.kseg/quarantine/<run>/`, and the way back.

Before the first change every file that will change or go gets a second name here (a hard link, or a copy where there
are none), and of a log that is cut where it is the bytes that go. `manifest.json`, written durably behind them, says
what there was and what there will be. The way back (`kseg.recovery.undo`) needs nothing else.

A folder without a manifest is from a run that changed nothing. One whose manifest says "begun" is from a run that was
interrupted: the next run takes it back first.
"""

from __future__ import annotations

import contextlib
import errno
import json
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kseg import durable
from kseg.errors import IndexFileError, StorageError
from kseg.log.names import SIDE_DIR
from kseg.recovery.apply import can_cut, disturbed_files, write_content
from kseg.recovery.folder import Content, Folder, Piece
from kseg.recovery.plan import Plan
from kseg.storage import LocalStore

VERSION = 1
MANIFEST = "manifest.json"
BEGUN, DONE, UNDONE = "begun", "done", "undone"
_TAIL = ".tail"
_LIMIT = 256 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of before: all of it, or with `cut_at` only the bytes from there on, the rest being in place."""

    name: str
    size: int
    mtime_ms: int
    cut_at: int | None = None

    @property
    def stored_as(self) -> str:
        """Its name in the run's folder."""
        return self.name if self.cut_at is None else self.name + _TAIL


@dataclass(slots=True)
class Manifest:
    """What a run took away and made; `after` is what the directory holds when it is done."""

    run: str
    verb: str
    partition: str
    created_ms: int
    status: str = BEGUN
    kept: list[Kept] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    version: int = VERSION

    def write(self, folder: Path) -> None:
        """Write it, durably."""
        durable.publish(folder / MANIFEST, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Read it; None where there is none.

        Raises:
            IndexFileError: It is no manifest.
        """
        path = folder / MANIFEST
        if LocalStore().stat(str(path)) is None:
            return None
        try:
            values = json.loads(LocalStore().read(str(path), _LIMIT))
            if values["version"] != VERSION:
                raise IndexFileError(f"version {values['version']} of a manifest is unknown", path=str(path))
            manifest = cls(**values | {"kept": [Kept(**kept) for kept in values["kept"]]})
        except (ValueError, TypeError, KeyError) as error:
            raise IndexFileError(f"no manifest of a repair: {error}", path=str(path)) from error
        for name in (*manifest.before, *manifest.after, *(kept.name for kept in manifest.kept)):
            if "/" in name or name in ("", ".", ".."):
                raise IndexFileError(f"{name!r} is no name of a file here", path=str(path))
        return manifest


def new_run() -> str:
    """A name for a run that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{uuid.uuid4().hex[:8]}"


def quarantine_dir(directory: Path) -> Path:
    """Where a partition's runs are."""
    return directory / SIDE_DIR / "quarantine"


def list_runs(directory: Path) -> list[str]:
    """Names of a partition's runs, the oldest first."""
    path = quarantine_dir(directory)
    return [entry.name for entry in LocalStore().list(str(path)) if entry.is_dir] if path.is_dir() else []


def keep(plan: Plan, run: str, verb: str, *, now_ms: int) -> Path:
    """Keep all that the plan changes or takes away; return the run's folder.

    Raises:
        StorageError: It cannot be kept; what there is of the folder is taken away again.
    """
    folder = quarantine_dir(plan.directory) / run
    try:
        _make_folder(plan.directory, run)
        _fill(plan, folder, Manifest(run, verb, str(plan.tp), now_ms))
    except StorageError as error:
        with contextlib.suppress(StorageError):  # on a full disk it would be in the way
            remove_run(plan.directory, folder)
        if error.errno == errno.ENOSPC:
            error.hint = "what goes is kept first: make room, or keep nothing, as a broker (--as-kafka)"
        raise
    return folder


def _fill(plan: Plan, folder: Path, manifest: Manifest) -> None:
    manifest.before = {name: file.size for name, file in plan.before.disk.items()}
    manifest.after = {name: content.size for name, content in plan.folder.files.items()}
    manifest.checkpoints = [asdict(change) | {"kind": change.kind.value} for change in plan.checkpoints]
    for name in _touched(plan):
        file = plan.before.disk[name]
        cut_at = plan.folder.files[name].size if can_cut(plan, name) else None
        kept = Kept(name, file.size, file.mtime_ms, cut_at)
        manifest.kept.append(kept)
        if cut_at is None:
            _link_or_copy(plan.before, kept, folder)
        else:
            tail = Content((Piece(name, cut_at, file.size),))
            write_content(plan.before, tail, folder / kept.stored_as)
    durable.fsync_dir(folder)
    manifest.write(folder)


def finish(folder: Path) -> None:
    """Say that a run is complete."""
    manifest = Manifest.read(folder)
    if manifest is not None:
        manifest.status = DONE
        manifest.write(folder)


def remove_run(directory: Path, folder: Path) -> None:
    """Delete a run's folder, and the folders around it where nothing else is in them; the manifest goes last."""
    store = LocalStore()
    path = folder
    if store.stat(str(path)) is not None:
        names = [entry.name for entry in store.list(str(folder))]
        for name in sorted(names, key=lambda name: name == MANIFEST):
            durable.unlink(folder / name)
    while path != directory:
        if store.stat(str(path)) is not None:
            if store.list(str(path)):
                return
            durable.remove_dir(path)
        path = path.parent
    durable.fsync_dir(directory)


def _make_folder(directory: Path, run: str) -> None:
    path = directory
    for part in (SIDE_DIR, "quarantine", run):
        durable.make_dir(path / part, exist_ok=part != run)
        durable.fsync_dir(path)
        path = path / part


def _touched(plan: Plan) -> list[str]:
    """Names on disk now whose files go, are renamed, replaced or changed."""
    targets = [target for _, target in plan.transients.renames if target in plan.before.disk]
    names = {*plan.transients.removed, *(source for source, _ in plan.transients.renames), *targets}
    names |= {plan.folder.disk[name].name for name in disturbed_files(plan)}
    return sorted(names)


def _link_or_copy(before: Folder, kept: Kept, folder: Path) -> None:
    target = folder / kept.stored_as
    try:
        durable.link(Path(before.directory, kept.name), target)
    except StorageError as error:
        if error.missing:
            raise
        write_content(before, before.files[kept.name], target)
        durable.set_mtime_ms(target, kept.mtime_ms)
