"""Where a read starts and where it ends, as options say it; what an offset or a time means is known with the logs.

Precedence is that of Spark's Kafka source, for start and end separately: one time, then times, then offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kseg.errors import OptionError
from kseg.option_values import (
    EARLIEST,
    LATEST,
    PartitionValues,
    format_partitions,
    parse_int,
    parse_offsets,
    parse_timestamps,
    wrong,
)


@dataclass(frozen=True, slots=True)
class AllAt:
    """Every partition at EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Each partition at an offset of its own, or at EARLIEST or LATEST."""

    offsets: PartitionValues


@dataclass(frozen=True, slots=True)
class AtTime:
    """Every partition at the first record at or after a time."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """Each partition at the first record at or after a time of its own."""

    timestamps: PartitionValues


@dataclass(frozen=True, slots=True)
class AtGroup:
    """Each partition where a consumer group stands."""

    group: str


Start = AllAt | AtOffsets | AtTime | AtTimes | AtGroup
End = AllAt | AtOffsets | AtTime | AtTimes

ALL_EARLIEST: Final = AllAt(EARLIEST)
ALL_LATEST: Final = AllAt(LATEST)


def parse_starting(given: Mapping[str, str], *, streaming: bool) -> Start:
    """Where a read starts: at the earliest offsets unless told, a streaming one at the latest."""
    text = given.get("startingOffsets", "").strip()
    timed = "startingTimestamp" in given or "startingOffsetsByTimestamp" in given
    if text.startswith("group:") and not timed:
        if not (group := text.removeprefix("group:")):
            raise wrong("startingOffsets", text, "it must be group: and the name of a consumer group")
        return AtGroup(group)
    starting = _limit(given, "starting", ALL_LATEST if streaming else ALL_EARLIEST)
    if streaming:
        return starting
    if starting == ALL_LATEST:
        raise wrong(
            "startingOffsets", text, "a batch query cannot start at latest; earliest, JSON and group:NAME are allowed"
        )
    if isinstance(starting, AtOffsets) and (latest := _which(starting.offsets, LATEST)):
        raise wrong("startingOffsets", text, f"a batch query cannot start at -1 (latest): {latest}")
    return starting


def parse_ending(given: Mapping[str, str]) -> End:
    """Where a batch read ends: at the latest offsets unless told."""
    ending = _limit(given, "ending", ALL_LATEST)
    text = given.get("endingOffsets", "")
    if ending == ALL_EARLIEST:
        raise wrong("endingOffsets", text, "a query cannot end at earliest; latest and JSON are allowed")
    if isinstance(ending, AtOffsets) and (earliest := _which(ending.offsets, EARLIEST)):
        raise wrong("endingOffsets", text, f"a query cannot end at -2 (earliest): {earliest}")
    return ending


def _limit(given: Mapping[str, str], side: str, default: AllAt) -> End:
    """The first that is set of: one time, times, offsets. The others are not even looked at, as in Spark."""
    if (name := f"{side}Timestamp") in given:
        return AtTime(parse_int(name, given[name].strip(), least=0))
    if (name := f"{side}OffsetsByTimestamp") in given:
        return AtTimes(parse_timestamps(name, given[name]))
    if (name := f"{side}Offsets") not in given:
        return default
    text = given[name].strip()
    words = {"earliest": ALL_EARLIEST, "latest": ALL_LATEST}
    if (word := words.get(text.lower())) is not None:
        return word
    if not text.startswith("{"):
        groups = ", group:NAME" if side == "starting" else ""
        example = '{"topicA":{"0":23}}'
        raise wrong(name, given[name], f"valid values are earliest, latest{groups} and JSON such as {example}")
    return AtOffsets(parse_offsets(name, text))


def _which(offsets: PartitionValues, offset: int) -> str:
    found = [tp for tp, value in offsets.items() if value == offset]
    return format_partitions(found) if found else ""


def check_order(starting: Start, ending: End) -> None:
    """Compare start and end where both are given in the same way; the rest is known when they are resolved."""
    match starting, ending:
        case AtOffsets(offsets=first), AtOffsets(offsets=last):
            what, condition = "offset", "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"
        case AtTimes(timestamps=first), AtTimes(timestamps=last):
            what, condition = "timestamp", "UNRESOLVED_START_TIMESTAMP_GREATER_THAN_END_TIMESTAMP"
        case _:
            return
    if first.keys() != last.keys():
        raise OptionError(
            "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET] start and end must name the same"
            f" partitions; start: {format_partitions(first)}; end: {format_partitions(last)}"
        )
    for tp, start in first.items():
        if start > last[tp] >= 0:
            message = f"the start {what} {start} of {tp} is greater than its end {what} {last[tp]}"
            raise OptionError(f"[{condition}] {message}")
