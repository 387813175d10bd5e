"""The types that a table's fields can have: each builds its reader and its writer for one version."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kseg.errors import CorruptRecordError, OptionError
from kseg.internal.wire import INT16, INT32, WireReader, write_length

Reader = Callable[[WireReader], Any]
Writer = Callable[[bytearray, Any], None]

INT8: Final = struct.Struct(">b")
ZERO_UUID: Final = "A" * 22
_UUID_BYTES: Final = 16


class WireType(Protocol):
    """A type of the wire; `flexible` tells compact lengths from plain ones."""

    def zero(self) -> object:
        """Return the value that Kafka's classes start with."""

    def reader(self, version: int, flexible: bool) -> Reader:
        """Build the function that reads one value."""

    def writer(self, version: int, flexible: bool) -> Writer:
        """Build the function that appends one value."""


@dataclass(frozen=True, slots=True)
class Number:
    """An integer or a double of a fixed size."""

    layout: struct.Struct

    def zero(self) -> object:
        """Return nought."""
        return 0

    def reader(self, version: int, flexible: bool) -> Reader:
        """Build the reader."""
        layout = self.layout
        return lambda reader: reader.number(layout)

    def writer(self, version: int, flexible: bool) -> Writer:
        """Build the writer."""

        def write(out: bytearray, value: Any) -> None:
            try:
                out += self.layout.pack(value)
            except struct.error:
                raise OptionError(f"{value!r} does not fit the field's type") from None

        return write


@dataclass(frozen=True, slots=True)
class Boolean:
    """One byte; any but nought is true, as Kafka reads it."""

    def zero(self) -> object:
        """Return false."""
        return False

    def reader(self, version: int, flexible: bool) -> Reader:
        """Build the reader."""
        return lambda reader: reader.number(INT8) != 0

    def writer(self, version: int, flexible: bool) -> Writer:
        """Build the writer."""
        return lambda out, value: out.append(1 if value else 0)


@dataclass(frozen=True, slots=True)
class Identifier:
    """A uuid, as text of 22 characters: base64 with `-` and `_`, without padding."""

    def zero(self) -> object:
        """Return the uuid of noughts."""
        return ZERO_UUID

    def reader(self, version: int, flexible: bool) -> Reader:
        """Build the reader."""
        return lambda reader: base64.urlsafe_b64encode(reader.raw(_UUID_BYTES))[:-2].decode("ascii")

    def writer(self, version: int, flexible: bool) -> Writer:
        """Build the writer."""

        def write(out: bytearray, value: Any) -> None:
            data = b""
            if isinstance(value, str) and len(value) == len(ZERO_UUID):
                data = from_base64(value.replace("-", "+").replace("_", "/") + "==")
            if len(data) != _UUID_BYTES:
                raise OptionError(f"{value!r} is not a uuid in base64 of 22 characters")
            out += data

        return write


@dataclass(frozen=True, slots=True)
class Text:
    """A string in UTF-8."""

    nullable: bool = False

    def zero(self) -> object:
        """Return the empty string."""
        return ""

    def reader(self, version: int, flexible: bool) -> Reader:
        """Build the reader."""
        read_raw = _raw_reader(None if flexible else INT16, self.nullable)

        def read(reader: WireReader) -> str | None:
            data = read_raw(reader)
            try:
                return None if data is None else data.decode("utf-8")
            except UnicodeDecodeError:
                start = reader.position - len(data or b"")
                raise CorruptRecordError(f"string at byte {start} is not UTF-8") from None

        return read

    def writer(self, version: int, flexible: bool) -> Writer:
        """Build the writer."""
        layout = None if flexible else INT16

        def write(out: bytearray, value: Any) -> None:
            if not isinstance(value, str) and not (value is None and self.nullable):
                raise OptionError(f"{value!r} is not a string")
            try:
                _write_raw(out, None if value is None else value.encode("utf-8"), layout)
            except UnicodeEncodeError:
                raise OptionError(f"{value!r} has no UTF-8 form") from None

        return write


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes, as base64."""

    nullable: bool = False

    def zero(self) -> object:
        """Return no bytes."""
        return ""

    def reader(self, version: int, flexible: bool) -> Reader:
        """Build the reader."""
        read_raw = _raw_reader(None if flexible else INT32, self.nullable)

        def read(reader: WireReader) -> str | None:
            data = read_raw(reader)
            return None if data is None else to_base64(data)

        return read

    def writer(self, version: int, flexible: bool) -> Writer:
        """Build the writer."""
        layout = None if flexible else INT32

        def write(out: bytearray, value: Any) -> None:
            if value is None and not self.nullable:
                raise OptionError("null is not allowed here")
            _write_raw(out, None if value is None else from_base64(value), layout)

        return write


@dataclass(frozen=True, slots=True)
class Array:
    """A list of values of one type."""

    element: WireType
    nullable: bool = False

    def zero(self) -> object:
        """Return the empty list."""
        return []

    def reader(self, version: int, flexible: bool) -> Reader:
        """Build the reader."""
        read_element = self.element.reader(version, flexible)
        layout = None if flexible else INT32

        def read(reader: WireReader) -> list[Any] | None:
            count = reader.length(layout)
            if count is None:
                _check_null(self.nullable)
                return None
            return [read_element(reader) for _ in range(count)]

        return read

    def writer(self, version: int, flexible: bool) -> Writer:
        """Build the writer."""
        write_element = self.element.writer(version, flexible)
        layout = None if flexible else INT32

        def write(out: bytearray, value: Any) -> None:
            if value is None and self.nullable:
                write_length(out, None, layout)
                return
            if not isinstance(value, list | tuple):
                raise OptionError(f"{value!r} is not a list")
            write_length(out, len(value), layout)
            for element in value:
                write_element(out, element)

        return write


def to_base64(data: bytes) -> str:
    """Show bytes as text."""
    return base64.b64encode(data).decode("ascii")


def from_base64(text: Any) -> bytes:
    """Undo `to_base64`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise OptionError(f"{text!r} is not base64") from None


def _check_null(allowed: bool) -> None:
    if not allowed:
        raise CorruptRecordError("null where none is allowed")


def _raw_reader(layout: struct.Struct | None, nullable: bool) -> Callable[[WireReader], bytes | None]:
    def read(reader: WireReader) -> bytes | None:
        size = reader.length(layout)
        if size is None:
            _check_null(nullable)
            return None
        return reader.raw(size)

    return read


def _write_raw(out: bytearray, data: bytes | None, layout: struct.Struct | None) -> None:
    write_length(out, None if data is None else len(data), layout)
    if data is not None:
        out += data


PRIMITIVES: Final[dict[str, Callable[[bool], WireType]]] = {
    "int8": lambda _: Number(INT8),
    "int16": lambda _: Number(INT16),
    "uint16": lambda _: Number(struct.Struct(">H")),
    "int32": lambda _: Number(INT32),
    "int64": lambda _: Number(struct.Struct(">q")),
    "float64": lambda _: Number(struct.Struct(">d")),
    "bool": lambda _: Boolean(),
    "uuid": lambda _: Identifier(),
    "string": Text,
    "bytes": Blob,
}
