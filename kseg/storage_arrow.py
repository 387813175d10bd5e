"""Files by URI through `pyarrow.fs`, and through fsspec for schemes that pyarrow does not know."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Self

import pyarrow as pa
from pyarrow import fs as pafs

from kseg.errors import KsegError, OptionError, StorageError
from kseg.os_errors import storage_error
from kseg.storage import Entries, Entry, Writable, byte_view

CONNECT_S: Final = 5.0
SILENCE_S: Final = 10.0
"""How long a server may say nothing: pyarrow's own limits would wait more than a minute and a half for one call."""
UNSENT_BYTES: Final = 64 << 20
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}  # Hadoop's names of a store that pyarrow knows
_PACKAGES: Final = {"az": "adlfs", "adl": "adlfs", "gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs"}
_HOPELESS: Final = re.compile(
    r"ACCESS_DENIED|NO_SUCH_|INVALID_|SIGNATURE|MISSING_|UNRECOGNIZED_CLIENT|NOT_INITIALIZED|OPTED_OUT"  # S3
    r"|PERMISSION_DENIED|UNAUTHENTICATED"  # Google
    r"|AuthorizationFailure|AuthorizationPermissionMismatch|AuthenticationFailed|ContainerNotFound"  # Azure
    r"|HTTP status (?!408|429)[34]\d\d|permission denied"
)
_FINAL: Final = (
    *(FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError),
    *(ValueError, TypeError, NotImplementedError, ImportError),
)
_MISSING_LIBRARY: Final = re.compile(r"Unable to load lib\w+")
_SECRET: Final = re.compile(r"\b(sig|signature|token|secret|password|key)=[^&\s'\"]+", re.IGNORECASE)


PathEntries = list[tuple[str, Entry]]


@contextlib.contextmanager
def arrow_errors(path: str) -> Iterator[None]:
    """Turn what pyarrow and its stores raise inside into a StorageError that names `path`.

    Clients of stores have errors of their own, which come through pyarrow as they are.
    """
    try:
        yield
    except KsegError:
        raise
    except OSError as error:
        found = storage_error(error, path)
        found.message = _SECRET.sub(r"\1=...", found.message)
        found.retryable = is_passing(error)
        raise found from error
    except pa.ArrowException as error:
        raise StorageError(" ".join(str(error).split()), path=path) from error
    except Exception as error:
        text = _SECRET.sub(r"\1=...", " ".join(str(error).split()))
        found = StorageError(f"{type(error).__name__}: {text}", path=path)
        found.retryable = is_passing(error)
        raise found from None  # its own text may hold a signed address


def is_passing(error: Exception) -> bool:
    """Whether a store's error can be gone at the next try: a server that is busy, or not reached."""
    if isinstance(error, _FINAL):
        return False
    status = next((s for n in ("status_code", "status", "code") if isinstance(s := getattr(error, n, None), int)), 500)
    is_refused = 300 <= status < 500 and status not in (408, 429)
    return not is_refused and not _HOPELESS.search(str(error)) and "Credential" not in type(error).__name__


def _entry(info: pafs.FileInfo) -> Entry:
    is_dir = info.type == pafs.FileType.Directory
    mtime_ns = info.mtime_ns
    return Entry(info.base_name, info.size or 0, -1 if mtime_ns is None else mtime_ns // 1_000_000, is_dir)


def _short(path: str, got: int, wanted: int) -> StorageError:
    error = StorageError(f"the store's answer ended at byte {got}, asked was for {wanted}", path=path)
    error.retryable = True
    return error


class ArrowFile:
    """An object of a store that pyarrow opened."""

    def __init__(self, store: ArrowStore, path: str) -> None:
        self.path = path
        self._store = store
        self.size, self.identity = store.identify(path)
        with arrow_errors(path):
            self._file = store.filesystem.open_input_file(path)
            size = self._file.size()
        if size != self.size:  # two answers: one of them was cut short
            raise _short(path, min(size, self.size), max(size, self.size))

    def refresh(self) -> int:
        """See RandomFile; objects do not grow, but a file behind a URI may: it is opened again then."""
        size, identity = self._store.identify(self.path)
        if size != self.size:
            with arrow_errors(self.path):
                self._file.close()
                self._file = self._store.filesystem.open_input_file(self.path)
            self.size, self.identity = size, identity
        return self.size

    def read_into(self, position: int, view: Writable) -> int:
        """See RandomFile."""
        target = byte_view(view)
        wanted = min(target.nbytes, self.size - position)  # stores differ in what they say to a read past the end
        done = 0
        with arrow_errors(self.path):
            while done < wanted:
                part = self._file.read_at(wanted - done, position + done)
                if not part:  # a connection that broke in the middle can look like the end
                    raise _short(self.path, position + done, position + wanted)
                target[done : done + len(part)] = part
                done += len(part)
        return done

    def is_cached(self, start: int, end: int) -> bool:
        """See RandomFile; the store's own caches are its own business."""
        return True

    def drop_cache(self, start: int, end: int) -> None:
        """See RandomFile; there is no page cache to spare."""

    def close(self) -> None:
        """See RandomFile."""
        with arrow_errors(self.path):
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class ArrowStore:
    """A store that pyarrow, or fsspec under it, reaches."""

    def __init__(self, filesystem: pafs.FileSystem, fsspec_filesystem: Any = None) -> None:
        self.filesystem = filesystem
        self._fsspec = fsspec_filesystem

    def identify(self, path: str) -> tuple[int, str]:
        """Size and identity of a file; the identity is the ETag where the store tells one."""
        info = self._info(path)
        if info.type == pafs.FileType.NotFound:
            error = StorageError("no such file or directory", path=path)
            error.missing = True
            raise error
        if info.type == pafs.FileType.Directory:
            raise StorageError("is a directory", path=path)
        etag = None
        if self._fsspec is not None:
            with arrow_errors(path):
                details = self._fsspec.info(path)
            etag = details.get("ETag") or details.get("etag")
        return info.size or 0, str(etag) if etag else f"{info.mtime_ns}:{info.size}"

    def _info(self, path: str) -> pafs.FileInfo:
        with arrow_errors(path):
            return self.filesystem.get_file_info(path)

    def list(self, path: str) -> Entries:
        """See Store."""
        with arrow_errors(path):
            infos = self.filesystem.get_file_info(pafs.FileSelector(path))
        entries = [_entry(info) for info in infos if info.base_name]
        return sorted(entries, key=lambda entry: entry.name)

    def list_below(self, path: str) -> PathEntries:
        """Paths of all files below a directory, each with what is there; none where there is no such directory."""
        with arrow_errors(path):
            infos = self.filesystem.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
        return [(info.path, _entry(info)) for info in infos if info.type == pafs.FileType.File]

    def write(self, path: str, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write a file, in parts, with bounded memory; where that fails, nothing is left of it, as far as can be."""
        unsent = 0
        with arrow_errors(path):
            stream = self.filesystem.open_output_stream(path, compression=None, buffer_size=0)
        try:
            with arrow_errors(path), stream:
                for piece in pieces:
                    stream.write(piece)
                    unsent += len(piece)
                    if unsent >= UNSENT_BYTES:  # pyarrow sends parts behind our back, and would keep all that wait
                        stream.flush()
                        unsent = 0
        except KsegError:  # to close a stream, which is all that pyarrow offers, publishes what was sent
            with contextlib.suppress(StorageError):
                self.delete(path)
            raise

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""
        try:
            with arrow_errors(path):
                self.filesystem.delete_file(path)
        except StorageError as error:
            if self.stat(path) is not None:
                raise error

    def stat(self, path: str) -> Entry | None:
        """See Store."""
        info = self._info(path)
        return None if info.type == pafs.FileType.NotFound else _entry(info)

    def read(self, path: str, limit: int | None = None) -> bytes:
        """See Store."""
        with arrow_errors(path), self.filesystem.open_input_file(path) as file:
            wanted = file.size() if limit is None else min(limit, file.size())
            data = bytes(file.read(wanted))
        if len(data) < wanted:
            raise _short(path, len(data), wanted)
        return data

    def open(self, path: str) -> ArrowFile:
        """See Store."""
        return ArrowFile(self, path)

    def join(self, path: str, *names: str) -> str:
        """See Store."""
        return posixpath.join(path, *names)


def open_arrow_store(uri: str, scheme: str) -> tuple[ArrowStore, str]:
    """Find the file system of a URI: pyarrow's own first, then fsspec's."""
    scheme = scheme.lower()
    known = _SCHEMES.get(scheme, scheme)
    try:
        filesystem, path = pafs.FileSystem.from_uri(_with_limits(known, known + uri[len(scheme) :]))
        return ArrowStore(_impatient(filesystem)), path
    except pa.ArrowInvalid as error:
        if "valid account name" in str(error):
            hint = "write abfss://container@account.dfs.core.windows.net/prefix"
            raise OptionError(f"{uri}: the URI names no storage account", hint=hint) from error
        if "Unrecognized filesystem type" not in str(error):
            raise OptionError(f"{uri}: {error}") from error
    except pa.ArrowNotImplementedError:
        pass  # this build of pyarrow lacks the store; fsspec may have it
    except OSError as error:
        if (missing := _MISSING_LIBRARY.match(str(error))) is not None:  # and then every place it was looked for
            hint = "pyarrow reaches hdfs:// by Hadoop's libraries: set JAVA_HOME, HADOOP_HOME and CLASSPATH"
            raise OptionError(f"{uri}: {missing[0]}", hint=hint) from error
        raise storage_error(error, uri) from error
    return _open_fsspec_store(uri, scheme)


def _with_limits(scheme: str, uri: str) -> str:
    """A URI that lets pyarrow's client of Google's store try for a short time: by itself it does for 15 minutes."""
    if scheme not in ("gs", "gcs") or "retry_limit_seconds=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={SILENCE_S:.0f}"


def _impatient(filesystem: pafs.FileSystem) -> pafs.FileSystem:
    """The same file system, with limits on how long a silent server is waited for; a URI cannot tell them."""
    if not isinstance(filesystem, pafs.S3FileSystem):
        return filesystem
    make, (options,) = filesystem.__reduce__()
    limits = {"connect_timeout": CONNECT_S, "request_timeout": SILENCE_S}
    given = {name: value for name, value in options.items() if name not in limits or value > 0}
    found: pafs.FileSystem = make({**limits, **given})
    return found


def _open_fsspec_store(uri: str, scheme: str) -> tuple[ArrowStore, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        package = " ".join(["fsspec", *([_PACKAGES[scheme]] if scheme in _PACKAGES else [])])
        raise OptionError(f"{uri}: pyarrow does not know {scheme}://", hint=f"pip install {package}") from None
    try:
        filesystem, path = url_to_fs(uri)
    except (ValueError, TypeError) as error:  # a TypeError: the client needs more than a URI
        raise OptionError(f"{uri}: {error}") from error
    except ImportError as error:
        hint = f"pip install {_PACKAGES[scheme]}" if scheme in _PACKAGES else None
        raise OptionError(f"{uri}: {scheme}:// needs a package: {error}", hint=hint) from error
    except OSError as error:  # some clients connect as soon as they are made
        raise storage_error(error, uri) from error
    return ArrowStore(pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), filesystem), path
