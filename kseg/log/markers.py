"""Transaction markers that no broker can read, though the checksum of their batch fits: it does not start on them."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.errors import FormatError, LogError
from kseg.format.arrow import MAX_BATCH_BYTES, RecordDecoder
from kseg.log.walk import Chunk
from kseg.native import table as t
from kseg.native.headers import ABORT, COMMIT
from kseg.native.records import TOTALS, read_record
from kseg.schema import select_columns

_USUAL_SIZE: Final = t.HEADER_SIZE + 17
_USUAL: Final = {61: 32, 65: 8, 66: 0, 67: 0, 70: 12, 71: 0, 72: 0, 77: 0}
"""Bytes of a batch of that size: lengths of record, key and value, versions of key and value, number of headers."""
_KEY_SIZE: Final = 4
_VALUE_SIZE: Final = 6


def has_markers(table: t.Table, rows: int) -> bool:
    """Whether any batch is one that a broker takes for a transaction marker, readable or not."""
    if not np.bitwise_or.reduce(table[t.ATTRIBUTES, :rows]) & t.CONTROL_BIT:  # nearly always, and quick
        return False
    return bool(_are_markers(table, rows).any())


def _are_markers(table: t.Table, rows: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (table[t.ATTRIBUTES, :rows] & t.CONTROL_BIT != 0) & (table[t.MAGIC, :rows] >= 2)
    return found & (table[t.PRODUCER_ID, :rows] >= 0) & (table[t.COUNT, :rows] > 0)


def check_markers(chunk: Chunk, path: str) -> None:
    """Refuse a marker that cannot be read, as a broker does by not starting.

    Raises:
        LogError: There is one.
    """
    unreadable = unreadable_markers(chunk)
    if unreadable.any():
        row = int(unreadable.argmax())
        raise LogError(
            "a broker cannot load this log: a transaction marker cannot be read, though its checksum fits",
            path=path,
            position=int(chunk.table[t.POSITION, row]),
            offset=int(chunk.table[t.BASE_OFFSET, row]),
            hint="recover with --salvage --all to leave the marker out",
        )


def unreadable_markers(chunk: Chunk) -> NDArray[np.bool_]:
    """Which batches of a chunk hold a marker that a broker fails on.

    It reads the first record of control batches that have a producer. Those that look as brokers write them are told
    apart all at once; only what is odd is read one by one.
    """
    table, rows = chunk.table, chunk.rows
    if not has_markers(table, rows):
        return np.zeros(rows, np.bool_)
    found = _are_markers(table, rows)
    is_packed = table[t.ATTRIBUTES, :rows] & t.CODEC_MASK != 0
    usual = np.flatnonzero(found & ~is_packed & (table[t.SIZE, :rows] == _USUAL_SIZE))
    starts = table[t.POSITION, usual] - chunk.file_position
    same = chunk.data[starts[:, None] + np.array([*_USUAL])] == np.array([*_USUAL.values()], np.uint8)
    found[usual] = ~(same.all(axis=1) & np.isin(table[t.MARKER_TYPE, usual], (ABORT, COMMIT)))
    for row in np.flatnonzero(found).tolist():
        start = int(table[t.POSITION, row]) - chunk.file_position
        found[row] = not (
            _is_readable_packed(chunk, row)
            if is_packed[row]
            else _is_readable(chunk.data, start + t.HEADER_SIZE, start + int(table[t.SIZE, row]))
        )
    return found


def _is_readable(data: t.Bytes, start: int, end: int) -> bool:
    status, _, _, key, key_length, value, value_length, _, _ = read_record(data, start, end, np.zeros(TOTALS, np.int64))
    if status < 0 or key_length < _KEY_SIZE or value_length < _VALUE_SIZE:
        return False
    return _is_marker(data[key : key + _KEY_SIZE].tobytes(), data[value : value + _VALUE_SIZE].tobytes())


def _is_readable_packed(chunk: Chunk, row: int) -> bool:
    """The same for a compressed batch, which no broker writes: all its records are read, and the first counts."""
    decoder = RecordDecoder(select_columns(("key", "value")), topic="", partition=0, max_batch_bytes=MAX_BATCH_BYTES)
    skip = np.zeros(chunk.rows, np.bool_)
    args = (chunk.data, chunk.file_position, chunk.table, range(row, row + 1), skip, -(2**63), 2**63 - 1)
    try:
        batches = [batch for batch in decoder.decode(*args) if batch.num_rows]
    except FormatError:
        return False
    key, value = (batches[0].column(name)[0].as_py() for name in ("key", "value")) if batches else (None, None)
    return key is not None and value is not None and _is_marker(key, value)


def _is_marker(key: bytes, value: bytes) -> bool:
    if len(key) < _KEY_SIZE or len(value) < _VALUE_SIZE:
        return False
    key_version, kind = struct.unpack(">hh", key[:_KEY_SIZE])
    return key_version >= 0 and kind in (ABORT, COMMIT) and struct.unpack(">h", value[:2])[0] >= 0
