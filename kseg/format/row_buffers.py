"""The Arrow buffers that one record batch is decoded into.

They come from Arrow's own pool, where released ones stay warm, at the size that the payloads are likely to need, or
could need at most; what was not needed is given back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.errors import CorruptRecordError
from kseg.native import records, rows, straight
from kseg.native import table as t
from kseg.native.gather import gather_headers
from kseg.schema import HEADER_TYPE

MAX_MICROSECONDS_AS_MS = (2**63 - 1) // 1000
NOTHING = np.empty(0, np.uint8)
_NO_NUMBERS = np.empty(0, np.int64)
_NO_OFFSETS = np.empty(0, np.int32)
_NO_PLACES = np.empty((2, 0), np.int64)


@dataclass(slots=True)
class Payloads:
    """Rows of a batch table whose payloads are in `data` or `arena`, as `fill_payloads` left them."""

    data: t.Bytes
    arena: t.Bytes
    table: t.Table
    skip: NDArray[np.bool_]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    kept: NDArray[np.int64]
    """Records that each row gave, written by `RowBuffers.fill`."""


class _Binary:
    """Offsets, content and validity of a binary column."""

    __slots__ = ("bitmap", "buffers", "content", "offsets")

    def __init__(self, count: int, size: int) -> None:
        self.buffers = pa.allocate_buffer(4 * (count + 1), resizable=True), pa.allocate_buffer(size, resizable=True)
        self.offsets = np.frombuffer(self.buffers[0], np.int32)
        self.content = np.frombuffer(self.buffers[1], np.uint8)
        self.bitmap = np.empty((count + 7) // 8, np.uint8)

    def array(self, count: int, size: int, nulls: int) -> pa.Array:
        offsets, content = self.buffers
        validity = pa.py_buffer(self.bitmap) if nulls else None
        buffers = [validity, _trimmed(offsets, 4 * (count + 1)), _trimmed(content, size)]
        return pa.Array.from_buffers(pa.binary(), count, buffers, null_count=nulls)


class RowBuffers:
    """Buffers for `count` records whose keys and values have so many bytes in all; `kinds` are wanted columns."""

    def __init__(self, kinds: Mapping[str, pa.DataType], count: int, *, key: int, value: int) -> None:
        self._kinds = kinds
        self.count = count = max(count, 1)
        self._numbers: dict[str, pa.Buffer] = {}
        self.offsets = self._allocate("offset", count) if "offset" in kinds or "sequence" in kinds else _NO_NUMBERS
        self._timestamps = self._allocate("timestamp", count) if "timestamp" in kinds else _NO_NUMBERS
        sizes = {"key": key, "value": value}
        self._binaries = {name: _Binary(count, max(size, 1)) for name, size in sizes.items() if name in kinds}
        self._places = np.empty((2, count), np.int64) if "headers" in kinds else _NO_PLACES

    def _allocate(self, name: str, count: int) -> NDArray[np.int64]:
        self._numbers[name] = pa.allocate_buffer(8 * count, resizable=True)
        return np.frombuffer(self._numbers[name], np.int64)

    def fill(
        self, payloads: Payloads, row: int, stop: int, start: int, end: int, state: NDArray[np.int64]
    ) -> tuple[int, int]:
        """Decode rows `[row, stop)`; return the row where it stopped and the status of `fill_rows`."""
        stopped, status = rows.fill_rows(
            payloads.data, payloads.arena, payloads.table, row, stop, payloads.skip, payloads.starts, payloads.ends,
            start, end, *self._outputs(), payloads.kept, state,
        )  # fmt: skip
        return int(stopped), int(status)

    def read(
        self,
        source: tuple[int, int, int, int],
        payloads: Payloads,
        aborted: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
        base_offset: int,
        limit: int,
        functions: NDArray[np.int64],
        start: int,
        end: int,
        cursor: NDArray[np.int64],
        state: NDArray[np.int64],
        saved: NDArray[np.int64],
    ) -> int:
        """Read on in a file; `source` is what `straight.read_rows` takes first: function, descriptor, end, most."""
        status = straight.read_rows(
            *source, payloads.data, payloads.table, payloads.skip, *aborted, base_offset, payloads.arena, limit,
            functions, payloads.starts, payloads.ends, start, end, *self._outputs(), payloads.kept, cursor, state,
            saved,
        )  # fmt: skip
        return int(status)

    def _outputs(self) -> tuple[int, Any, Any, int, int, Any, Any, Any, Any, Any, Any, Any]:
        """The arguments of kernels that fill them: room, numbers and binary columns, places of headers."""
        unit, largest = 1, 2**63 - 1
        if self._timestamps.size and self._kinds["timestamp"].unit == "us":
            unit, largest = 1000, MAX_MICROSECONDS_AS_MS
        numbers = (self.count, self.offsets, self._timestamps, unit, largest)
        return (*numbers, *self._views("key"), *self._views("value"), self._places)

    def _views(self, name: str) -> tuple[Any, Any, Any]:
        column = self._binaries.get(name)
        return (column.offsets, column.content, column.bitmap) if column else (_NO_OFFSETS, NOTHING, NOTHING)

    def array(self, name: str, state: NDArray[np.int64]) -> pa.Array:
        """The column `key`, `value`, `offset` or `timestamp`; a timestamp that its unit cannot hold is an error."""
        count = int(state[rows.FILLED])
        if name == "key":
            return self._binaries[name].array(count, int(state[records.KEY_BYTES]), int(state[records.NULL_KEYS]))
        if name == "value":
            return self._binaries[name].array(count, int(state[records.VALUE_BYTES]), int(state[records.NULL_VALUES]))
        if name == "timestamp" and state[rows.UNFIT_TIMESTAMP]:
            unfit = int(state[rows.UNFIT_TIMESTAMP])
            raise CorruptRecordError(f"a timestamp of {unfit} ms does not fit the microseconds of the column")
        buffer = _trimmed(self._numbers[name], 8 * count)
        return pa.Array.from_buffers(self._kinds[name], count, [None, buffer])

    def headers(self, payloads: Payloads, state: NDArray[np.int64]) -> pa.Array:
        """The column `headers`, of which there are some."""
        count, number = int(state[rows.FILLED]), int(state[records.HEADERS])
        list_offsets, key_offsets = pa.allocate_buffer(4 * (count + 1)), pa.allocate_buffer(4 * (number + 1))
        value_offsets = pa.allocate_buffer(4 * (number + 1))
        keys = pa.allocate_buffer(int(state[records.HEADER_KEY_BYTES]))
        values = pa.allocate_buffer(int(state[records.HEADER_VALUE_BYTES]))
        without, null_values = count - int(state[rows.WITH_HEADERS]), int(state[records.NULL_HEADER_VALUES])
        list_bitmap = np.zeros((count + 7) // 8, np.uint8) if without else NOTHING
        value_bitmap = np.zeros((number + 7) // 8, np.uint8) if null_values else NOTHING
        ascii_only = gather_headers(
            payloads.data, payloads.arena, self._places, count, np.frombuffer(list_offsets, np.int32), list_bitmap,
            np.frombuffer(key_offsets, np.int32), _writable(keys), np.frombuffer(value_offsets, np.int32),
            _writable(values), value_bitmap,
        )  # fmt: skip
        key_array = pa.Array.from_buffers(pa.string(), number, [None, key_offsets, keys])
        if not ascii_only:
            key_array = _mended_text(key_array)
        value_validity = pa.py_buffer(value_bitmap) if null_values else None
        value_array = pa.Array.from_buffers(pa.binary(), number, [value_validity, value_offsets, values])
        items = pa.StructArray.from_arrays([key_array, value_array], fields=list(HEADER_TYPE))
        list_validity = pa.py_buffer(list_bitmap) if without else None
        kind = self._kinds["headers"]
        return pa.Array.from_buffers(kind, count, [list_validity, list_offsets], null_count=without, children=[items])


def fixed_column(values: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """A column of integers, narrowed to its type."""
    width = np.dtype(kind.to_pandas_dtype())
    buffer = pa.allocate_buffer(values.size * width.itemsize)
    np.copyto(np.frombuffer(buffer, width), values, casting="unsafe")
    return pa.Array.from_buffers(kind, values.size, [None, buffer])


def _trimmed(buffer: pa.Buffer, size: int) -> pa.Buffer:
    """Cut a buffer to what was used; memory goes back where that is most of it, since it may cost a copy."""
    if size != buffer.size:
        buffer.resize(size, shrink_to_fit=2 * size < buffer.size)
    return buffer


def _writable(buffer: pa.Buffer) -> t.Bytes:
    return np.frombuffer(buffer, np.uint8) if buffer.size else np.empty(0, np.uint8)


def _mended_text(keys: pa.Array) -> pa.Array:
    """Replace what is not UTF-8, as Java's decoder does; nothing to do for sound text."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([text.as_buffer().to_pybytes().decode("utf-8", "replace") for text in keys], pa.string())
    return keys
