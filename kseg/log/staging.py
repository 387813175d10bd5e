"""Where a job keeps what it does not need afterwards: a hidden folder in the partition's, which a broker ignores."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kseg import durable
from kseg.errors import JobError, StorageError
from kseg.log.names import SIDE_DIR
from kseg.os_errors import storage_errors

PREFIX: Final = "work-"
GONE: Final = ".gone"
NONCE: Final = "nonce"


@contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """Make a folder for this run and take it away at the end; so do those of runs that died."""
    side = directory / SIDE_DIR
    folder = side / f"{PREFIX}{uuid.uuid4().hex}"
    remove_leftovers(directory)
    try:
        durable.make_dir(side, exist_ok=True)
        durable.make_dir(folder)
        yield folder
    except BaseException:
        with suppress(StorageError):  # what failed before is what counts
            remove_leftovers(directory)
        raise
    remove_leftovers(directory)


@contextmanager
def temporary_staging() -> Iterator[Path]:
    """Make such a folder outside of any log, in the directory for temporary files."""
    with storage_errors("the directory for temporary files"):
        made = tempfile.mkdtemp(prefix="kseg-")
    try:
        with staging(Path(made)) as folder:
            yield folder
    finally:
        shutil.rmtree(made, ignore_errors=True)


def has_leftovers(directory: Path) -> bool:
    """Whether a run that died has left its folder."""
    side = directory / SIDE_DIR
    with storage_errors(side):
        return side.is_dir() and (any(side.glob(PREFIX + "*")) or not any(side.iterdir()))


def remove_leftovers(directory: Path) -> None:
    """Take the folders of runs away, and the hidden one around them if there is nothing else in it."""
    side = directory / SIDE_DIR
    with storage_errors(side):
        if not side.is_dir():
            return
        folders = list(side.glob(PREFIX + "*"))
    for folder in folders:
        durable.remove_tree(_out_of_reach(folder))
    with suppress(StorageError):  # others keep things there too
        durable.remove_dir(side)


def _out_of_reach(folder: Path) -> Path:
    """Give a folder another name: an attempt of a task that still runs finds nothing to write to."""
    if folder.name.endswith(GONE):
        return folder
    gone = folder.with_name(folder.name + GONE)
    durable.rename(folder, gone)
    return gone


def write_side_file(directory: Path, name: str, data: bytes) -> None:
    """Put a file into the hidden folder, durably, in the place of one that is there."""
    side = directory / SIDE_DIR
    durable.make_dir(side, exist_ok=True)
    durable.publish(side / name, data)
    durable.fsync_dir(directory)


def drop_side_file(directory: Path, name: str) -> None:
    """Take a file out of the hidden folder, and the folder away if nothing else is in it."""
    side = directory / SIDE_DIR
    if not side.is_dir():
        return
    durable.unlink(side / name, missing_ok=True)
    try:
        durable.remove_dir(side)
    except StorageError:  # something else is in it
        durable.fsync_dir(side)


def write_nonce(folder: Path) -> bytes:
    """Leave a secret in a folder, by which a task can prove that it sees the same folder."""
    nonce = secrets.token_bytes(16)
    path = folder / NONCE
    with durable.closing(durable.create(path), path) as fd:
        durable.write_all(fd, nonce, path)
        durable.fsync_file(fd)
    return nonce


def check_nonce(folder: Path, nonce: bytes) -> None:
    """Prove that this process sees the folder in which `nonce` was left.

    Raises:
        JobError: It does not: a task that wrote here would write to another disk.
    """
    try:
        found = (folder / NONCE).read_bytes()
    except OSError:
        found = b""
    if found != nonce:
        raise JobError(
            "an executor does not see the directory that the driver works on",
            path=str(folder),
            hint="run on executors that share the disk, or without Spark",
        )
