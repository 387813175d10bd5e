"""Kafka's topic settings: what parses, and what does not."""

from __future__ import annotations

import pytest

from kseg.errors import OptionError
from kseg.settings.definitions import DEFINITIONS, parse_broker_setting, parse_setting


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 1000 ", 1000),
        ("retention.ms", "-1", -1),
        ("retention.ms", "+5", 5),
        ("retention.bytes", "-7", -7),
        ("cleanup.policy", "delete , compact", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", ("delete",), ("delete",)),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("remote.storage.enable", "TRUE", True),
        ("remote.storage.enable", False, False),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("segment.bytes", 4096, 4096),
    ],
)
def test_values(name, text, value):
    parsed = parse_setting(name, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1.5"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "${env:RETENTION}"),
        ("retention.ms", ""),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "13"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "none"),
        ("cleanup.policy", "compact,"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("remote.storage.enable", "yes"),
        ("message.timestamp.type", "createtime"),
        ("no.such.setting", "1"),
    ],
)
def test_wrong_values(name, text):
    with pytest.raises(OptionError, match=name):
        parse_setting(name, text)


@pytest.mark.parametrize(("text", "value"), [("3", 180_000), ("-5", -1)])
def test_retention_of_a_broker_in_minutes(text, value):
    assert parse_broker_setting(DEFINITIONS["retention.ms"], "log.retention.minutes", 60_000, text) == value


def test_no_retention_of_a_broker_is_no_value():
    with pytest.raises(OptionError, match=r"log\.retention\.ms"):
        parse_broker_setting(DEFINITIONS["retention.ms"], "log.retention.ms", 1, "0")


def test_defaults_are_values():
    for name, definition in DEFINITIONS.items():
        assert parse_setting(name, definition.default) == definition.default
