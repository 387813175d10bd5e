"""One batch's header as an object, and the checks that turn kernel codes into errors.

    base offset i64 | length i32 | leader epoch i32 | magic i8 | crc u32 | attributes i16 | last offset delta i32 |
    base timestamp i64 | max timestamp i64 | producer id i64 | producer epoch i16 | base sequence i32 | count i32 |
    records

Bulk work stays on the batch table (`native/table.py`); a `BatchHeader` is for people, for the command line and for
tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from kseg.errors import ChecksumError, CorruptRecordError, FormatError, TruncatedError, UnsupportedError
from kseg.native import codecs, headers, records
from kseg.native import table as t
from kseg.types import Codec, TimestampType


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What a batch says of itself; `position` and `size` are bytes in its segment file.

    `base_offset` and `count` are None for a compressed legacy wrapper: only its content knows them.
    `base_timestamp` is None where the field holds the delete horizon instead.
    """

    position: int
    size: int
    base_offset: int | None
    last_offset: int
    count: int | None
    magic: int
    codec: Codec
    crc: int
    leader_epoch: int
    timestamp_type: TimestampType
    base_timestamp: int | None
    max_timestamp: int
    delete_horizon_ms: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    marker_type: int | None
    coordinator_epoch: int | None

    @property
    def next_offset(self) -> int:
        """The offset behind this batch, whether or not its last record is still there."""
        return self.last_offset + 1


def header_of(table: t.Table, row: int) -> BatchHeader:
    """Make the object of one row."""
    values = [int(value) for value in table[:, row]]
    magic, attributes = values[t.MAGIC], values[t.ATTRIBUTES]
    if attributes & t.CODEC_MASK > Codec.ZSTD:
        raise UnsupportedError(
            f"unknown codec number {attributes & t.CODEC_MASK}",
            position=values[t.POSITION],
            offset=values[t.BASE_OFFSET],
        )
    is_v2 = magic == 2
    has_horizon = is_v2 and bool(attributes & t.DELETE_HORIZON_BIT)
    kind = TimestampType.LOG_APPEND_TIME if attributes & t.LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME
    return BatchHeader(
        position=values[t.POSITION],
        size=values[t.SIZE],
        base_offset=values[t.BASE_OFFSET] if is_v2 or values[t.COUNT] >= 0 else None,
        last_offset=values[t.LAST_OFFSET],
        count=values[t.COUNT] if is_v2 or values[t.COUNT] >= 0 else None,
        magic=magic,
        codec=Codec(attributes & t.CODEC_MASK),
        crc=values[t.CRC],
        leader_epoch=values[t.LEADER_EPOCH],
        timestamp_type=kind if magic > 0 else TimestampType.NO_TIMESTAMP,
        base_timestamp=None if has_horizon else values[t.BASE_TIMESTAMP],
        max_timestamp=values[t.MAX_TIMESTAMP],
        delete_horizon_ms=values[t.BASE_TIMESTAMP] if has_horizon else None,
        producer_id=values[t.PRODUCER_ID],
        producer_epoch=values[t.PRODUCER_EPOCH],
        base_sequence=values[t.BASE_SEQUENCE],
        is_transactional=is_v2 and bool(attributes & t.TRANSACTIONAL_BIT),
        is_control=is_v2 and bool(attributes & t.CONTROL_BIT),
        marker_type=values[t.MARKER_TYPE] if values[t.MARKER_TYPE] >= 0 else None,
        coordinator_epoch=values[t.COORDINATOR_EPOCH] if values[t.COORDINATOR_EPOCH] >= 0 else None,
    )


def offset_shown(table: t.Table, row: int) -> int:
    """The offset to name in a message about a row: its base, or its last where the base is not known."""
    return int(table[t.BASE_OFFSET, row] if table[t.BASE_OFFSET, row] >= 0 else table[t.LAST_OFFSET, row])


def walk_error(status: int, position: int) -> FormatError:
    """The error for a negative status of `fill_headers`."""
    what = {
        headers.BAD_LENGTH: "no batch starts here: its length is below the smallest possible",
        headers.BAD_MAGIC: "no batch starts here: its magic is not 0, 1 or 2",
        headers.SHORT_BATCH: "a batch of magic 2 is shorter than its header",
    }[status]
    return CorruptRecordError(what, position=position, hint="'kseg verify' finds all damage, 'kseg recover' repairs it")


def torn_error(position: int, left: int) -> TruncatedError:
    """The error for bytes at the end of a closed segment that are no whole batch."""
    return TruncatedError(f"the last {left} bytes are no whole batch", position=position)


def checksum_error(table: t.Table, row: int, computed: int) -> ChecksumError:
    """The error for a row whose stored checksum is not the computed one."""
    stored = int(table[t.CRC, row])
    return ChecksumError(
        f"checksum {stored:08x}, computed {computed:08x}",
        position=int(table[t.POSITION, row]),
        offset=offset_shown(table, row),
        hint="'kseg verify' finds all damage, 'kseg recover' repairs it",
    )


def payload_error(table: t.Table, row: int, status: int) -> FormatError:
    """The error for a negative status of `fill_payloads`."""
    number = int(table[t.ATTRIBUTES, row]) & t.CODEC_MASK
    error: FormatError
    if status == codecs.BAD_CODEC:
        error = UnsupportedError(f"codec number {number} is not allowed in magic {int(table[t.MAGIC, row])}")
    elif status == codecs.BAD_WRAPPER:
        error = CorruptRecordError("a compressed legacy message whose content is no message set")
    else:
        error = CorruptRecordError(f"the {Codec(number).label} payload cannot be decompressed")
    return error.with_context(position=int(table[t.POSITION, row]), offset=offset_shown(table, row))


def size_error(table: t.Table, row: int, limit: int) -> UnsupportedError:
    """The error for a payload that is larger than allowed once decompressed."""
    return UnsupportedError(
        f"the batch's records take more than {limit} bytes decompressed",
        position=int(table[t.POSITION, row]),
        offset=offset_shown(table, row),
        hint="raise max_batch_bytes to read it",
    )


def record_error(table: t.Table, row: int, status: int) -> CorruptRecordError:
    """The error for a negative status of `fill_records`."""
    what = {
        records.BAD_COUNT: f"a count of {int(table[t.COUNT, row])} records, which the batch has no room for",
        records.SHORT_PAYLOAD: "a record runs past the end of its batch",
        records.BAD_LENGTH: "a record's fields do not add up to its length",
        records.BAD_HEADERS: "a record's headers contradict its length",
        records.LEFT_OVER: "bytes are left behind the last record of the batch",
        records.BAD_MESSAGE: "a legacy message's fields do not add up to its size",
    }[status]
    return CorruptRecordError(what, position=int(table[t.POSITION, row]), offset=offset_shown(table, row))
