"""How a record of an internal topic says what it is; two ways exist.

    coordinator topics   key: i16 record type, key struct   value: i16 version, value struct; null: the key was deleted
    metadata topics      key: null                          value: uvarint frame (1), api key, version; then the struct

A decoded record is a dict: `type` (Kafka's name), `typeId`, `version`, `key`, `value`; `version` and `value` are None
for a deleted key. A type or version that is not in the tables is no error, since newer brokers write such records: it
becomes `{"type": "unknown", "reason": ..., "key": base64, "value": base64}`. Bytes that contradict themselves are a
`CorruptRecordError`. Bytes after the struct are an error in metadata topics and kept (`keyTrailing`, `valueTrailing`)
in coordinator topics, as Kafka's CoordinatorRecordSerde does not look at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kseg.errors import CorruptRecordError, OptionError
from kseg.internal.schema import REDACTED, UNKNOWN_TAGS, Fields, Message, message
from kseg.internal.values import from_base64, to_base64
from kseg.internal.wire import INT16, MAX_INT16, WireReader, write_uvarint

UNKNOWN: Final = "unknown"
TOMBSTONE: Final = "tombstone"
FRAME_VERSION: Final = 1
_KEY_VERSION: Final = 0  # every key struct has one version, and its leading number is the record type instead


@dataclass(frozen=True, slots=True)
class CoordinatorType:
    """A record type of a coordinator topic."""

    id: int
    name: str
    key: Message
    value: Message


def coordinator_type(
    id: int, name: str, key: str, value: str, *, versions: str = "0", flexible: str = "0+", **structs: str
) -> CoordinatorType:
    """Make a record type from the tables of its key and value."""
    return CoordinatorType(
        id,
        name,
        message(f"{name}Key", "0", "none", key),
        message(f"{name}Value", versions, flexible, value, structs),
    )


@dataclass(frozen=True, slots=True)
class CoordinatorRecords:
    """All record types of one coordinator topic."""

    types: Mapping[int, CoordinatorType]

    def decode(self, key: bytes | None, value: bytes | None) -> Fields:
        """Decode one record (see the head of this module)."""
        if key is None:
            raise CorruptRecordError("a coordinator's record has no key")
        key_reader = WireReader(key)
        type_id = key_reader.int16()
        kind = self.types.get(type_id)
        if kind is None:
            return unknown_record(f"record type {type_id}", key, value)
        decoded: Fields = {"type": kind.name, "typeId": type_id, "version": None}
        decoded["key"] = kind.key.read(key_reader, _KEY_VERSION)
        decoded["value"] = None
        readers = [("keyTrailing", key_reader)]
        if value is not None:
            value_reader = WireReader(value)
            version = value_reader.int16()
            if version not in kind.value.versions:
                return unknown_record(f"version {version} of {kind.value.name}", key, value)
            decoded["version"] = version
            decoded["value"] = kind.value.read(value_reader, version)
            readers.append(("valueTrailing", value_reader))
        for name, reader in readers:
            if reader.remaining:
                decoded[name] = to_base64(reader.raw(reader.remaining))
        return decoded

    def encode(self, decoded: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
        """Undo `decode`; `typeId` tells the type."""
        if decoded["type"] == UNKNOWN:
            return _unknown_bytes(decoded)
        kind = self.types.get(decoded["typeId"])
        if kind is None:
            raise OptionError(f"no record type {decoded['typeId']!r}")
        key = INT16.pack(kind.id) + kind.key.encode(decoded["key"], _KEY_VERSION)
        key += from_base64(decoded.get("keyTrailing", ""))
        if decoded["value"] is None:
            return key, None
        version = decoded["version"]
        value = INT16.pack(version) + kind.value.encode(decoded["value"], version)
        return key, value + from_base64(decoded.get("valueTrailing", ""))


@dataclass(frozen=True, slots=True)
class FramedRecords:
    """All record types of one metadata topic; bytes of an unknown version of the `sensitive` ones are not shown."""

    types: Mapping[int, Message]
    sensitive: frozenset[int] = frozenset()

    def decode(self, key: bytes | None, value: bytes, *, redact: bool = True) -> Fields:
        """Decode one record; Kafka writes no key, and one that is there is kept as it is."""
        reader = WireReader(value)
        frame = _frame_number(reader, "frame version")
        if frame != FRAME_VERSION:
            return unknown_record(f"frame version {frame}", key, value)
        api_key, version = _frame_number(reader, "api key"), _frame_number(reader, "version")
        kind = self.types.get(api_key)
        if kind is None:
            return unknown_record(f"api key {api_key}", key, value)
        secrets = kind.secrets if redact else ()
        if version not in kind.versions:
            decoded = unknown_record(f"version {version} of {kind.name}", key, value)
            return {**decoded, "value": REDACTED} if redact and api_key in self.sensitive else decoded
        fields = kind.read(reader, version)
        if reader.remaining:
            raise CorruptRecordError(f"{kind.name}: {reader.remaining} bytes left over at byte {reader.position}")
        if secrets:
            fields = {name: REDACTED if name in (*secrets, UNKNOWN_TAGS) else shown for name, shown in fields.items()}
        shown_key = None if key is None else to_base64(key)
        return {"type": kind.name, "typeId": api_key, "version": version, "key": shown_key, "value": fields}

    def encode(self, decoded: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
        """Undo `decode`; what was redacted cannot be written."""
        if decoded["type"] in (UNKNOWN, TOMBSTONE):
            return _unknown_bytes(decoded)
        key = decoded.get("key")
        value = self.encode_value(decoded["typeId"], decoded["version"], decoded["value"])
        return None if key is None else from_base64(key), value

    def encode_value(self, api_key: int, version: int, fields: Mapping[str, Any]) -> bytes:
        """Encode the frame and the struct of one record."""
        kind = self.types.get(api_key)
        if kind is None:
            raise OptionError(f"no record type {api_key!r}")
        out = bytearray()
        for number in (FRAME_VERSION, api_key, version):
            write_uvarint(out, number)
        return bytes(out) + kind.encode(fields, version)


def unknown_record(reason: str, key: bytes | None, value: bytes | None) -> Fields:
    """Show a record that the tables do not cover: its bytes, and what was not known."""
    return {
        "type": UNKNOWN,
        "reason": reason,
        "key": None if key is None else to_base64(key),
        "value": None if value is None else to_base64(value),
    }


def _unknown_bytes(decoded: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
    key, value = decoded["key"], decoded["value"]
    return None if key is None else from_base64(key), None if value is None else from_base64(value)


def _frame_number(reader: WireReader, what: str) -> int:
    number = reader.uvarint()
    if number > MAX_INT16:
        raise CorruptRecordError(f"{what} {number} is above {MAX_INT16}")
    return number
