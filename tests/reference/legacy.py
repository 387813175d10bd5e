"""Message sets of magic 0 and 1: entries of offset i64, size i32 and a message, which may wrap a compressed set.

Message: crc u32, magic i8, attributes i8, timestamp i64 (magic 1 only), key length i32, key, value length i32, value.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.reference import codecs
from tests.reference.batch import walk
from tests.reference.errors import GreyError, RejectedError
from tests.reference.record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Record

MIN_SIZE = 14
LAT_BIT = 0x08


@dataclass(frozen=True)
class Message:
    """One message as it stands in the bytes, its value perhaps compressed."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    size: int
    crc_ok: bool

    @property
    def codec(self) -> int:
        """Codec number."""
        return self.attributes & 0x07

    @property
    def timestamp_type(self) -> int:
        """What the timestamp means; magic 0 has none."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & LAT_BIT else CREATE_TIME


def _sized(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else len(data).to_bytes(4, "big") + data


def encode_message(record: Record, magic: int, attributes: int = 0) -> bytes:
    """Write one entry; its value is taken as it is."""
    body = bytes([magic, attributes])
    if magic == 1:
        body += record.timestamp.to_bytes(8, "big", signed=True)
    body += _sized(record.key) + _sized(record.value)
    message = zlib.crc32(body).to_bytes(4, "big") + body
    return record.offset.to_bytes(8, "big", signed=True) + len(message).to_bytes(4, "big") + message


def encode_set(records: Sequence[Record], magic: int, codec: int = 0, *, append_time: int | None = None) -> bytes:
    """Write a message set: plain messages, or one wrapper around all of them.

    Inner offsets of magic 1 are relative to the first record; with `append_time` the wrapper has LogAppendTime.
    """
    flags = 0 if append_time is None else LAT_BIT
    if codec == 0:
        stamped = [r if append_time is None else replace(r, timestamp=append_time) for r in records]
        return b"".join(encode_message(record, magic, flags) for record in stamped)
    base = records[0].offset if magic == 1 else 0
    inner = b"".join(encode_message(replace(record, offset=record.offset - base), magic) for record in records)
    stamp = max(record.timestamp for record in records) if append_time is None else append_time
    packed = codecs.compress(codec, inner, magic)
    return encode_message(Record(records[-1].offset, stamp, None, packed), magic, flags | codec)


def repair(entry: bytes) -> bytes:
    """Give an entry the checksum that fits it."""
    return entry[:12] + zlib.crc32(entry[16:]).to_bytes(4, "big") + entry[16:]


def _take(data: bytes, position: int) -> tuple[bytes | None, int]:
    if len(data) - position < 4:
        raise RejectedError("message ends early")
    size = int.from_bytes(data[position : position + 4], "big", signed=True)
    position += 4
    if size < 0:
        return None, position
    if size > len(data) - position:
        raise RejectedError(f"field of {size} bytes where {len(data) - position} are left")
    return data[position : position + size], position + size


def read_message(entry: bytes, *, inner: bool = False) -> Message:
    """Read one whole entry."""
    body = entry[12:]
    if len(body) < MIN_SIZE:
        raise RejectedError(f"message of {len(body)} bytes")
    magic, attributes = body[4], body[5]
    if magic not in (0, 1):
        raise (GreyError if inner else RejectedError)(f"magic {magic}")  # inside a wrapper Kafka takes any for a 1
    position, timestamp = 6, -1
    if magic == 1:
        timestamp, position = int.from_bytes(body[6:14], "big", signed=True), 14
    key, position = _take(body, position)
    value, _ = _take(body, position)
    crc_ok = int.from_bytes(body[:4], "big") == zlib.crc32(body[4:])
    offset = int.from_bytes(entry[:8], "big", signed=True)
    return Message(offset, magic, attributes, timestamp, key, value, len(entry), crc_ok)


def read_entry(entry: bytes) -> list[Record]:
    """Records of one entry of a file: its own, or those that it wraps."""
    message = read_message(entry)
    if not message.crc_ok:
        raise RejectedError("checksum")
    if message.codec == 0:
        return [Record(message.offset, message.timestamp, message.key, message.value, (), message.timestamp_type)]
    if message.codec > codecs.LZ4:
        raise RejectedError(f"codec {message.codec} in a legacy wrapper")
    if message.value is None:
        raise RejectedError("wrapper without value")
    return _unwrap(message, codecs.decompress(message.codec, message.value, message.magic))


def _unwrap(wrapper: Message, content: bytes) -> list[Record]:
    inner = []
    position = 0
    while len(content) - position >= 12:
        size = int.from_bytes(content[position + 8 : position + 12], "big", signed=True)
        if size < MIN_SIZE:
            raise RejectedError(f"inner message of {size} bytes")
        if position + 12 + size > len(content):
            break
        inner.append(read_message(content[position : position + 12 + size], inner=True))
        position += 12 + size
    if not inner:
        raise RejectedError("wrapper without messages")
    if any(message.codec for message in inner):
        raise RejectedError("compressed message inside a wrapper")
    base = 0
    if wrapper.magic == 1 and wrapper.offset != 0:
        base = wrapper.offset - inner[-1].offset
        if base < 0:
            raise RejectedError("wrapper offset below the last inner one")
    return [_inner_record(wrapper, message, base) for message in inner]


def _inner_record(wrapper: Message, message: Message, base: int) -> Record:
    """What a consumer sees: the type is always the wrapper's, the time is its own or the append time."""
    append_time = wrapper.timestamp_type == LOG_APPEND_TIME and message.magic == 1
    timestamp = wrapper.timestamp if append_time else message.timestamp
    return Record(base + message.offset, timestamp, message.key, message.value, (), wrapper.timestamp_type)


def read_set(data: bytes) -> list[Record]:
    """Records of a run of legacy entries; a torn last one is left out."""
    records: list[Record] = []
    for position, size in walk(data)[0]:
        records += read_entry(data[position : position + size])
    return records
