"""Kafka's wire primitives: a reader that never passes the end of its bytes, and the matching writer.

    type     plain                  compact (flexible versions)
    string   i16 length, -1 null    uvarint length + 1, 0 null
    bytes    i32 length, -1 null    uvarint length + 1, 0 null
    array    i32 count, -1 null     uvarint count + 1, 0 null

Numbers are big-endian. Every length is checked against what is left before anything is allocated, so a hostile length
costs nothing. What `schema` builds on top of this is made of tables, one per record type.
"""

from __future__ import annotations

import struct
from typing import Final

from kseg.errors import CorruptRecordError, OptionError

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")

MAX_INT32: Final = 2**31 - 1
MAX_INT16: Final = 2**15 - 1
_UVARINT_BYTES: Final = 5  # ByteUtils.readUnsignedVarint reads no more


class WireReader:
    """Walks over the bytes of one key or value; every failure is a `CorruptRecordError`."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)

    @property
    def remaining(self) -> int:
        """Bytes that were not read yet."""
        return self.end - self.position

    def advance(self, count: int) -> int:
        """Step over `count` bytes and return where they start."""
        start = self.position
        if count < 0 or count > self.end - start:
            raise CorruptRecordError(f"{count} bytes wanted at byte {start}, {self.end - start} left")
        self.position = start + count
        return start

    def number(self, layout: struct.Struct) -> int | float:
        """Read one number of a fixed size."""
        value: int | float = layout.unpack_from(self.data, self.advance(layout.size))[0]
        return value

    def int16(self) -> int:
        """Read a signed 16-bit integer."""
        return int(self.number(INT16))

    def raw(self, count: int) -> bytes:
        """Read `count` bytes as they are."""
        start = self.advance(count)
        return self.data[start : start + count]

    def uvarint(self) -> int:
        """Read an unsigned varint of at most 31 bits, which is all that Kafka uses for lengths, tags and versions."""
        value = 0
        for i in range(_UVARINT_BYTES):
            byte = self.data[self.advance(1)]
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                if value > MAX_INT32:
                    break
                return value
        raise CorruptRecordError(f"varint before byte {self.position} does not fit 31 bits")

    def length(self, layout: struct.Struct | None) -> int | None:
        """Read a length or count, in compact form where `layout` is None; None stands for null.

        A count above the bytes that are left is refused, as Kafka does: no element of any array takes less than one.
        """
        start = self.position
        value = self.uvarint() - 1 if layout is None else int(self.number(layout))
        if value == -1:
            return None
        if value < -1 or value > self.remaining:
            raise CorruptRecordError(f"length {value} at byte {start}, {self.remaining} bytes left")
        return value

    def narrow(self, size: int) -> int:
        """Make the next `size` bytes the end of what can be read; return the old end for `widen`."""
        outer = self.end
        self.end = self.advance(size) + size
        self.position -= size
        return outer

    def widen(self, outer: int) -> None:
        """Undo `narrow`; the narrowed part must have been read to its end."""
        if self.position != self.end:
            raise CorruptRecordError(f"{self.remaining} bytes of a tagged field were not used, at byte {self.position}")
        self.end = outer


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    if not 0 <= value <= MAX_INT32:
        raise OptionError(f"{value} is not an unsigned 31-bit number")
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_length(out: bytearray, value: int | None, layout: struct.Struct | None) -> None:
    """Append a length or count (None for null), in compact form where `layout` is None."""
    if layout is None:
        write_uvarint(out, 0 if value is None else value + 1)
        return
    limit = MAX_INT16 if layout.size == INT16.size else MAX_INT32
    if value is not None and value > limit:
        raise OptionError(f"length {value} is above {limit}")
    out += layout.pack(-1 if value is None else value)
