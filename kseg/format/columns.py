"""Arrow columns as the encoder takes them: where each field lies, and null as a length of -1.

Key, value and headers are taken from whatever Arrow type fits (binary, string, large and view variants, dictionaries);
timestamps from any unit or as milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kseg.errors import OptionError
from kseg.native import encode, records
from kseg.native.memory import as_array
from kseg.native.table import HEADER_SIZE, Bytes

INPUT_COLUMNS = ("key", "value", "headers", "timestamp", "offset")
IGNORED_COLUMNS = (
    "topic",
    "partition",
    "timestampType",
)  # what a read gives besides; the log that is written decides them
MAX_FIELD = 0x7FFFFFFF
EMPTY = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """Arguments of `native.encode.fill_batches`."""

    columns: NDArray[np.int64]
    keys: Bytes
    values: Bytes
    header_columns: NDArray[np.int64]
    header_keys: Bytes
    header_values: Bytes

    @property
    def rows(self) -> int:
        """How many records."""
        return int(self.columns.shape[1])

    def encoded_bound(self, batches: int) -> int:
        """Bytes that are enough for all records in `batches` batches."""
        data = self.keys.size + self.values.size + self.header_keys.size + self.header_values.size
        overhead = encode.RECORD_OVERHEAD * self.rows + encode.HEADER_OVERHEAD * self.header_columns.shape[1]
        return int(data + overhead + HEADER_SIZE * batches)


def encoder_input(batch: pa.RecordBatch, *, first_offset: int, now_ms: int) -> EncoderInput:
    """Check and lay out the columns of one record batch.

    Offsets are assigned from `first_offset` on unless a column gives them; then they must rise, and holes stay holes.
    A missing column is all null; a missing or null timestamp is `now_ms`.
    """
    given = _given_columns(batch)
    columns = np.empty((records.HEADERS_COUNT + 1, batch.num_rows), np.int64)
    columns[records.OFFSET] = _offsets(given.get("offset"), batch.num_rows, first_offset)
    columns[records.TIMESTAMP] = _timestamps(given.get("timestamp"), now_ms)
    keys = _fill_ranges(given.get("key"), "key", columns[records.KEY_START : records.KEY_LENGTH + 1])
    values = _fill_ranges(given.get("value"), "value", columns[records.VALUE_START : records.VALUE_LENGTH + 1])
    headers = given.get("headers")
    if headers is None or headers.null_count == batch.num_rows:
        columns[records.HEADERS_START :] = 0
        return EncoderInput(columns, keys, values, np.empty((encode.HEADER_COLUMNS, 0), np.int64), EMPTY, EMPTY)
    columns[records.HEADERS_START], columns[records.HEADERS_COUNT], items = _headers(headers)
    header_columns = np.empty((encode.HEADER_COLUMNS, len(items)), np.int64)
    header_keys = _fill_ranges(items.field("key"), "headers.key", header_columns[: encode.HEADER_VALUE_START])
    header_values = _fill_ranges(items.field("value"), "headers.value", header_columns[encode.HEADER_VALUE_START :])
    nowhere = header_columns[encode.HEADER_KEY_LENGTH] < 0
    if items.null_count:
        nowhere |= items.is_null().to_numpy(zero_copy_only=False)
    if nowhere.any() and nowhere[_used(columns)].any():
        raise OptionError("a header or its key is null; Kafka has no such headers")
    return EncoderInput(columns, keys, values, header_columns, header_keys, header_values)


def _given_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    names = batch.schema.names
    if not names:
        raise OptionError(f"there is no column; a log takes {', '.join(INPUT_COLUMNS)}")
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"column {name!r} is there twice")
        if name not in INPUT_COLUMNS and name not in IGNORED_COLUMNS:
            known = ", ".join(INPUT_COLUMNS)
            raise OptionError(f"unknown column {name!r}; a log takes {known}")
    return dict(zip(names, batch.columns, strict=True))


def _offsets(column: pa.Array | None, rows: int, first_offset: int) -> NDArray[np.int64]:
    if column is None:
        return np.arange(first_offset, first_offset + rows, dtype=np.int64)
    if column.null_count or not pa.types.is_integer(column.type):
        raise OptionError(f"column 'offset' must hold integers without nulls, got {column.type}")
    offsets: NDArray[np.int64] = _int64(column, "offset").to_numpy(zero_copy_only=False)
    falls = offsets <= np.append(first_offset - 1, offsets[:-1])  # no difference of two, which may overflow
    if falls.any():
        row = int(falls.argmax())
        before = offsets[row - 1] if row else first_offset - 1
        raise OptionError(f"column 'offset' must rise: row {row} has {offsets[row]}, which is not above {before}")
    return offsets


def _check_fraction(column: pa.Array) -> None:
    """Refuse a time before 1970 that would be cut to -1 ms, which means that there is none."""
    fraction = {"us": 1000, "ns": 1_000_000}.get(column.type.unit)
    if fraction is not None:
        least = pc.min(column.view(pa.int64())).as_py()
        if least is not None and least < 0 and least != -fraction:
            raise OptionError(f"column 'timestamp' has the negative value {least} {column.type.unit}; Kafka refuses it")


def _timestamps(column: pa.Array | None, now_ms: int) -> NDArray[np.int64] | int:
    if column is None or pa.types.is_null(column.type):
        return now_ms
    if pa.types.is_timestamp(column.type):
        _check_fraction(column)
        exact = column.type.unit == "s"  # finer units are cut to milliseconds
        column = _cast(column, pa.timestamp("ms", column.type.tz), "timestamp", safe=exact)
    elif not pa.types.is_integer(column.type):
        raise OptionError(f"column 'timestamp' must be a timestamp or milliseconds, got {column.type}")
    if column.null_count:
        column = pc.fill_null(_int64(column, "timestamp"), now_ms)
    stamps: NDArray[np.int64] = _int64(column, "timestamp").to_numpy(zero_copy_only=False)
    if stamps.size and stamps.min() < -1:
        raise OptionError(f"column 'timestamp' has the negative value {stamps.min()}; Kafka refuses it (-1 means none)")
    return stamps


def _int64(column: pa.Array, name: str) -> pa.Array:
    return column if pa.types.is_int64(column.type) else _cast(column, pa.int64(), name)


def _cast(column: pa.Array, kind: pa.DataType, name: str, *, safe: bool = True) -> pa.Array:
    try:
        return column.cast(kind, safe=safe)
    except pa.ArrowInvalid as error:
        raise OptionError(f"column {name!r} has a value that does not fit: {error}") from None


def _fill_ranges(array: pa.Array | None, name: str, ranges: NDArray[np.int64]) -> Bytes:
    """Fill starts and lengths of a variable-width array, -1 for null; return the bytes that they point into."""
    starts, lengths = ranges
    if array is None or pa.types.is_null(array.type):
        starts[:], lengths[:] = 0, -1
        return EMPTY
    array, width = _as_binary(array, name)
    if not len(array):
        return EMPTY
    _, offset_buffer, data_buffer = array.buffers()
    data = EMPTY if data_buffer is None else as_array(data_buffer)
    bounds = np.frombuffer(offset_buffer, width)[array.offset : array.offset + len(array) + 1]
    first, last = _check_bounds(bounds, len(array), data.size, name)
    np.subtract(bounds[:-1], first, out=starts, dtype=np.int64)
    np.subtract(bounds[1:], bounds[:-1], out=lengths, dtype=np.int64)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    if last - first > MAX_FIELD and lengths.max() > MAX_FIELD:
        raise OptionError(f"column {name!r} has a field of {lengths.max()} bytes; Kafka's limit is 2 GiB")
    return data[first:last]


def _check_bounds(bounds: NDArray[Any], count: int, size: int, name: str) -> tuple[int, int]:
    """Where so many ranges begin and end; Arrow itself does not look at the offsets of what it is handed."""
    if len(bounds) != count + 1 or bounds[0] < 0 or bounds[-1] > size or (bounds[1:] < bounds[:-1]).any():
        raise OptionError(f"column {name!r} is no valid Arrow array: its offsets do not rise within its data")
    return int(bounds[0]), int(bounds[-1])


def _as_binary(array: pa.Array, name: str) -> tuple[pa.Array, type[np.int32 | np.int64]]:
    """The same bytes as one of the two binary types, and the width of its offsets."""
    kind = array.type
    if pa.types.is_binary(kind):
        return array, np.int32
    if pa.types.is_string(kind):
        return array.view(pa.binary()), np.int32
    if pa.types.is_large_string(kind):
        return array.view(pa.large_binary()), np.int64
    try:
        return array.cast(pa.large_binary()), np.int64
    except pa.ArrowException:
        raise OptionError(f"column {name!r} must hold bytes or text, got {kind}") from None


def _used(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of the headers that some record has; a null list may hide others."""
    firsts, counts = columns[records.HEADERS_START], columns[records.HEADERS_COUNT]
    ends = np.cumsum(counts)
    return np.repeat(firsts - ends + counts, counts) + np.arange(ends[-1] if ends.size else 0)


def _headers(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.StructArray]:
    """First header and number of headers of each row, and the headers themselves."""
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise OptionError(f"column 'headers' must be a list of (key, value) structs, got {array.type}")
    items = array.values
    names = [field.name for field in items.type] if pa.types.is_struct(items.type) else []
    if names != ["key", "value"]:
        raise OptionError(f"column 'headers' must be a list of (key, value) structs, got {array.type}")
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first, last = _check_bounds(offsets, len(array), len(items), "headers")
    counts = np.diff(offsets)
    if array.null_count:
        counts[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return offsets[:-1] - first, counts, items.slice(first, last - first)
