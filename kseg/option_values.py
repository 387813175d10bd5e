"""The texts of option values: numbers, sizes, durations, lists, and the JSON that names partitions.

Every function takes the option's name beside its text, so that a message tells which option is wrong, what it is and
what is allowed. Where Spark's Kafka source has the option too, what passes there passes here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kseg.errors import OptionError
from kseg.types import TopicPartition

PartitionValues = dict[TopicPartition, int]

EARLIEST: Final = -2
LATEST: Final = -1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")  # what Java's parseLong takes, bar other scripts' digits
_PARTITION: Final = re.compile(r"[0-9]{1,10}")
_SIZE: Final = re.compile(r"([0-9]{1,19})\s*(?:([kmgtp])i?)?b?", re.IGNORECASE)
_DURATION: Final = re.compile(r"([0-9]{1,18})\s*([a-z]*)", re.IGNORECASE)
_DURATION_UNITS_US: Final = {
    "us": 1,
    "": 1000,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE: Final = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
_ASSIGN_EXAMPLE: Final = '{"topicA":[0,1],"topicB":[2,4]}'


def wrong(option: str, value: str, allowed: str) -> OptionError:
    """The error for a value that is not allowed; of a long value the beginning is shown."""
    shown = value if len(value) <= 200 else value[:200] + "..."
    return OptionError(f"option {option} is {shown!r}; {allowed}")


def text_of(option: str, value: object) -> str:
    """The text of an option that a call in Python gives as a value of its own."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        if option.lower() == "remotekeys":
            return ",".join(f"{key_id}={path}" for key_id, path in value.items())
        try:
            return json.dumps(value)
        except (TypeError, ValueError) as error:
            raise OptionError(f"option {option} is no JSON: {error}") from None
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def parse_bool(option: str, text: str) -> bool:
    """`true` or `false` in any case, nothing else."""
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise wrong(option, text, "it must be true or false")
    return lowered == "true"


def parse_int(option: str, text: str, *, least: int, most: int = MAX_INT64) -> int:
    """A whole number in a range."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not least <= number <= most:
        raise wrong(option, text, f"it must be a whole number from {least} to {most}")
    return number


def parse_choice(option: str, text: str, choices: Iterable[str]) -> str:
    """One of some words, spelled as they are."""
    if text not in (known := tuple(choices)):
        raise wrong(option, text, f"valid values are {', '.join(known)}")
    return text


def parse_size(option: str, text: str) -> int:
    """A number of bytes: `1048576`, `64MiB`, `64m`; units are powers of 1024 in each spelling, as they are in Spark."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << 10 * (" kmgtp".index(match[2].lower()) if match[2] else 0) if match else 0
    if not 1 <= size <= MAX_INT64:
        raise wrong(option, text, "it must be a size above 0 such as 1048576, 512KiB, 64MiB or 2GiB")
    return size


def parse_duration_ms(option: str, text: str) -> int:
    """A time span in milliseconds: `15m`, `90s`, `500ms`, `1h`; a number alone is milliseconds, as it is in Spark."""
    match = _DURATION.fullmatch(text.strip())
    unit = _DURATION_UNITS_US.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise wrong(option, text, "it must be a time span such as 500ms, 90s, 15m, 1h or 1d")
    return int(match[1]) * unit // 1000


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """Names between commas, in their order; blanks around them and empty ones do not count."""
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    if not names:
        raise wrong(option, text, "it must name at least one, with commas between several")
    return names


def parse_strings(option: str, text: str) -> tuple[str, ...]:
    """A JSON list of texts, as Spark gives several paths."""
    value = _parse_json(option, text, 'a JSON list such as ["data/one","data/two"]')
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise wrong(option, text, 'it must be a JSON list such as ["data/one","data/two"]')
    return tuple(value)


def parse_assignment(option: str, text: str) -> frozenset[TopicPartition]:
    """Partitions as JSON: `{"topicA":[0,1]}`."""
    allowed = f"JSON such as {_ASSIGN_EXAMPLE}"
    found = set()
    for topic, partitions in _parse_object(option, text, allowed).items():
        if not isinstance(partitions, list) or not all(_is_number(item, 0, MAX_INT32) for item in partitions):
            raise wrong(option, text, f"it must be {allowed}")
        found |= {TopicPartition(topic, partition) for partition in partitions}
    if not found:
        raise wrong(option, text, f"it names no partition; it must be {allowed}")
    return frozenset(found)


def parse_offsets(option: str, text: str) -> PartitionValues:
    """Offsets as JSON: `{"topicA":{"0":23,"1":-2}}`, where -2 is the earliest and -1 the latest."""
    return _partition_values(option, text, EARLIEST, f"JSON such as {_OFFSETS_EXAMPLE}, -2 for earliest, -1 for latest")


def parse_timestamps(option: str, text: str) -> PartitionValues:
    """Times in milliseconds since the epoch as JSON: `{"topicA":{"0":1700000000000}}`."""
    return _partition_values(option, text, 0, f"JSON such as {_TIMES_EXAMPLE}, in milliseconds since the epoch")


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Undo `parse_offsets`: topics and partitions in order, as Spark writes them into its checkpoints."""
    topics: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return json.dumps(topics, separators=(",", ":"))


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for a message: in order, and of many the first."""
    names = [str(tp) for tp in sorted(partitions)]
    more = [f"and {len(names) - 20} more"] if len(names) > 20 else []
    return ", ".join(names[:20] + more) or "none"


def _partition_values(option: str, text: str, least: int, allowed: str) -> PartitionValues:
    found: PartitionValues = {}
    for topic, values in _parse_object(option, text, allowed).items():
        if not isinstance(values, dict):
            raise wrong(option, text, f"it must be {allowed}")
        for key, number in values.items():
            partition = int(key) if _PARTITION.fullmatch(key) else -1
            tp = TopicPartition(topic, partition)
            if not 0 <= partition <= MAX_INT32 or not _is_number(number, least, MAX_INT64) or tp in found:
                raise wrong(option, text, f"it must be {allowed}")
            found[tp] = number
    return found


def _is_number(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _parse_object(option: str, text: str, allowed: str) -> dict[str, Any]:
    value = _parse_json(option, text, allowed)
    if not isinstance(value, dict):
        raise wrong(option, text, f"it must be {allowed}")
    return value


def _parse_json(option: str, text: str, allowed: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name is given twice")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise wrong(option, text, f"it must be {allowed} ({error})") from None


def parse_key_files(name: str, text: str) -> tuple[tuple[str, str], ...]:
    """Key files: `id=private-key-file,...`; the text is in no error, for the case that it is a key itself."""
    files: dict[str, str] = {}
    for part in text.split(","):
        key_id, equals, path = part.strip().partition("=")
        if not key_id or not equals or not path or "-----" in path or "\n" in path:
            raise OptionError(f"option {name} must be id=private-key-file,...: files, never keys themselves")
        if key_id in files:
            raise OptionError(f"option {name} names key {key_id!r} twice")
        files[key_id] = path
    return tuple(sorted(files.items()))
