"""The names of options: which there are, which do nothing here, and which are probably misspelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kseg.errors import OptionError

CHOOSERS: Final = ("subscribe", "subscribePattern", "assign")
STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

_OPTIONS: Final = (
    *CHOOSERS,
    *STREAM_ONLY,
    *ENDING,
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", "startingOffsetsByTimestampStrategy"),
    *("failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "kafka.isolation.level"),
    *("auto.offset.reset", "columns", "corrupt", "maxBytesPerTask", "maxReadBytesPerSecond", "readPastHighWatermark"),
    *("view", "path", "paths", "remote", "remoteKeys", "allowSharedKeys"),
)
_BY_LOWER_NAME: Final = {name.lower(): name for name in _OPTIONS}
_BROKER_ONLY: Final = frozenset(
    name.lower()
    for name in (
        "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "partition.metadata.cache.ttl.ms",
    )
)
# Spark's source refuses these, so that nobody believes that they do something.
_REFUSED: Final = {
    "kafka.auto.offset.reset": "set startingOffsets instead, or auto.offset.reset beside startingOffsets=group:NAME",
    "kafka.key.deserializer": "keys are bytes; use DataFrame operations to read them",
    "kafka.value.deserializer": "values are bytes; use DataFrame operations to read them",
    "kafka.enable.auto.commit": "nothing is committed",
    "kafka.interceptor.classes": "records are given as they are",
}
_OTHER_NAMES: Final = {
    "isolation.level": "kafka.isolation.level",
    "isolationlevel": "kafka.isolation.level",
    "topics": "subscribe",  # as scan and export call it; without it every topic would be read
}


def sort_options(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options that mean something here, by their own spelling, and the names of the others."""
    given: dict[str, str] = {}
    ignored = []
    for key, value in options.items():
        lowered = key.strip().lower()
        name = _BY_LOWER_NAME.get(lowered)
        if name is not None and not isinstance(value, str):
            raise OptionError(f"option {name} is {value!r}; options are texts")
        if name in given:
            raise OptionError(f"option {name} is given twice, in different spellings of its name")
        if lowered in _REFUSED:
            raise OptionError(f"option {key} is not supported: {_REFUSED[lowered]}")
        if name is not None:
            given[name] = value
        elif (suggestion := _suggest(lowered)) is not None:
            raise OptionError(f"unknown option {key!r}; did you mean {suggestion!r}?")
        else:
            ignored.append(key)
    return given, ignored


def check_known(name: str) -> None:
    """Refuse a name that no source has: in a call in Python, unlike in Spark's options, nobody else's can be meant.

    Raises:
        OptionError: It is unknown.
    """
    lowered = name.strip().lower()
    is_known = lowered in _BY_LOWER_NAME or lowered in _BROKER_ONLY or lowered.startswith("kafka.")
    if not is_known and _suggest(lowered) is None:  # a suggestion is made where all options are looked at
        raise OptionError(f"unknown option {name!r}", hint="docs/spark.md lists what there is")


def _suggest(name: str) -> str | None:
    """The option that a name is probably meant to be."""
    if name in _BROKER_ONLY:
        return None
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    limit = 1 if len(name) <= 5 else 2
    near = [(distance, known) for known in _BY_LOWER_NAME if (distance := _distance(name, known)) <= limit]
    return _BY_LOWER_NAME[min(near)[1]] if near else None


def _distance(one: str, other: str) -> int:
    """How many letters must be put in, taken out or changed, or swapped with the next."""
    if abs(len(one) - len(other)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
