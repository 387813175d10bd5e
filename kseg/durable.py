"""Every change that kseg makes to local files.

No other module writes, renames or deletes. Each change is one small function here, so a test that replaces one function
can cut the power before, in the middle of, or after any of them. Nothing here is atomic or durable but what says so:
callers fsync files and directories in the order that their protocol asks for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.errors import StorageError
from kseg.os_errors import storage_errors

PathLike = str | os.PathLike[str]
Readable = bytes | bytearray | memoryview | NDArray[np.uint8]

TEMPORARY_SUFFIX = ".tmp"
WRITE_BACK_BYTES: Final = 8 << 20
_FILE_MODE = 0o666  # the umask decides, as it does for a broker


def create(path: PathLike, *, exclusive: bool = True) -> int:
    """Create a file and return its descriptor; one that exists is an error, or with exclusive=False is emptied."""
    return _open_new(path, os.O_EXCL if exclusive else os.O_TRUNC)


def open_append(path: PathLike) -> int:
    """Open a file so that every write goes to its end, creating it where it is missing; not for `write_at`."""
    return _open_new(path, os.O_APPEND)


def _open_new(path: PathLike, flags: int) -> int:
    """Open a file that may have to be made; what root makes belongs to the directory's owner, who has to write it.

    A name with a suffix more than that of a file is to take its place, so nobody else may read it either.
    """
    with storage_errors(path):
        fd = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
        try:
            status = os.fstat(fd)
            if os.geteuid() == 0 and status.st_uid == 0 and status.st_nlink == 1:
                _give_to_owner(fd, path)
            if not status.st_size:
                take_mode(path, Path(path).with_suffix(""))
        except OSError:
            os.close(fd)
            raise
    return fd


def take_mode(path: PathLike, like: PathLike) -> None:
    """Let those read and write a file who may another one, if that is there."""
    with contextlib.suppress(FileNotFoundError, PermissionError):  # somebody else's file stays as it is
        Path(path).chmod(stat.S_IMODE(Path(like).stat().st_mode))


def _give_to_owner(made: int | PathLike, path: PathLike) -> None:
    owner = Path(path).parent.stat()
    if owner.st_uid or owner.st_gid:
        with contextlib.suppress(PermissionError):  # a root that may not: the directory is a mount of another machine's
            os.chown(made, owner.st_uid, owner.st_gid)


def open_write(path: PathLike) -> int:
    """Open an existing file for `write_at` and `truncate`."""
    with storage_errors(path):
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def close(fd: int, path: PathLike = "") -> None:
    """Close a descriptor; some file systems report a failed write only here."""
    with storage_errors(path):
        os.close(fd)


@contextlib.contextmanager
def closing(fd: int, path: PathLike = "") -> Iterator[int]:
    """Give the descriptor and close it at the end."""
    try:
        yield fd
    finally:
        close(fd, path)


def write_all(fd: int, data: Readable, path: PathLike = "") -> None:
    """Write all bytes at the descriptor's place, however little the system takes at a time."""
    rest = _byte_view(data)
    with storage_errors(path):
        while rest.nbytes:
            rest = rest[os.write(fd, rest) :]


def write_pieces(fd: int, pieces: Iterable[Readable], path: PathLike = "") -> None:
    """Write pieces one after the other into a new file, to be fsynced by the caller.

    The kernel is told to write out what is there while more comes, so that the fsync has little left to wait for.
    """
    written = begun = 0
    for piece in pieces:
        write_all(fd, piece, path)
        written += _byte_view(piece).nbytes
        if written - begun >= WRITE_BACK_BYTES:
            end = written - written % WRITE_BACK_BYTES  # the page that is being filled would be written twice
            start_writing(fd, begun, end - begun)
            begun = end


def write_at(fd: int, position: int, data: Readable, path: PathLike = "") -> None:
    """Write all bytes at `position` without moving the descriptor's place."""
    rest = _byte_view(data)
    with storage_errors(path):
        while rest.nbytes:
            done = os.pwrite(fd, rest, position)
            rest, position = rest[done:], position + done


def _byte_view(data: Readable) -> memoryview:
    view = data.data if isinstance(data, np.ndarray) else memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def fsync_file(file: int | PathLike) -> None:
    """Force a file's bytes and metadata to the disk, by descriptor or by path."""
    if isinstance(file, int):
        with storage_errors(f"descriptor {file}"):
            os.fsync(file)
        return
    with storage_errors(file):
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def start_writing(fd: int, position: int, size: int) -> None:
    """Let the disk begin with bytes that were written, so that a later fsync waits less; this promises nothing."""
    with contextlib.suppress(OSError, AttributeError):  # where the advice is not known it is not needed either
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)  # pages that are not on the disk stay


def fsync_dir(path: PathLike) -> None:
    """Force a directory's names to the disk: what makes renames, creations and deletions in it durable."""
    with storage_errors(path):
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems know no fsync of directories
                raise
        finally:
            os.close(fd)


def rename(source: PathLike, target: PathLike) -> None:
    """Rename atomically; a target that exists is replaced."""
    with storage_errors(source):
        Path(source).replace(target)


def link(source: PathLike, target: PathLike) -> None:
    """Give a file a second name on the same file system; a target that exists is an error."""
    with storage_errors(target):
        os.link(source, target, follow_symlinks=False)


def unlink(path: PathLike, *, missing_ok: bool = False) -> None:
    """Delete a file."""
    with storage_errors(path):
        Path(path).unlink(missing_ok=missing_ok)


def truncate(file: int | PathLike, size: int) -> None:
    """Cut a file, or extend it with zeros, to `size` bytes, by descriptor or by path."""
    with storage_errors(f"descriptor {file}" if isinstance(file, int) else file):
        os.truncate(file, size)


def make_dir(path: PathLike, *, exist_ok: bool = False) -> None:
    """Make one directory; its parent has to be there."""
    with storage_errors(path):
        is_new = not Path(path).is_dir()
        Path(path).mkdir(exist_ok=exist_ok)
        if is_new and os.geteuid() == 0:
            _give_to_owner(path, path)


def remove_dir(path: PathLike) -> None:
    """Remove an empty directory."""
    with storage_errors(path):
        Path(path).rmdir()


def remove_tree(folder: PathLike) -> None:
    """Remove a directory with all that is in it, file by file; links are removed, and not followed."""
    with storage_errors(folder):
        paths = [(path, path.is_dir() and not path.is_symlink()) for path in Path(folder).iterdir()]
    for path, is_folder in paths:
        if is_folder:
            remove_tree(path)
        else:
            unlink(path, missing_ok=True)
    remove_dir(folder)


def set_mtime_ms(path: PathLike, mtime_ms: int) -> None:
    """Set when a file was last modified; retention reads it where a segment has no timestamps."""
    with storage_errors(path):
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))


def free_bytes(directory: PathLike) -> int:
    """How many bytes may still be written where a directory is; others may write them first."""
    with storage_errors(directory):
        status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def publish(path: PathLike, data: Readable) -> None:
    """Replace a small file atomically and durably, as Kafka replaces a checkpoint.

    `<name>.tmp` is written and fsynced, renamed over the name, and the directory fsynced. Who reads the name sees the
    old bytes or the new ones, after a crash too.
    """
    temporary = os.fspath(path) + TEMPORARY_SUFFIX
    try:
        with closing(create(temporary, exclusive=False), temporary) as fd:
            write_all(fd, data, temporary)
            fsync_file(fd)
        rename(temporary, path)
    except StorageError:
        unlink(temporary, missing_ok=True)
        raise
    fsync_dir(Path(path).parent)
