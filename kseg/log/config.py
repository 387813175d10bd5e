"""Settings of a log that is written, by Kafka's own names with underscores for dots."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from kseg.errors import OptionError
from kseg.index.build import DEFAULT_INDEX_BYTES, DEFAULT_INDEX_INTERVAL_BYTES
from kseg.log.producers import DEFAULT_EXPIRATION_MS
from kseg.types import Codec, TimestampType

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
WEEK_MS: Final = 7 * 24 * 3600 * 1000

_RANGES: Final = {
    # A file's positions are 32-bit. Kafka 4 asks for 1 MiB at least; older versions, and kseg, do not.
    "segment_bytes": (61, MAX_INT32),
    "segment_ms": (1, MAX_INT64),
    "segment_jitter_ms": (0, MAX_INT64),
    "segment_index_bytes": (24, MAX_INT32),  # two time entries: one of them is kept for the roll
    "index_interval_bytes": (0, MAX_INT32),
    "producer_id_expiration_ms": (1, MAX_INT64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """When segments are rolled, how densely they are indexed, and whose clock stamps the records.

    Args:
        segment_bytes: A segment is rolled before it would grow beyond this.
        segment_ms: A segment is rolled when a batch is this much later than its first one, by their own timestamps.
        segment_jitter_ms: Up to so much is taken off `segment_ms`, at random for each segment.
        segment_index_bytes: A segment is rolled when one of its indexes is as large as this.
        index_interval_bytes: About how many bytes of log lie between two index entries.
        message_timestamp_type: CreateTime keeps the records' timestamps, LogAppendTime gives them the time of writing.
        producer_id_expiration_ms: Producers that are silent for longer are forgotten.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = DEFAULT_INDEX_BYTES
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    message_timestamp_type: str = "CreateTime"
    producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in _RANGES:
                continue
            value = getattr(self, field.name)
            low, high = _RANGES[field.name]
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise OptionError(f"{field.name} must be an integer from {low} to {high}, got {value!r}")
        if self.timestamp_type is TimestampType.NO_TIMESTAMP:
            raise OptionError(
                f"message_timestamp_type must be CreateTime or LogAppendTime, got {self.message_timestamp_type}"
            )

    def largest_batch(self, codec: Codec) -> int:
        """The largest uncompressed batch that surely fits a segment: compression makes dense bytes a little larger."""
        return self.segment_bytes if codec is Codec.NONE else self.segment_bytes * 3 // 4

    @property
    def timestamp_type(self) -> TimestampType:
        """`message_timestamp_type` as a value."""
        return TimestampType.parse(self.message_timestamp_type)
