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


def test_a_report_is_plain_values_by_field_names():
    plain = Outer((Inner(Path("a/b"), Kind.ONE),), b"\x01\xff", {1: 2}).to_dict()
    assert plain == {"inner": [{"path": "a/b", "kind": "one"}], "digest": "01ff", "counts": {"1": 2}}
    json.dumps(plain)
