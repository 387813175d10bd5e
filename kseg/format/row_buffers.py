"""The Arrow buffers that one record batch is decoded into: parts of one block of memory.

It comes from Arrow's own pool, where released ones stay warm, at the size that the payloads are likely to need, or
could need at most; where most was not needed it is given back.
"""

from __future__ import annotations

import codecs
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.errors import CorruptRecordError
from kseg.native import records, row_block, rows, straight
from kseg.native import table as t
from kseg.native.gather import gather_headers
from kseg.schema import HEADER_TYPE

ALIGNMENT = 64  # of Arrow's buffers
NUMBER_BYTES = 24  # of a record: offset, timestamp, where key and value end
LEAST_BLOCK_BYTES = 64 << 10  # that are not worth it
MAX_TIMESTAMP = 2**63 - 1
NOTHING = np.empty(0, np.uint8)
_BINARY = pa.binary()
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
    places: NDArray[np.int64] = field(default_factory=lambda: _NO_PLACES)
    """Where the headers of each record are."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Where the columns of `count` records lie in one block of memory (`kseg.native.row_block`)."""

    count: int
    numbers: NDArray[np.int64]
    starts: tuple[int, ...]
    size: int


@functools.lru_cache(maxsize=64)
def lay_out(columns: frozenset[str], unit: int, count: int, key: int, value: int) -> RowLayout:
    """Lay out the wanted columns for `count` records whose keys and values have so many bytes in all."""
    sizes = [0] * row_block.OUTPUTS
    if "offset" in columns or "sequence" in columns:
        sizes[row_block.OFFSETS] = 8 * count
    if "timestamp" in columns:
        sizes[row_block.TIMESTAMPS] = 8 * count
    for name, first, size in (("key", row_block.KEY_OFFSETS, key), ("value", row_block.VALUE_OFFSETS, value)):
        if name in columns:
            sizes[first : first + 3] = 4 * (count + 1), (count + 7) // 8, max(size, 1)
    starts = [0, *itertools.accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
    numbers = np.array([count, unit, MAX_TIMESTAMP // unit, *starts], np.int64)
    return RowLayout(count, numbers, tuple(starts), starts[-1])


class RowBuffers:
    """Memory for the wanted columns of `count` records whose keys and values have so many bytes in all."""

    def __init__(self, kinds: Mapping[str, pa.DataType], count: int, *, key: int, value: int) -> None:
        self._kinds = kinds
        unit = 1000 if "timestamp" in kinds and kinds["timestamp"].unit == "us" else 1
        self._layout = lay_out(frozenset(kinds), unit, max(count, 1), key, value)
        self.count = self._layout.count
        self._block = pa.allocate_buffer(self._layout.size)
        self._bytes = np.frombuffer(self._block, np.uint8) if self._layout.size else NOTHING

    def fill(
        self, payloads: Payloads, row: int, stop: int, start: int, end: int, state: NDArray[np.int64]
    ) -> tuple[int, int]:
        """Decode rows `[row, stop)`; return the row where it stopped and the status of `fill_rows`."""
        room, unit, largest = self._layout.numbers[: row_block.STARTS].tolist()
        outputs = row_block.split_block(self._bytes, self._layout.numbers)
        stopped, status = rows.fill_rows(
            payloads.data, payloads.arena, payloads.table, row, stop, payloads.skip, payloads.starts, payloads.ends,
            start, end, room, *outputs[:2], unit, largest, *outputs[2:], self._places(payloads), payloads.kept, state,
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
    ) -> int:
        """Read on in a file; `source` is what `straight.read_rows` takes first: function, descriptor, end, most."""
        return straight.read_rows(
            *source, payloads.data, payloads.table, payloads.skip, *aborted, base_offset, payloads.arena, limit,
            functions, payloads.starts, payloads.ends, start, end, self._bytes, self._layout.numbers,
            self._places(payloads), payloads.kept, cursor, state,
        )  # fmt: skip

    def _places(self, payloads: Payloads) -> NDArray[np.int64]:
        """Room for the places of headers, if they are wanted; used again from record batch to record batch."""
        if "headers" not in self._kinds:
            return _NO_PLACES
        if payloads.places.shape[1] < self.count:
            payloads.places = np.empty((2, self.count), np.int64)
        return payloads.places

    def offsets(self, count: int) -> NDArray[np.int64]:
        """The first offsets of so many records."""
        return self._bytes[: 8 * count].view(np.int64)

    def give_back(self, totals: list[int]) -> None:
        """Let go of the memory where most of it was not needed, which costs a copy of the rest."""
        count, keys, values = totals[rows.FILLED], totals[records.KEY_BYTES], totals[records.VALUE_BYTES]
        if self._layout.size <= 2 * (NUMBER_BYTES * count + keys + values) + LEAST_BLOCK_BYTES:
            return
        smaller = RowBuffers(self._kinds, count, key=keys, value=values)
        pairs = itertools.pairwise(smaller._layout.starts)
        for first, (start, end) in zip(self._layout.starts, pairs, strict=False):
            smaller._bytes[start:end] = self._bytes[first : first + end - start]
        self._layout, self._block, self._bytes = smaller._layout, smaller._block, smaller._bytes

    def array(self, name: str, totals: list[int]) -> pa.Array:
        """The column `key`, `value`, `offset` or `timestamp`; a timestamp that its unit cannot hold is an error."""
        count = totals[rows.FILLED]
        if name == "key":
            return self._binary(row_block.KEY_OFFSETS, count, totals[records.KEY_BYTES], totals[records.NULL_KEYS])
        if name == "value":
            sizes = totals[records.VALUE_BYTES], totals[records.NULL_VALUES]
            return self._binary(row_block.VALUE_OFFSETS, count, *sizes)
        if name == "offset":
            return pa.Array.from_buffers(self._kinds[name], count, [None, self._block.slice(0, 8 * count)], 0)
        if totals[rows.UNFIT_TIMESTAMP]:
            unfit = totals[rows.UNFIT_TIMESTAMP]
            raise CorruptRecordError(f"a timestamp of {unfit} ms does not fit the microseconds of the column")
        buffer = self._block.slice(self._layout.starts[row_block.TIMESTAMPS], 8 * count)
        return pa.Array.from_buffers(self._kinds[name], count, [None, buffer], 0)

    def _binary(self, first: int, count: int, size: int, nulls: int) -> pa.Array:
        """A column whose offsets, bitmap and content follow each other."""
        offsets, bitmap, content = self._layout.starts[first : first + 3]
        part = self._block.slice
        validity = part(bitmap, (count + 7) // 8) if nulls else None
        buffers = [validity, part(offsets, 4 * (count + 1)), part(content, size)]
        return pa.Array.from_buffers(_BINARY, count, buffers, nulls)

    def headers(self, payloads: Payloads, totals: list[int]) -> pa.Array:
        """The column `headers`, of which there are some."""
        count, number = totals[rows.FILLED], totals[records.HEADERS]
        list_offsets, key_offsets = pa.allocate_buffer(4 * (count + 1)), pa.allocate_buffer(4 * (number + 1))
        value_offsets = pa.allocate_buffer(4 * (number + 1))
        keys = pa.allocate_buffer(totals[records.HEADER_KEY_BYTES])
        values = pa.allocate_buffer(totals[records.HEADER_VALUE_BYTES])
        without, null_values = count - totals[rows.WITH_HEADERS], totals[records.NULL_HEADER_VALUES]
        list_bitmap = np.zeros((count + 7) // 8, np.uint8) if without else NOTHING
        value_bitmap = np.zeros((number + 7) // 8, np.uint8) if null_values else NOTHING
        ascii_only = gather_headers(
            payloads.data, payloads.arena, payloads.places, count, np.frombuffer(list_offsets, np.int32), list_bitmap,
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


def _writable(buffer: pa.Buffer) -> t.Bytes:
    return np.frombuffer(buffer, np.uint8) if buffer.size else np.empty(0, np.uint8)


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for what Java's decoder takes as one: a surrogate is, of which Python makes one a byte."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    lead = error.object[error.start : error.start + 3]
    if lead[:1] == b"\xed" and b"\xa0" <= lead[1:2] <= b"\xbf":
        return "\ufffd", error.start + (3 if b"\x80" <= lead[2:] <= b"\xbf" else 2)
    return "\ufffd", error.end


_AS_JAVA: Final = "kseg-as-java"
codecs.register_error(_AS_JAVA, _replace_as_java)


def _mended_text(keys: pa.Array) -> pa.Array:
    """Replace what is not UTF-8, as Java's decoder does; nothing to do for sound text."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([text.as_buffer().to_pybytes().decode("utf-8", _AS_JAVA) for text in keys], pa.string())
    return keys
