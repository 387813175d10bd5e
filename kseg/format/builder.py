"""Arrow in, batches of magic 2 out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.errors import OptionError, UnsupportedError
from kseg.format.codec import check_level, compressed_bound, pack_functions
from kseg.format.columns import EncoderInput, encoder_input
from kseg.native import building, encode, records
from kseg.native import table as t
from kseg.types import Codec, TimestampType

BATCH_BYTES = 256 << 10
GROUP_BYTES = 256 << 10  # encoded, compressed and sealed together, so that they stay in the cache
MAX_COUNT = 0x7FFFFFFF
MARKER_VALUE_VERSION = b"\x00\x00"


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What all batches of an append share.

    Args:
        batch_bytes: A batch is closed before its uncompressed bytes would pass this; one record may be larger.
        base_sequence: Of the first batch; later ones count on by their offsets.
        append_time_ms: With LogAppendTime, the time of every record.
        delete_horizon_ms: Set by a cleaner that keeps tombstones; stands where the base timestamp stands otherwise.
    """

    codec: Codec = Codec.NONE
    level: int | None = None
    batch_bytes: int = BATCH_BYTES
    batch_records: int = MAX_COUNT
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    append_time_ms: int = -1
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon_ms: int | None = None

    def __post_init__(self) -> None:
        check_level(self.codec, self.level)
        if self.batch_bytes < 1 or self.batch_records < 1:
            raise OptionError(
                f"batch_bytes and batch_records must be positive: {self.batch_bytes}, {self.batch_records}"
            )

    @property
    def attributes(self) -> int:
        """The attribute bits, the codec's included."""
        bits = int(self.codec)
        bits |= t.LOG_APPEND_TIME_BIT if self.timestamp_type is TimestampType.LOG_APPEND_TIME else 0
        bits |= t.TRANSACTIONAL_BIT if self.is_transactional else 0
        bits |= t.CONTROL_BIT if self.is_control else 0
        return bits | (t.DELETE_HORIZON_BIT if self.delete_horizon_ms is not None else 0)


@dataclass(frozen=True, slots=True)
class EncodedBatches:
    """Whole batches back to back, and their table; POSITION counts from the start of `data`."""

    data: t.Bytes
    table: t.Table

    @property
    def count(self) -> int:
        """How many batches."""
        return int(self.table.shape[1])


def encode_batches(batch: pa.RecordBatch, *, first_offset: int, options: BatchOptions, now_ms: int) -> EncodedBatches:
    """Encode the rows of one record batch; see `format/columns.py` for the columns it takes."""
    source = encoder_input(batch, first_offset=first_offset, now_ms=now_ms)
    return _encode(source, options, base_offset=-1, last_offset=None)


def encode_batch(
    batch: pa.RecordBatch,
    *,
    base_offset: int,
    options: BatchOptions,
    last_offset: int | None = None,
    max_timestamp: int = -1,
) -> bytes:
    """Encode the rows as exactly one batch, whatever its size; with no rows, as the empty batch that a cleaner leaves.

    Args:
        base_offset: May lie before the first row's offset, and `last_offset` behind the last's: compaction leaves
            holes.
        max_timestamp: Of an empty batch; else it is the rows' own.
    """
    source = encoder_input(batch, first_offset=base_offset, now_ms=-1)
    if source.rows:
        encoded = _encode(source, options, base_offset=base_offset, last_offset=last_offset, one_batch=True)
        return encoded.data.tobytes()
    table = t.new_table(1)
    _fill_shared(table, options)
    table[t.ATTRIBUTES] &= ~(t.CODEC_MASK | t.DELETE_HORIZON_BIT)
    table[t.POSITION], table[t.SIZE], table[t.COUNT] = 0, t.HEADER_SIZE, 0
    table[t.BASE_OFFSET], table[t.LAST_OFFSET] = base_offset, base_offset if last_offset is None else last_offset
    table[t.BASE_TIMESTAMP], table[t.MAX_TIMESTAMP] = -1, max_timestamp
    out = np.zeros(t.HEADER_SIZE, np.uint8)
    encode.write_headers(out, table, 1)
    return out.tobytes()


def encode_marker(
    *,
    offset: int,
    timestamp: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time_ms: int = -1,
) -> bytes:
    """Encode the control batch that ends a transaction.

    Args:
        timestamp: When the coordinator decided; stands as the base timestamp also where the log has its own time.
        append_time_ms: With LogAppendTime, the time of the record.
    """
    if not -(1 << 31) <= coordinator_epoch < 1 << 31:
        raise OptionError(f"coordinator epoch {coordinator_epoch} does not fit 32 bits")
    key = b"\x00\x00" + int(commit).to_bytes(2, "big")
    value = MARKER_VALUE_VERSION + coordinator_epoch.to_bytes(4, "big", signed=True)
    rows = pa.record_batch({"key": [key], "value": [value], "timestamp": [timestamp]})
    options = BatchOptions(
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        timestamp_type=timestamp_type,
        append_time_ms=append_time_ms,
    )
    return encode_batch(rows, base_offset=offset, options=options)


def _encode(
    source: EncoderInput, options: BatchOptions, *, base_offset: int, last_offset: int | None, one_batch: bool = False
) -> EncodedBatches:
    has_append_time = options.timestamp_type is TimestampType.LOG_APPEND_TIME
    if has_append_time and not options.is_control:
        source.columns[records.TIMESTAMP] = options.append_time_ms
    limits = np.zeros(encode.LIMITS, np.int64)
    limits[encode.BATCH_BYTES] = (1 << 62) if one_batch else options.batch_bytes
    limits[encode.BATCH_RECORDS] = options.batch_records
    limits[encode.GIVEN_BASE_OFFSET] = base_offset
    limits[encode.STOP_BYTES] = GROUP_BYTES
    if options.delete_horizon_ms is not None:
        limits[encode.FIXED_BASE_TIMESTAMP] = 1
        limits[encode.GIVEN_BASE_TIMESTAMP] = options.delete_horizon_ms
    shared = t.new_table(1)
    _fill_shared(shared, options)
    shared[t.LAST_OFFSET] = building.NOT_SHARED if last_offset is None else last_offset
    # what readers take for every record; a broker leaves a marker's own time in its base timestamp
    shared[t.MAX_TIMESTAMP] = options.append_time_ms if has_append_time else building.NOT_SHARED
    return _build(source, options, limits, shared)


def _build(source: EncoderInput, options: BatchOptions, limits: NDArray[np.int64], shared: t.Table) -> EncodedBatches:
    plain = np.empty(source.encoded_bound(source.rows), np.uint8)
    is_packed = options.codec is not Codec.NONE
    out = np.empty(compressed_bound(plain.size, source.rows), np.uint8) if is_packed else plain
    functions = pack_functions(options.codec, options.level)
    table = t.new_table(source.rows)
    outcome, count = building.build_batches(
        source.columns, source.rows, source.keys, source.values, source.header_columns, source.header_keys,
        source.header_values, limits, shared, plain, functions.addresses, functions.scratch, out, table,
    )  # fmt: skip
    if outcome == building.TOO_LARGE:
        raise OptionError("a record takes more than 2 GiB; Kafka's batches cannot hold it")
    if outcome == building.NOT_COMPRESSED:
        size = table[t.SIZE, count - 1]
        raise UnsupportedError(f"the {options.codec.label} library could not compress a batch of {size} bytes")
    end = int(table[t.POSITION, count - 1] + table[t.SIZE, count - 1]) if count else 0
    return EncodedBatches(out[:end], np.ascontiguousarray(table[:, :count]))


def _fill_shared(table: t.Table, options: BatchOptions) -> None:
    table[t.LEADER_EPOCH] = options.leader_epoch
    table[t.ATTRIBUTES] = options.attributes
    table[t.PRODUCER_ID] = options.producer_id
    table[t.PRODUCER_EPOCH] = options.producer_epoch
    table[t.BASE_SEQUENCE] = options.base_sequence
    table[t.MARKER_TYPE] = -1
    table[t.COORDINATOR_EPOCH] = -1
    table[t.MARKER_TIMESTAMP] = -1
