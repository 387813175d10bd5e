"""What the operating system says about files, as kseg's own errors."""

from __future__ import annotations

import errno
import os

from kseg.errors import StorageError

_RETRYABLE = frozenset(
    {
        *(errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED),
        *(errno.EIO, errno.ESTALE, errno.EPIPE, errno.ENETUNREACH, errno.EHOSTUNREACH),  # of network file systems too
    }
)
_PLAIN_MESSAGES = {
    errno.ENOENT: "no such file or directory",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.ENOSPC: "no space left on the device",
    errno.ENOTDIR: "not a directory",
    errno.EISDIR: "is a directory",
    errno.EEXIST: "already exists",
    errno.EROFS: "read-only file system",
}


def storage_error(error: OSError, path: str | os.PathLike[str]) -> StorageError:
    """Turn an operating system's error into kseg's, with one plain line and the path."""
    kind = error.errno or (errno.ENOENT if isinstance(error, FileNotFoundError) else 0)  # fsspec gives the path alone
    message = _PLAIN_MESSAGES.get(kind) or error.strerror or str(error)
    result = StorageError(message or type(error).__name__, path=os.fspath(path))
    result.errno = error.errno
    result.missing = isinstance(error, FileNotFoundError)
    result.retryable = error.errno in _RETRYABLE or isinstance(error, ConnectionError | TimeoutError)
    return result


class storage_errors:
    """Turn every OSError inside into a StorageError that names `path`; a class, since each read and write has one."""

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(error, self._path) from error
