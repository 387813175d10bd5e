"""The manifest of a segment in the `chunked` layout: JSON of one line, as Aiven's plugin reads and writes it.

| field                      | what it says                                                                           |
|----------------------------|----------------------------------------------------------------------------------------|
| `version`                  | `"1"`                                                                                  |
| `chunkIndex`               | where each chunk of the log is (`kseg.tiering.chunk_index`)                            |
| `segmentIndexes`           | place of each index in the `.indexes` object; null where there is no transaction index |
| `compression`              | whether each chunk is a zstd frame                                                     |
| `encryption`               | wrapped data key and additional data of AES-GCM; absent where nothing is encrypted     |
| `remoteLogSegmentMetadata` | which segment this is; the plugin itself does not read it                              |

The plugin refuses fields that it does not know, except inside `remoteLogSegmentMetadata`; so does this reader.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kseg.errors import CorruptRecordError, FormatError, OptionError, UnsupportedError
from kseg.index.epoch import EpochStart
from kseg.tiering.chunk_index import ChunkIndex, FixedChunkIndex, VariableChunkIndex
from kseg.tiering.layout import RemoteName

VERSION: Final = "1"
MAX_MANIFEST_BYTES: Final = 64 << 20
_DATA_KEY = re.compile(r'"dataKey"\s*:\s*(?P<value>"(?:[^"\\]|\\.)*")')
_INDEX_NAMES: Final = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")


@dataclass(frozen=True, slots=True)
class Slice:
    """Where an index is in the `.indexes` object."""

    position: int
    size: int

    @property
    def end(self) -> int:
        """The byte behind it."""
        return self.position + self.size


@dataclass(frozen=True, slots=True)
class SegmentIndexes:
    """The slices of the `.indexes` object, in their order there; sizes are those of the stored bytes."""

    offset: Slice
    timestamp: Slice
    producer_snapshot: Slice
    leader_epoch: Slice
    transaction: Slice | None = None

    def __iter__(self) -> Iterator[Slice]:
        yield from (self.offset, self.timestamp, self.producer_snapshot, self.leader_epoch)
        if self.transaction is not None:
            yield self.transaction

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return max(part.end for part in self)


@dataclass(frozen=True, slots=True)
class EncryptionMetadata:
    """How the data key of a segment is wrapped, and the additional data of its chunks and indexes."""

    key_id: str
    wrapped_key: bytes = field(repr=False)
    aad: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not self.key_id or ":" in self.key_id:
            raise OptionError(f"{self.key_id!r} cannot be a key id: it must not be empty or hold a colon")


@dataclass(frozen=True, slots=True)
class RemoteSegmentMetadata:
    """Which segment the objects hold: what a broker keeps of it in `__remote_log_metadata`.

    Attributes:
        end_offset: The last offset of the segment: one less than the next segment's base.
        leader_epochs: Epochs inside the segment, the first one from its start offset on.
        txn_index_empty: Not told by brokers before 4.0: None.
    """

    name: RemoteName
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    leader_epochs: tuple[EpochStart, ...]
    txn_index_empty: bool | None = None

    @property
    def start_offset(self) -> int:
        """The first offset."""
        return self.name.start_offset


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """A manifest, taken apart; `parse` and `to_bytes` are each other's reverse."""

    chunk_index: ChunkIndex
    indexes: SegmentIndexes
    compression: bool
    encryption: EncryptionMetadata | None = None
    metadata: RemoteSegmentMetadata | None = None

    @classmethod
    def parse(cls, data: bytes, path: str | None = None) -> SegmentManifest:
        """Read a manifest's bytes.

        Raises:
            UnsupportedError: Another version, or a field that is not known.
            CorruptRecordError: Not a manifest.
        """
        try:
            return _parse(data)
        except FormatError as error:
            raise error.with_context(path=path) from None

    def to_bytes(self) -> bytes:
        """The manifest's bytes, in the plugin's own order of fields."""
        fields: dict[str, Any] = {
            "version": VERSION,
            "chunkIndex": self.chunk_index.to_fields(),
            "segmentIndexes": _index_fields(self.indexes),
            "compression": self.compression,
        }
        if self.encryption is not None:
            key = f"{self.encryption.key_id}:{_base64(self.encryption.wrapped_key)}"
            fields["encryption"] = {"dataKey": key, "aad": _base64(self.encryption.aad)}
        if self.metadata is not None:
            fields["remoteLogSegmentMetadata"] = _metadata_fields(self.metadata)
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def replace_data_key(data: bytes, encryption: EncryptionMetadata, path: str | None = None) -> bytes:
    """A manifest's bytes with another wrapped data key in them, and nothing else changed.

    Raises:
        CorruptRecordError: The manifest is broken, or does not tell one data key.
    """
    manifest = SegmentManifest.parse(data, path)
    text = data.decode("utf-8")
    found = [match for match in _DATA_KEY.finditer(text) if _is_data_key(match["value"], manifest.encryption)]
    if len(found) != 1:
        raise CorruptRecordError(f"the manifest holds its data key {len(found)} times", path=path)
    value = json.dumps(f"{encryption.key_id}:{_base64(encryption.wrapped_key)}", ensure_ascii=False)
    changed = (text[: found[0].start("value")] + value + text[found[0].end("value") :]).encode("utf-8")
    if SegmentManifest.parse(changed, path) != replace(manifest, encryption=encryption):
        raise CorruptRecordError("the data key in the manifest cannot be replaced alone", path=path)
    return changed


def _is_data_key(value: str, encryption: EncryptionMetadata | None) -> bool:
    if encryption is None:
        return False
    try:
        return _parse_encryption({"dataKey": json.loads(value), "aad": ""}).wrapped_key == encryption.wrapped_key
    except (ValueError, FormatError, OptionError):
        return False


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _index_fields(indexes: SegmentIndexes) -> dict[str, Any]:
    slices = [*indexes, None][: len(_INDEX_NAMES)]
    return {
        name: None if part is None else {"position": part.position, "size": part.size}
        for name, part in zip(_INDEX_NAMES, slices, strict=True)
    }


def _metadata_fields(metadata: RemoteSegmentMetadata) -> dict[str, Any]:
    name = metadata.name
    topic_partition = {"topic": name.topic, "partition": name.partition}
    fields: dict[str, Any] = {
        "remoteLogSegmentId": {
            "topicIdPartition": {"topicId": name.topic_id, "topicPartition": topic_partition},
            "id": name.segment_id,
        },
        "startOffset": name.start_offset,
        "endOffset": metadata.end_offset,
        "maxTimestampMs": metadata.max_timestamp_ms,
        "brokerId": metadata.broker_id,
        "eventTimestampMs": metadata.event_timestamp_ms,
        "segmentLeaderEpochs": {str(epoch): offset for epoch, offset in metadata.leader_epochs},
    }
    if metadata.txn_index_empty is not None:
        fields["txnIdxEmpty"] = metadata.txn_index_empty
    return fields


# -- reading -----------------------------------------------------------------------------------------------------------


def _parse(data: bytes) -> SegmentManifest:
    if len(data) > MAX_MANIFEST_BYTES:
        raise UnsupportedError(f"{len(data)} bytes are too many for a manifest")
    try:
        fields, _ = json.JSONDecoder().raw_decode(data.decode("utf-8").lstrip())
    except (ValueError, RecursionError) as error:
        raise CorruptRecordError(f"the manifest is no JSON: {type(error).__name__}") from None
    if not isinstance(fields, dict):
        raise CorruptRecordError("the manifest is no JSON object")
    if str(fields.get("version")) != VERSION:
        raise UnsupportedError(f"manifest version {str(fields.get('version'))[:20]!r} is unknown")
    _only(fields, "version chunkIndex segmentIndexes compression encryption remoteLogSegmentMetadata")
    compression = fields.get("compression")
    if not isinstance(compression, bool):
        raise CorruptRecordError("the manifest does not say whether chunks are compressed")
    encryption, metadata = fields.get("encryption"), fields.get("remoteLogSegmentMetadata")
    return SegmentManifest(
        _parse_chunk_index(_object(fields, "chunkIndex")),
        _parse_indexes(_object(fields, "segmentIndexes")),
        compression,
        None if encryption is None else _parse_encryption(_object(fields, "encryption")),
        None if metadata is None else _parse_metadata(_object(fields, "remoteLogSegmentMetadata")),
    )


def _only(fields: dict[str, Any], known: str) -> None:
    if unknown := fields.keys() - set(known.split()):
        raise UnsupportedError(f"the manifest has fields that are not known: {', '.join(sorted(unknown))[:100]}")


def _object(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise CorruptRecordError(f"{name} is missing in the manifest, or no object")
    return value


def _number(fields: dict[str, Any], name: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise CorruptRecordError(f"{name} in the manifest must be a number from {least} to {most}")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise CorruptRecordError(f"{name} in the manifest must be a string")
    return value


def _bytes(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise CorruptRecordError(f"{name} in the manifest is no base64") from None


def _parse_chunk_index(fields: dict[str, Any]) -> ChunkIndex:
    kind, limit = fields.get("type"), 2**31 - 1
    if kind == "fixed":
        _only(fields, "type originalChunkSize originalFileSize transformedChunkSize finalTransformedChunkSize")
        return FixedChunkIndex(
            _number(fields, "originalChunkSize", least=1, most=limit),
            _number(fields, "originalFileSize", most=limit),
            _number(fields, "transformedChunkSize", least=1, most=limit),
            _number(fields, "finalTransformedChunkSize", most=limit),
        )
    if kind == "variable":
        _only(fields, "type originalChunkSize originalFileSize transformedChunks")
        encoded = _bytes(_text(fields, "transformedChunks"), "transformedChunks")
        return VariableChunkIndex.parse(
            _number(fields, "originalChunkSize", least=1, most=limit),
            _number(fields, "originalFileSize", most=limit),
            encoded,
        )
    raise UnsupportedError(f"chunk index type {str(kind)[:20]!r} is unknown")


def _parse_indexes(fields: dict[str, Any]) -> SegmentIndexes:
    _only(fields, " ".join(_INDEX_NAMES))
    if "transaction" not in fields:
        raise CorruptRecordError("the manifest does not say whether there is a transaction index")
    slices = []
    for name in _INDEX_NAMES:
        if name == "transaction" and fields[name] is None:
            continue
        place = _object(fields, name)
        slices.append(Slice(_number(place, "position", most=2**31 - 1), _number(place, "size", most=2**31 - 1)))
    return SegmentIndexes(*slices)


def _parse_encryption(fields: dict[str, Any]) -> EncryptionMetadata:
    key_id, colon, wrapped = _text(fields, "dataKey").partition(":")
    if not key_id or not colon or ":" in wrapped:
        raise CorruptRecordError("dataKey in the manifest is not 'id:base64'")
    return EncryptionMetadata(key_id, _bytes(wrapped, "dataKey"), _bytes(_text(fields, "aad"), "aad"))


def _parse_metadata(fields: dict[str, Any]) -> RemoteSegmentMetadata:
    segment = _object(fields, "remoteLogSegmentId")
    topic = _object(segment, "topicIdPartition")
    partition = _object(topic, "topicPartition")
    start = _number(fields, "startOffset")
    try:
        name = RemoteName(
            _text(partition, "topic"),
            _number(partition, "partition", most=2**31 - 1),
            _text(topic, "topicId"),
            start,
            _text(segment, "id"),
        )
    except OptionError as error:
        raise CorruptRecordError(f"remoteLogSegmentId in the manifest: {error.message}") from None
    empty = fields.get("txnIdxEmpty")
    return RemoteSegmentMetadata(
        name,
        _number(fields, "endOffset", least=start),
        _number(fields, "maxTimestampMs", least=-1),
        _number(fields, "brokerId", least=-1),
        _number(fields, "eventTimestampMs", least=-1),
        _parse_epochs(_object(fields, "segmentLeaderEpochs")),
        empty if isinstance(empty, bool) else None,
    )


def _parse_epochs(fields: dict[str, Any]) -> tuple[EpochStart, ...]:
    if not all(epoch.isascii() and epoch.isdigit() and len(epoch) <= 10 for epoch in fields):
        raise CorruptRecordError("segmentLeaderEpochs in the manifest must have epochs for names")
    return tuple(sorted(EpochStart(int(epoch), _number(fields, epoch)) for epoch in fields))
