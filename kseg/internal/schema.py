"""Record types as tables: a `Message` decodes and encodes every version of one struct of Kafka's protocol.

A table is text, one field a line, in the order of the wire:

    offset            int64
    leaderEpoch       int32   3+   =-1
    topicId           uuid    4+   tag=0
    members           []Member
      memberId          string
      groupInstanceId   string?  3+

name, type (`?` after it: may be null), versions (all, where not told), `=` a default, `tag=` for a tagged field,
`secret` for what must not be shown. Deeper lines are the fields of the struct above them; a struct that is used more
than once is given in `structs`.

Decoded values are plain: dicts, lists, numbers, text, None; a uuid is its 22 characters, bytes are base64. They are
what Kafka's own JSON converters print: a tagged field at its default is left out. Tags that the table does not know
are kept in `unknownTaggedFields`, so `encode(decode(x))` gives back `x` for all that Kafka writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kseg.errors import CorruptRecordError, OptionError
from kseg.internal import values
from kseg.internal.values import Reader, WireType, Writer
from kseg.internal.wire import MAX_INT16, WireReader, write_uvarint

Fields = dict[str, Any]

REDACTED: Final = "<redacted>"
UNKNOWN_TAGS: Final = "unknownTaggedFields"
_REQUIRED: Final = object()


def parse_versions(text: str) -> range:
    """Turn Kafka's notation (`2`, `1-3`, `4+`, `none`) into a range of versions."""
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), MAX_INT16 + 1)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a table."""

    name: str
    type: WireType
    versions: range
    default: object = _REQUIRED
    tag: int | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """A group of fields; a nullable one is preceded by a byte, or by a varint where it is a tagged field's value."""

    name: str
    fields: tuple[Field, ...]
    nullable: bool = False
    tagged: bool = False

    def zero(self) -> Fields:
        """Return the struct as Kafka's classes start it: each field at its default."""
        return {f.name: f.type.zero() if f.default is _REQUIRED else f.default for f in self.fields if f.tag is None}

    def reader(self, version: int, flexible: bool) -> Reader:
        """Build the function that reads this struct at one version."""
        present = [f for f in self.fields if version in f.versions]
        plain = [(f.name, f.type.reader(version, flexible)) for f in present if f.tag is None]
        tagged = {f.tag: (f.name, f.type.reader(version, flexible), f.default) for f in present if f.tag is not None}

        def read(reader: WireReader) -> Fields | None:
            if self.nullable and not self._is_present(reader):
                return None
            out: Fields = {}
            name = "tags"
            try:
                for name, read_field in plain:
                    out[name] = read_field(reader)
                if flexible:
                    name = "tags"
                    _read_tags(reader, out, tagged)
            except CorruptRecordError as error:
                raise CorruptRecordError(f"{self.name}.{name}: {error.message}") from None
            return out

        return read

    def writer(self, version: int, flexible: bool) -> Writer:
        """Build the function that writes this struct at one version."""
        present = [f for f in self.fields if version in f.versions]
        plain = [(f, f.type.writer(version, flexible)) for f in present if f.tag is None]
        tagged = [(f, f.type.writer(version, flexible)) for f in present if f.tag is not None]
        names = {f.name for f in present} | ({UNKNOWN_TAGS} if flexible else set())

        def write(out: bytearray, value: Any) -> None:
            if self.nullable:
                self._write_presence(out, value)
            if value is None and self.nullable:
                return
            if not isinstance(value, Mapping):
                raise OptionError(f"{self.name}: {value!r} is not a mapping of fields")
            if extra := sorted(set(value) - names):
                raise OptionError(f"{self.name} version {version} has no field {', '.join(extra)}")
            for f, write_field in plain:
                _write_field(out, self.name, f, write_field, value)
            if flexible:
                _write_tags(out, self.name, tagged, value)

        return write

    def _is_present(self, reader: WireReader) -> bool:
        if self.tagged:
            return reader.uvarint() > 0
        return reader.number(values.INT8) >= 0

    def _write_presence(self, out: bytearray, value: object) -> None:
        if self.tagged:
            write_uvarint(out, 0 if value is None else 1)
        else:
            out += values.INT8.pack(-1 if value is None else 1)


def _read_tags(reader: WireReader, out: Fields, known: Mapping[int, tuple[str, Reader, object]]) -> None:
    # Tags ascend and come once (KIP-482). Kafka's readers do not insist: any order will do, and the last one counts.
    unknown: dict[int, str] = {}
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        if tag not in known:
            unknown[tag] = values.to_base64(reader.raw(size))
            continue
        name, read_field, default = known[tag]
        outer = reader.narrow(size)
        value = read_field(reader)
        reader.widen(outer)
        if value == default:
            out.pop(name, None)
        else:
            out[name] = value
    if unknown:
        out[UNKNOWN_TAGS] = [{"tag": tag, "data": data} for tag, data in sorted(unknown.items())]


def _write_field(out: bytearray, struct: str, f: Field, write: Writer, given: Mapping[str, Any]) -> None:
    value = given.get(f.name, f.default)
    if value is _REQUIRED:
        raise OptionError(f"{struct}.{f.name} is missing")
    if f.secret and value == REDACTED:
        raise OptionError(f"{struct}.{f.name} was redacted and cannot be written")
    try:
        write(out, value)
    except OptionError as error:
        raise OptionError(f"{struct}.{f.name}: {error.message}") from None


def _write_tags(out: bytearray, struct: str, tagged: list[tuple[Field, Writer]], given: Mapping[str, Any]) -> None:
    encoded: dict[int, bytes] = {}
    for f, write in tagged:
        if f.tag is not None and given.get(f.name, f.default) != f.default:
            data = bytearray()
            _write_field(data, struct, f, write, given)
            encoded[f.tag] = bytes(data)
    for unknown in given.get(UNKNOWN_TAGS, ()):
        encoded[unknown["tag"]] = values.from_base64(unknown["data"])
    write_uvarint(out, len(encoded))
    for tag in sorted(encoded):
        write_uvarint(out, tag)
        write_uvarint(out, len(encoded[tag]))
        out += encoded[tag]


@dataclass(frozen=True, slots=True)
class Message:
    """A struct with its versions; which of them are flexible; the readers and writers that were built so far."""

    struct: Struct
    versions: range
    flexible: range
    _readers: dict[int, Reader] = field(default_factory=dict, compare=False, repr=False)
    _writers: dict[int, Writer] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Kafka's name of the struct."""
        return self.struct.name

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the fields that must not be shown."""
        return tuple(f.name for f in self.struct.fields if f.secret)

    def read(self, reader: WireReader, version: int) -> Fields:
        """Read one struct; what follows it is the caller's."""
        found = self._readers.get(version)
        if found is None:
            found = self._readers[version] = self.struct.reader(self._check(version), version in self.flexible)
        decoded: Fields = found(reader)
        return decoded

    def decode(self, data: bytes, version: int) -> Fields:
        """Decode bytes that hold this struct and nothing else."""
        reader = WireReader(data)
        decoded = self.read(reader, version)
        if reader.remaining:
            raise CorruptRecordError(f"{self.name}: {reader.remaining} bytes left over at byte {reader.position}")
        return decoded

    def encode(self, decoded: Mapping[str, Any], version: int) -> bytes:
        """Encode what `decode` gives, or a mapping like it; fields with a default may be left out."""
        found = self._writers.get(version)
        if found is None:
            found = self._writers[version] = self.struct.writer(self._check(version), version in self.flexible)
        out = bytearray()
        found(out, decoded)
        return bytes(out)

    def _check(self, version: int) -> int:
        if version not in self.versions:
            raise OptionError(f"{self.name} has no version {version}")
        return version


def message(
    name: str, versions: str, flexible: str, table: str = "", structs: Mapping[str, str] | None = None
) -> Message:
    """Make a `Message` from its table (see the head of this module)."""
    known: dict[str, tuple[Field, ...]] = {}
    for shared, text in (structs or {}).items():
        known[shared] = _parse_table(text, known)
    return Message(Struct(name, _parse_table(table, known)), parse_versions(versions), parse_versions(flexible))


def _parse_table(text: str, known: Mapping[str, tuple[Field, ...]]) -> tuple[Field, ...]:
    lines = [(len(line) - len(line.lstrip()), line.split()) for line in text.splitlines() if line.strip()]
    return tuple(_parse_block(lines, 0, len(lines), known))


def _parse_block(
    lines: list[tuple[int, list[str]]], start: int, end: int, known: Mapping[str, tuple[Field, ...]]
) -> Iterator[Field]:
    while start < end:
        depth, words = lines[start]
        stop = start + 1
        while stop < end and lines[stop][0] > depth:
            stop += 1
        inner = tuple(_parse_block(lines, start + 1, stop, known))
        yield _parse_field(words, inner, known)
        start = stop


def _parse_field(words: list[str], inner: tuple[Field, ...], known: Mapping[str, tuple[Field, ...]]) -> Field:
    name, kind, *rest = words
    versions, default, tag, secret = range(MAX_INT16 + 1), _REQUIRED, None, False
    for word in rest:
        if word == "secret":
            secret = True
        elif word.startswith("tag="):
            tag = int(word[4:])
        elif word.startswith("="):
            default = {"null": None, "true": True, "false": False}.get(word[1:], _REQUIRED)
            default = int(word[1:]) if default is _REQUIRED else default
        else:
            versions = parse_versions(word)
    nullable, array = kind.endswith("?"), kind.startswith("[]")
    base = kind.removesuffix("?").removeprefix("[]")
    element: WireType
    if base in values.PRIMITIVES:
        element = values.PRIMITIVES[base](nullable and not array)
    else:
        element = Struct(base, inner or known[base], nullable and not array, tag is not None)
    made = values.Array(element, nullable) if array else element
    if tag is not None and default is _REQUIRED:
        default = made.zero()
    return Field(name, made, versions, default, tag, secret)
