"""What every job hands back: a frozen dataclass that becomes a dict for programs and a table for people."""

from __future__ import annotations

import dataclasses
import enum
import os
from typing import Any


class Report:
    """Base of the reports: `to_dict` for programs, `lines` for people; a report prints as its lines."""

    __slots__ = ()

    def lines(self, width: int = 80) -> list[str]:
        """The report for people, in lines of at most `width` characters where it can be; by default its fields."""
        return [f"{name}: {value}" for name, value in self.to_dict().items()]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, ready for JSON, by the names of its fields."""
        return {field.name: to_plain(getattr(self, field.name)) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def to_plain(value: Any) -> Any:
    """A value as JSON can say it: dataclasses as dicts, enums by their values, paths as text, bytes in hex."""
    if isinstance(value, Report):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return to_plain(value.value)
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, bytes):
        return value.hex()
    return value
