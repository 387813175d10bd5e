"""Whole magic 2 batches, read with every check that Kafka makes and written as Kafka writes them.

Layout: base offset i64, length i32, leader epoch i32, magic i8, crc u32, attributes i16, last offset delta i32,
base timestamp i64, max timestamp i64, producer id i64, producer epoch i16, base sequence i32, count i32, records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import crc32c as fast_crc32c

from tests.reference import codecs
from tests.reference.errors import GreyError, RejectedError
from tests.reference.record import CREATE_TIME, LOG_APPEND_TIME, Record, decode_record, encode_record

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_POSITION, CRC_START, MIN_LENGTH = 17, 21, 14
CODEC_MASK, LAT_BIT, TXN_BIT, CONTROL_BIT, HORIZON_BIT = 0x07, 0x08, 0x10, 0x20, 0x40


@dataclass(frozen=True)
class Batch:
    """All fields of a batch, and its records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    size: int
    records: tuple[Record, ...]
    magic: int = 2

    @property
    def codec(self) -> int:
        """Codec number."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether the records are markers that no consumer sees."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TXN_BIT)

    @property
    def delete_horizon(self) -> int | None:
        """When tombstones and markers of the batch may go; None where no cleaner has been there."""
        return self.base_timestamp if self.attributes & HORIZON_BIT else None


@dataclass(frozen=True)
class Fields:
    """What a batch says besides its records, with Kafka's values for "none"."""

    base_offset: int = 0
    last_offset_delta: int | None = None
    leader_epoch: int = 0
    codec: int = codecs.NONE
    flags: int = 0
    base_timestamp: int | None = None
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


def encode_batch(records: Sequence[Record], fields: Fields | None = None) -> bytes:
    """Write a batch; what `fields` leaves open follows from the records."""
    fields = fields or Fields()
    first = records[0].timestamp if records else -1
    base_timestamp = first if fields.base_timestamp is None else fields.base_timestamp
    payload = b"".join(encode_record(record, fields.base_offset, base_timestamp) for record in records)
    return encode_payload(payload, len(records), _closed(records, fields, base_timestamp))


def _closed(records: Sequence[Record], fields: Fields, base_timestamp: int) -> Fields:
    last = records[-1].offset - fields.base_offset if records else 0
    latest = max((record.timestamp for record in records), default=-1)
    return replace(
        fields,
        base_timestamp=base_timestamp,
        last_offset_delta=last if fields.last_offset_delta is None else fields.last_offset_delta,
        max_timestamp=latest if fields.max_timestamp is None else fields.max_timestamp,
    )


def encode_payload(
    payload: bytes, count: int, fields: Fields, compress: Callable[[bytes], bytes] | None = None
) -> bytes:
    """Put a header and a checksum around record bytes that may be anything."""
    packed = compress(payload) if compress else codecs.compress(fields.codec, payload)
    header = HEADER.pack(
        fields.base_offset,
        HEADER.size - 12 + len(packed),
        fields.leader_epoch,
        2,
        0,
        fields.flags | fields.codec,
        fields.last_offset_delta or 0,
        -1 if fields.base_timestamp is None else fields.base_timestamp,
        -1 if fields.max_timestamp is None else fields.max_timestamp,
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
        count,
    )
    return repair(header + packed)


def repair(batch: bytes) -> bytes:
    """Give a batch the checksum that fits it."""
    crc = fast_crc32c.crc32c(batch[CRC_START:])
    return batch[:CRC_POSITION] + crc.to_bytes(4, "big") + batch[CRC_START:]


def read_header(data: bytes, position: int = 0) -> Batch:
    """Read the fields of the batch at `position`, without its records and without checks but those of its size."""
    if len(data) - position < HEADER.size:
        raise RejectedError("less than a header")
    base, length, epoch, magic, crc, attributes, last, first_ts, max_ts, pid, pepoch, sequence, count = (
        HEADER.unpack_from(data, position)
    )
    if magic != 2:
        raise RejectedError(f"magic {magic}")
    if length + 12 < HEADER.size or length + 12 > len(data) - position:
        raise RejectedError(f"batch of {length + 12} bytes")
    return Batch(
        base, base + last, epoch, crc, attributes, first_ts, max_ts, pid, pepoch, sequence, count, length + 12, ()
    )


def read_batch(data: bytes, position: int = 0) -> Batch:
    """Read the batch at `position` with all of Kafka's checks; behind a count of 0 Kafka looks at nothing."""
    header = read_header(data, position)
    raw = data[position : position + header.size]
    if fast_crc32c.crc32c(raw[CRC_START:]) != header.crc:
        raise RejectedError("checksum")
    if header.count == 0:
        if header.codec > codecs.ZSTD:
            raise GreyError("unknown codec, which Kafka does not look at without records")
        return header
    payload = codecs.decompress(header.codec, raw[HEADER.size :])
    return replace(header, records=tuple(read_records(payload, header)))


def read_records(payload: bytes, header: Batch) -> list[Record]:
    """Read exactly `count` records, which must fill the payload."""
    if header.count < 0:
        raise RejectedError(f"{header.count} records")
    append_time = bool(header.attributes & LAT_BIT)
    records: list[Record] = []
    position = 0
    for _ in range(header.count):
        record, position = decode_record(payload, position, header.base_offset, header.base_timestamp)
        if append_time:
            record = replace(record, timestamp=header.max_timestamp)
        records.append(replace(record, timestamp_type=LOG_APPEND_TIME if append_time else CREATE_TIME))
    if position != len(payload):
        raise RejectedError(f"{len(payload) - position} bytes behind the last record")
    return records


def walk(data: bytes) -> tuple[list[tuple[int, int]], int]:
    """Positions and sizes of the whole entries of a file, any magic, and where the first torn one starts.

    As Kafka's file iterator: it ends where 17 bytes or less are left or where an entry runs past the end, and refuses a
    length below 14.
    """
    entries: list[tuple[int, int]] = []
    position = 0
    while len(data) - position > CRC_POSITION:
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if length < MIN_LENGTH:
            raise RejectedError(f"entry of length {length} at {position}")
        if position + 12 + length > len(data):
            break
        entries.append((position, 12 + length))
        position += 12 + length
    return entries, position
