"""What an export writes: how directories are divided, which columns, how large files are, how they are compressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

import pyarrow as pa

from kseg.errors import OptionError
from kseg.options import Isolation, SourceOptions
from kseg.schema import CORRUPT_COLUMN, CORRUPT_TYPE, RECORD_SCHEMA, select_columns

By = Literal["day", "hour"]

FILE_BYTES: Final = 128 << 20
ROW_GROUP_BYTES: Final = 32 << 20
CODECS: Final = ("snappy", "zstd", "lz4", "gzip", "brotli", "none")
_LEVELS: Final = {"zstd": range(1, 23), "gzip": range(1, 10), "brotli": range(12)}


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """How an export writes; `by`, `columns` and `isolation` hold for all runs of one target.

    Attributes:
        by: Directories a day or an hour, by the records' timestamps in UTC; None: a directory for each topic.
        columns: What stands in the files. The topic is in the names of directories, and so never among them.
        file_bytes: A file that has become this large is closed.
        row_group_bytes: About how much Arrow data goes into a row group.
    """

    by: By | None
    columns: tuple[str, ...]
    isolation: Isolation
    file_bytes: int = FILE_BYTES
    row_group_bytes: int = ROW_GROUP_BYTES
    compression: str = "snappy"
    compression_level: int | None = None

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file."""
        return _schema(self.columns)

    @property
    def read_schema(self) -> pa.Schema:
        """The columns to read: the timestamp too, where directories are made by it."""
        more = ("timestamp",) if self.by is not None and "timestamp" not in self.columns else ()
        return _schema((*self.columns, *more))


def make_settings(
    options: SourceOptions,
    *,
    by: str | None,
    file_bytes: int,
    row_group_bytes: int,
    compression: str,
    compression_level: int | None,
) -> ExportSettings:
    """Check what was asked for.

    Raises:
        OptionError: A value is not allowed.
    """
    if by not in (None, "day", "hour"):
        raise OptionError(f"by is {by!r}; valid values are 'day', 'hour' and None")
    if compression not in CODECS:
        raise OptionError(f"compression is {compression!r}; valid values are {', '.join(CODECS)}")
    if compression_level is not None and compression_level not in (allowed := _LEVELS.get(compression, range(0))):
        what = f"{allowed[0]} to {allowed[-1]}" if allowed else "none"
        raise OptionError(f"compression_level is {compression_level}; {compression} has {what}")
    for name, value in (("target_file_bytes", file_bytes), ("row_group_bytes", row_group_bytes)):
        if not isinstance(value, int) or value < 1:
            raise OptionError(f"{name} is {value!r}; it must be a number of bytes above 0")
    columns = [name for name in _columns(options) if name != "topic"]
    if not set(columns) - {CORRUPT_COLUMN}:
        raise OptionError("columns names nothing but the topic, which is in the names of directories")
    return ExportSettings(
        by=cast("By | None", by),
        columns=tuple(columns),
        isolation=options.isolation,
        file_bytes=file_bytes,
        row_group_bytes=min(row_group_bytes, file_bytes),
        compression=compression,
        compression_level=compression_level,
    )


def _columns(options: SourceOptions) -> tuple[str, ...]:
    """The columns that were asked for, with the one for damage last unless it has a place among them."""
    columns = options.columns
    if columns is None:
        columns = tuple(name for name in RECORD_SCHEMA.names if options.include_headers or name != "headers")
    if options.corrupt == "column":
        select_columns([name for name in columns if name != CORRUPT_COLUMN])
        return columns if CORRUPT_COLUMN in columns else (*columns, CORRUPT_COLUMN)
    return tuple(select_columns(columns).names)


def _schema(names: Sequence[str]) -> pa.Schema:
    records = select_columns([name for name in names if name != CORRUPT_COLUMN])
    damage = pa.field(CORRUPT_COLUMN, CORRUPT_TYPE)
    return pa.schema([damage if name == CORRUPT_COLUMN else records.field(name) for name in names])
