"""One record of a magic 2 batch, read and written a field at a time."""

from __future__ import annotations

from dataclasses import dataclass

from tests.reference.errors import RejectedError
from tests.reference.varint import decode_varint, decode_varlong, encode_varint, encode_varlong

Header = tuple[bytes, bytes | None]

NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1


@dataclass(frozen=True)
class Record:
    """A record as a consumer sees it; header keys stay bytes, since the format does not check their UTF-8."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_type: int = CREATE_TIME


def _sized(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def encode_record(record: Record, base_offset: int, base_timestamp: int, attributes: int = 0) -> bytes:
    """Write one record, its length first."""
    body = bytes([attributes])
    body += encode_varlong(record.timestamp - base_timestamp)
    body += encode_varint(record.offset - base_offset)
    body += _sized(record.key) + _sized(record.value)
    body += encode_varint(len(record.headers))
    for key, value in record.headers:
        body += _sized(key) + _sized(value)
    return encode_varint(len(body)) + body


def _take(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and that many bytes; any negative length is a null."""
    size, position = decode_varint(data, position, end)
    if size < 0:
        return None, position
    if size > end - position:
        raise RejectedError(f"field of {size} bytes where {end - position} are left")
    return data[position : position + size], position + size


def decode_record(data: bytes, position: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    """Read the record at `position`; gives it and the position behind it."""
    size, start = decode_varint(data, position)
    end = start + size
    if size < 0 or end > len(data):
        raise RejectedError(f"record of {size} bytes where {len(data) - start} are left")
    if size == 0:
        raise RejectedError("record without attributes")
    timestamp_delta, position = decode_varlong(data, start + 1, end)
    offset_delta, position = decode_varint(data, position, end)
    key, position = _take(data, position, end)
    value, position = _take(data, position, end)
    count, position = decode_varint(data, position, end)
    if not 0 <= count <= end - position:
        raise RejectedError(f"{count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _take(data, position, end)
        if name is None:
            raise RejectedError("header key with a negative length")
        content, position = _take(data, position, end)
        headers.append((name, content))
    if position != end:
        raise RejectedError(f"record of {size} bytes, {position - start} read")
    record = Record(
        _i64(base_offset + offset_delta), _i64(base_timestamp + timestamp_delta), key, value, tuple(headers)
    )
    return record, end


def _i64(value: int) -> int:
    """Wrap as Java's long does."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
