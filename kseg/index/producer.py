"""Producer snapshots: what a broker knows of each idempotent or transactional producer at some offset.

The file `<offset>.snapshot` covers all records below the offset in its name. Layout, big-endian:

    i16 version (1), u32 CRC-32C of everything from the count to the end of the file, i32 count, then per producer
    i64 producer id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp,
    i32 coordinator epoch, i64 first offset of the open transaction

-1 stands for what is not there. A broker writes it without a rename, so a torn file is normal after a crash: its CRC
tells.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final

import crc32c
import numpy as np
from numpy.typing import NDArray

from kseg.errors import IndexFileError

VERSION: Final = 1
_HEADER = struct.Struct(">hIi")
_CRC_START: Final = 6
_ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("txn_first_offset", ">i8"),
    ]
)
_NAMES: Final = _ENTRY.names or ()
FIELDS: Final = 8


@dataclass(frozen=True, slots=True, order=True)
class ProducerEntry:
    """State of one producer: its newest batch, its last marker, its open transaction."""

    producer_id: int
    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int = -1

    @property
    def first_sequence(self) -> int:
        """Sequence of the newest batch's first record, -1 where there is no batch; sequences wrap at 2^31."""
        return -1 if self.last_sequence < 0 else (self.last_sequence - self.offset_delta) % 2**31

    @property
    def first_offset(self) -> int:
        """Base offset of the newest batch, -1 where there is none."""
        return -1 if self.last_offset < 0 else self.last_offset - self.offset_delta


def parse_columns(data: bytes, path: str | None = None) -> NDArray[np.int64]:
    """Read a snapshot's bytes into `columns[field, producer]`, the fields in ProducerEntry's order.

    Raises:
        IndexFileError: The version is unknown, the length is wrong or the checksum differs.
    """
    if len(data) < _HEADER.size:
        raise IndexFileError(f"producer snapshot of {len(data)} bytes is cut off", path=path, position=len(data))
    version, stored, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise IndexFileError(f"version {version} of a producer snapshot is unknown", path=path, position=0)
    computed = crc32c.crc32c(memoryview(data)[_CRC_START:])
    if computed != stored:
        raise IndexFileError(f"checksum {stored:08x}, computed {computed:08x}", path=path, position=2)
    wanted = _HEADER.size + count * _ENTRY.itemsize
    if count < 0 or len(data) < wanted:
        raise IndexFileError(f"{count} producers do not fit in {len(data)} bytes", path=path, position=_CRC_START)
    entries = np.frombuffer(data, _ENTRY, count, _HEADER.size)
    columns = np.empty((FIELDS, count), np.int64)
    for row, name in enumerate(_NAMES):
        columns[row] = entries[name]
    return columns


def format_columns(columns: NDArray[np.int64]) -> bytes:
    """Write `columns[field, producer]` as a snapshot's bytes."""
    entries = np.empty(columns.shape[1], _ENTRY)
    for row, name in enumerate(_NAMES):
        entries[name] = columns[row]
    body = entries.tobytes()
    counted = struct.pack(">i", columns.shape[1]) + body
    return _HEADER.pack(VERSION, crc32c.crc32c(counted), columns.shape[1]) + body


def parse_snapshot(data: bytes, path: str | None = None) -> list[ProducerEntry]:
    """Read a snapshot's bytes; see `parse_columns`."""
    return [ProducerEntry(*row) for row in parse_columns(data, path).T.tolist()]


def format_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Write producers as a snapshot's bytes."""
    return format_columns(columns_of(entries))


def columns_of(entries: Iterable[ProducerEntry]) -> NDArray[np.int64]:
    """Producers as `columns[field, producer]`."""
    rows = [astuple(entry) for entry in entries]
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, FIELDS).T)
