"""Kafka's topic settings: their types, limits, defaults, and the broker settings that stand behind them.

Names, limits and defaults are those of Kafka 4.3's `LogConfig`, the broker's names those of its
`ServerTopicConfigSynonyms`. Of several broker settings the first that is set counts, each with its own unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kseg.errors import OptionError

SettingValue = int | float | bool | str | tuple[str, ...]

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_COMMA = re.compile(r"\s*,\s*")

INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"


@dataclass(frozen=True, slots=True)
class Definition:
    """A topic setting.

    Args:
        default: Kafka's default.
        parse: From text, already without blanks around it, to a value; raises ValueError with what is allowed.
        broker: The broker settings behind it, with what one of their units is worth; the first that is set counts.
        topic: Other names that a topic may have it under, which count before its own.
    """

    name: str
    default: SettingValue
    parse: Callable[[str], SettingValue]
    broker: tuple[tuple[str, int], ...] = ()
    topic: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The command line's option for it."""
        return "--" + self.name.replace(".", "-")

    @property
    def field(self) -> str:
        """The Python name for it."""
        return self.name.replace(".", "_")


def parse_setting(name: str, value: object) -> SettingValue:
    """Take a value by a topic setting's name, from text or as it is, with Kafka's limits.

    Raises:
        OptionError: There is no such setting, or it does not take the value.
    """
    definition = DEFINITIONS.get(name)
    if definition is None:
        raise OptionError(f"there is no topic setting {name!r}")
    return _parsed(definition, name, _as_text(value))


def parse_broker_setting(definition: Definition, name: str, unit: int, text: str) -> SettingValue:
    """Take a value that was set for a broker, under the broker's name for it.

    Raises:
        OptionError: The setting does not take the value.
    """
    if definition.name != "retention.ms":
        return _in_units(definition, name, unit, text)
    if not _INTEGER.fullmatch(text.strip()) or not (number := int(text)):
        raise OptionError(f"{name} is {text.strip()[:80]!r}; it must be a whole number and not 0")
    return -1 if number < 0 else number * unit  # any negative number of a broker means without limit


def _in_units(definition: Definition, name: str, unit: int, text: str) -> SettingValue:
    value = _parsed(definition, name, text)
    return value * unit if isinstance(value, int) and unit != 1 else value


def _parsed(definition: Definition, name: str, text: str) -> SettingValue:
    try:
        return definition.parse(text.strip())
    except ValueError as error:
        raise OptionError(f"{name} is {text.strip()[:80]!r}; it must be {error}") from None


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(str(item) for item in value)
    return str(value)


def _integer(least: int, most: int) -> Callable[[str], SettingValue]:
    def parse(text: str) -> SettingValue:
        if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return parse


def _ratio(text: str) -> SettingValue:
    if not _DOUBLE.fullmatch(text) or not math.isfinite(number := float(text)) or not 0 <= number <= 1:
        raise ValueError("a number from 0 to 1")
    return number


def _boolean(text: str) -> SettingValue:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _choice(*allowed: str) -> Callable[[str], SettingValue]:
    def parse(text: str) -> SettingValue:
        if text not in allowed:
            raise ValueError("one of " + ", ".join(allowed))
        return text

    return parse


def _policies(text: str) -> SettingValue:
    words = tuple(_COMMA.split(text)) if text else ()
    if len(set(words)) != len(words) or not set(words) <= {"compact", "delete"}:
        raise ValueError("compact, delete, both, or empty")
    return tuple(sorted(words))


def _long(
    name: str, default: int, least: int, *broker: str | tuple[str, int], topic: tuple[str, ...] = ()
) -> Definition:
    return Definition(name, default, _integer(least, MAX_INT64), _units(broker), topic)


def _int(
    name: str, default: int, least: int, *broker: str | tuple[str, int], topic: tuple[str, ...] = ()
) -> Definition:
    return Definition(name, default, _integer(least, MAX_INT32), _units(broker), topic)


def _units(broker: tuple[str | tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    return tuple((item, 1) if isinstance(item, str) else item for item in broker)


_ALL: Final = (
    Definition("cleanup.policy", ("delete",), _policies, (("log.cleanup.policy", 1),)),
    _long("delete.retention.ms", 86_400_000, 0, "log.cleaner.delete.retention.ms"),
    _long("file.delete.delay.ms", 60_000, 0, "log.segment.delete.delay.ms"),
    _int("index.interval.bytes", 4096, 0, "log.index.interval.bytes"),
    _long("local.retention.bytes", -2, -2, "log.local.retention.bytes"),
    _long("local.retention.ms", -2, -2, "log.local.retention.ms"),
    _long("max.compaction.lag.ms", MAX_INT64, 1, "log.cleaner.max.compaction.lag.ms"),
    _int("max.message.bytes", 1_048_588, 0, "message.max.bytes"),
    Definition(
        "message.timestamp.type",
        "CreateTime",
        _choice("CreateTime", "LogAppendTime"),
        (("log.message.timestamp.type", 1),),
    ),
    Definition("min.cleanable.dirty.ratio", 0.5, _ratio, (("log.cleaner.min.cleanable.ratio", 1),)),
    _long("min.compaction.lag.ms", 0, 0, "log.cleaner.min.compaction.lag.ms"),
    # No topic setting in Kafka, but the broker's alone; jobs take it beside the others.
    _int("producer.id.expiration.ms", 86_400_000, 1, "producer.id.expiration.ms"),
    Definition("remote.log.copy.disable", False, _boolean),
    Definition("remote.storage.enable", False, _boolean),
    _long("retention.bytes", -1, -(2**63), "log.retention.bytes"),
    _long(
        "retention.ms",
        604_800_000,
        -1,
        "log.retention.ms",
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    # Kafka 4 takes 1 MiB at least; topics that an older version made may have less, down to a batch's prefix.
    _int("segment.bytes", 1 << 30, 14, "log.segment.bytes", topic=(INTERNAL_SEGMENT_BYTES,)),
    _int("segment.index.bytes", 10 << 20, 4, "log.index.size.max.bytes"),
    _long("segment.jitter.ms", 0, 0, "log.roll.jitter.ms", ("log.roll.jitter.hours", _HOUR_MS)),
    _long("segment.ms", 604_800_000, 1, "log.roll.ms", ("log.roll.hours", _HOUR_MS)),
)
DEFINITIONS: Final[Mapping[str, Definition]] = {definition.name: definition for definition in _ALL}
BROKER_ONLY: Final = frozenset({"producer.id.expiration.ms"})
