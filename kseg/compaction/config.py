"""Settings of the cleaner, by Kafka's own names with underscores for dots."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, SupportsIndex

from kseg.errors import OptionError
from kseg.index.build import DEFAULT_INDEX_BYTES, DEFAULT_INDEX_INTERVAL_BYTES
from kseg.log.producers import DEFAULT_EXPIRATION_MS

DAY_MS: Final = 24 * 3600 * 1000
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
DEFAULT_MEMORY_BUDGET: Final = 512 << 20
MIN_MEMORY_BUDGET: Final = 1 << 20

Strategy = Literal["memory", "spill"]

_RANGES: Final = {
    "delete_retention_ms": (0, MAX_INT64),
    "segment_bytes": (14, MAX_INT32),  # what Kafka takes, of this and the next; segments have one batch at least
    "segment_index_bytes": (4, MAX_INT32),
    "index_interval_bytes": (0, MAX_INT32),
    "min_compaction_lag_ms": (0, MAX_INT64),
    "max_compaction_lag_ms": (1, MAX_INT64),
    "producer_id_expiration_ms": (1, MAX_INT64),
    "max_message_bytes": (0, MAX_INT32),
    "memory_budget": (MIN_MEMORY_BUDGET, MAX_INT64),
}


def check_integer(name: str, value: object, low: int, high: int = MAX_INT64) -> int:
    """The value of an argument, of whatever library its type is.

    Raises:
        OptionError: It is no integer, or out of range.
    """
    is_integer = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if is_integer and low <= operator.index(value) <= high:  # type: ignore[arg-type]
        return operator.index(value)  # type: ignore[arg-type]
    raise OptionError(f"{name} must be an integer from {low} to {high}, got {value!r}")


def check_means(spark: Any, workers: int | None) -> None:
    """Check what a job is to run on.

    Raises:
        OptionError: It is no Spark session, or no number of threads.
    """
    if isinstance(spark, str):  # a master; any other object says itself what it lacks
        raise OptionError(f"spark is a session, got {spark!r}", hint="give none to run in this process")
    if workers is not None:
        check_integer("workers", workers, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """How a compacted topic is cleaned; the defaults are Kafka's.

    Args:
        cleanup_policy: The topic's policy. None: not known, and then nothing is compacted without being told where to
            begin.
        delete_retention_ms: How long tombstones and markers stay after the first cleaning that saw them.
        segment_bytes: Small segments are merged up to this size.
        segment_index_bytes: And as long as their indexes fit this.
        index_interval_bytes: About how many bytes of log lie between two index entries.
        min_cleanable_dirty_ratio: A log is cleaned when more than this share of it was not cleaned before.
        min_compaction_lag_ms: Records that are younger stay as they are.
        max_compaction_lag_ms: A log with older records that were not cleaned is cleaned whatever its ratio.
        producer_id_expiration_ms: Producers that are silent for longer are forgotten.
        max_message_bytes: The largest batch that the topic takes; larger ones that are there are cleaned all the same.
        memory_budget: Bytes for the map of keys, and for what is put aside of compressed logs. Keys that need more are
            sorted through files instead.
        strategy: Force `memory` or `spill`; None lets the plan choose.
    """

    cleanup_policy: str | None = None
    delete_retention_ms: int = DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = DEFAULT_INDEX_BYTES
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS
    max_message_bytes: int = 1048588
    memory_budget: int = DEFAULT_MEMORY_BUDGET
    strategy: Strategy | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in _RANGES:
                value = check_integer(field.name, getattr(self, field.name), *_RANGES[field.name])
                object.__setattr__(self, field.name, value)
        ratio = self.min_cleanable_dirty_ratio
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio <= 1:
            raise OptionError(f"min_cleanable_dirty_ratio must be a number from 0 to 1, got {ratio!r}")
        if self.strategy not in (None, "memory", "spill"):
            raise OptionError(f"strategy must be memory or spill, got {self.strategy!r}")
        is_text = self.cleanup_policy is None or isinstance(self.cleanup_policy, str)
        if not is_text or set(self.policies) - {"compact", "delete"}:
            raise OptionError(f"cleanup_policy must be compact, delete or both, got {self.cleanup_policy!r}")

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies, apart; none where they are not known."""
        return tuple(word.strip() for word in (self.cleanup_policy or "").split(",") if word.strip())
