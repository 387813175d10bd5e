"""Small frozen values that every layer shares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from kseg.errors import OptionError

NO_TIMESTAMP = -1
NO_PRODUCER = -1
MAX_OFFSET = 2**63 - 1


class Codec(IntEnum):
    """Compression of a batch, numbered as in the attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name: none, gzip, snappy, lz4, zstd."""
        return self.name.lower()

    @classmethod
    def parse(cls, value: str | int | Codec) -> Self:
        """Take a codec by Kafka's name or number."""
        try:
            return cls(value) if isinstance(value, int) else cls[value.upper()]
        except (KeyError, ValueError, AttributeError):
            names = ", ".join(codec.label for codec in cls)
            raise OptionError(f"unknown codec {value!r}; valid values are {names}") from None


class TimestampType(IntEnum):
    """What a record's timestamp means, numbered as Kafka numbers it."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """Kafka's name: NoTimestampType, CreateTime, LogAppendTime."""
        return ("CreateTime", "LogAppendTime", "NoTimestampType")[self]

    @classmethod
    def parse(cls, value: str | TimestampType) -> Self:
        """Take a type by Kafka's name (the values of message.timestamp.type)."""
        for kind in cls:
            if value is kind or value == kind.label:
                return kind
        raise OptionError(f"unknown timestamp type {value!r}; valid values are CreateTime, LogAppendTime")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic; prints as its directory is named: `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Half-open range of offsets `[start, end)`."""

    start: int
    end: int

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end
