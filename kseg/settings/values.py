"""Settings that are known, with who said so, and refusals where they are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kseg.settings.definitions import SettingValue


class Origin(StrEnum):
    """Who said what a setting is."""

    GIVEN = "given"
    TOPIC = "topic"
    BROKER = "broker"
    CLUSTER = "cluster"
    FILE = "server.properties"
    DEFAULT = "default"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that holds, and who said so."""

    value: SettingValue
    origin: Origin


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is not done, and why.

    Attributes:
        is_damage: Because files are damaged, and not because something is not known or not wanted.
        is_usual: Nothing has to be done about it: internal topics are left alone unless they are named.
    """

    subject: str
    reason: str
    is_damage: bool = False
    is_usual: bool = False

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"


class TopicSettings(Mapping[str, SettingValue]):
    """The settings of a topic by their names; `origins` says who said so."""

    def __init__(self, topic: str, settings: Mapping[str, Setting]) -> None:
        self.topic = topic
        self._settings = dict(settings)

    def __getitem__(self, name: str) -> SettingValue:
        return self._settings[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def integer(self, name: str) -> int:
        """A setting that is a whole number."""
        value = self[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is no whole number")
        return value

    @property
    def policy(self) -> frozenset[str]:
        """cleanup.policy: `compact`, `delete`, both or none."""
        value = self["cleanup.policy"]
        return frozenset(value) if isinstance(value, tuple) else frozenset()

    @property
    def origins(self) -> dict[str, Origin]:
        """Who said what each setting is."""
        return {name: setting.origin for name, setting in self._settings.items()}
