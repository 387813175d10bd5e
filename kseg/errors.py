"""Every error that kseg raises.

One root, `KsegError`, which carries the file, the byte position and the Kafka offset where they are known, prints
them in one line, and survives pickling (Spark sends errors between processes).
"""

from __future__ import annotations

from typing import Self


class KsegError(Exception):
    """Root of all kseg errors; `path`, `position` and `offset` say where, `hint` says what to do."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        position: int | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.position = position
        self.offset = offset
        self.hint = hint

    def with_context(self, *, path: str | None = None, position: int | None = None, offset: int | None = None) -> Self:
        """Add what the raiser could not know; what is already set stays."""
        self.path = self.path if self.path is not None else path
        self.position = self.position if self.position is not None else position
        self.offset = self.offset if self.offset is not None else offset
        return self

    def __str__(self) -> str:
        where = [self.path] if self.path is not None else []
        if self.position is not None:
            where.append(f"byte {self.position}")
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        text = ", ".join(where) + ": " + self.message if where else self.message
        text = f"{text}; {self.hint}" if self.hint else text
        return " ".join(text.split())

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(kind: type[KsegError], args: tuple[object, ...], state: dict[str, object]) -> KsegError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class OptionError(KsegError, ValueError):
    """An option, argument or setting is wrong; the message names it, its value and what is allowed."""


class FormatError(KsegError, ValueError):
    """Bytes break the format."""


class ChecksumError(FormatError):
    """A stored checksum differs from the computed one."""


class TruncatedError(FormatError):
    """The bytes end too early: normal at the tail of a segment that is being written, damage elsewhere."""


class CorruptRecordError(FormatError):
    """A batch or record contradicts itself: a length, a count, a varint."""


class UnreadableError(CorruptRecordError):
    """Bytes `[start, end)` of a file cannot be had from what is stored for them; those before were read."""

    start: int = 0
    end: int = 0


class UnsupportedError(FormatError):
    """A magic, codec, version or feature that kseg (and Kafka) does not know, or a size above a limit."""


class IndexFileError(KsegError):
    """A sidecar file (index, snapshot, checkpoint) is wrong; it can be rebuilt from the log."""


class LogError(KsegError):
    """Files of a log disagree with each other, or are missing."""


class OffsetOutOfRangeError(LogError, LookupError):
    """An offset or time outside what the log holds."""


class DataLossError(LogError):
    """Offsets that were promised are gone."""


class SegmentOverlapError(LogError):
    """Two segments claim the same offsets."""


class LockedError(LogError):
    """A broker or another job holds the directory's lock."""


class StorageError(KsegError, OSError):
    """A file or object store failed; `retryable`: trying again can help, `missing`: there is no such file."""

    retryable: bool = False
    missing: bool = False


class ConflictError(StorageError):
    """Someone else published first."""


class JobError(KsegError):
    """A job stopped part of the way; `report` holds what was done."""

    report: object = None
