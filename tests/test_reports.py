"""Reports become plain values."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from pathlib import Path

from kseg.reports import Report


class Kind(enum.Enum):
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Inner:
    path: Path
    kind: Kind


@dataclass(frozen=True, slots=True)
class Outer(Report):
    inner: tuple[Inner, ...]
    digest: bytes
    counts: dict[int, int]


@dataclass(frozen=True, slots=True)
class Counted(Report):
    count: int

    def to_dict(self):
        return Report.to_dict(self) | {"doubled": 2 * self.count}


@dataclass(frozen=True, slots=True)
class Whole(Report):
    parts: tuple[Counted, ...]


def test_a_report_inside_of_another_tells_what_it_tells_alone():
    assert Whole((Counted(3),)).to_dict() == {"parts": [{"count": 3, "doubled": 6}]}


def test_a_report_is_plain_values_by_field_names():
    plain = Outer((Inner(Path("a/b"), Kind.ONE),), b"\x01\xff", {1: 2}).to_dict()
    assert plain == {"inner": [{"path": "a/b", "kind": "one"}], "digest": "01ff", "counts": {"1": 2}}
    json.dumps(plain)
