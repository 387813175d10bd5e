"""Files by URI through `pyarrow.fs`, and through fsspec for schemes that pyarrow does not know."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator
from typing import Any, Self

import pyarrow as pa
from pyarrow import fs as pafs

from kseg.errors import OptionError, StorageError
from kseg.os_errors import storage_error
from kseg.storage import Entries, Entry, Writable, byte_view


@contextlib.contextmanager
def arrow_errors(path: str) -> Iterator[None]:
    """Turn what pyarrow and its stores raise inside into a StorageError that names `path`."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, path) from error
    except pa.ArrowException as error:
        raise StorageError(" ".join(str(error).split()), path=path) from error


def _entry(info: pafs.FileInfo) -> Entry:
    is_dir = info.type == pafs.FileType.Directory
    mtime_ns = info.mtime_ns
    return Entry(info.base_name, info.size or 0, -1 if mtime_ns is None else mtime_ns // 1_000_000, is_dir)


class ArrowFile:
    """An object of a store that pyarrow opened."""

    def __init__(self, store: ArrowStore, path: str) -> None:
        self.path = path
        self._store = store
        self.size, self.identity = store.identify(path)
        with arrow_errors(path):
            self._file = store.filesystem.open_input_file(path)

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
                if not part:
                    break
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

    def stat(self, path: str) -> Entry | None:
        """See Store."""
        info = self._info(path)
        return None if info.type == pafs.FileType.NotFound else _entry(info)

    def read(self, path: str, limit: int | None = None) -> bytes:
        """See Store."""
        with arrow_errors(path), self.filesystem.open_input_file(path) as file:
            return bytes(file.read() if limit is None else file.read(limit))

    def open(self, path: str) -> ArrowFile:
        """See Store."""
        return ArrowFile(self, path)

    def join(self, path: str, *names: str) -> str:
        """See Store."""
        return posixpath.join(path, *names)


def open_arrow_store(uri: str, scheme: str) -> tuple[ArrowStore, str]:
    """Find the file system of a URI: pyarrow's own first, then fsspec's."""
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
        return ArrowStore(filesystem), path
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            raise OptionError(f"{uri}: {error}") from error
    except pa.ArrowNotImplementedError:
        pass  # this build of pyarrow lacks the store; fsspec may have it
    except OSError as error:
        raise storage_error(error, uri) from error
    return _open_fsspec_store(uri, scheme)


def _open_fsspec_store(uri: str, scheme: str) -> tuple[ArrowStore, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise OptionError(
            f"{uri}: pyarrow does not know {scheme}://", hint="install fsspec to try more stores"
        ) from None
    try:
        filesystem, path = url_to_fs(uri)
    except ValueError as error:
        raise OptionError(f"{uri}: {error}") from error
    except ImportError as error:
        raise OptionError(f"{uri}: {scheme}:// needs a package: {error}") from error
    return ArrowStore(pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), filesystem), path
