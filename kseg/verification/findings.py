"""What was found: where, and of which kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from kseg.errors import KsegError
from kseg.verification.kinds import KINDS, Severity

MOST_OF_A_KIND: Final = 20  # findings of one kind in one file that are listed; the others are counted


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was found.

    Attributes:
        code: The kind, by a code that stays the same from version to version (`KINDS`).
        path: The file or directory.
        position: Byte position in the file, where there is one.
        offset: Kafka offset, where there is one.
        detail: What exactly.
        others: How many more of this kind the file has, which are not listed.
    """

    code: str
    path: str
    detail: str
    position: int | None = None
    offset: int | None = None
    topic: str | None = None
    partition: int | None = None
    others: int = 0

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return KINDS[self.code].severity

    @property
    def meaning(self) -> str:
        """What it means."""
        return KINDS[self.code].meaning

    @property
    def advice(self) -> str:
        """What to do."""
        return KINDS[self.code].advice

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "topic": self.topic,
            "partition": self.partition,
            "path": self.path,
            "position": self.position,
            "offset": self.offset,
            "detail": self.detail,
            "meaning": self.meaning,
            "advice": self.advice,
            "others": self.others,
        }


class Findings:
    """Collects findings; of many of one kind in one file only the first are kept, and the others counted."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._seen: Counter[tuple[str, str]] = Counter()

    def add(
        self,
        code: str,
        path: str,
        detail: str,
        *,
        position: int | None = None,
        offset: int | None = None,
        more: int = 0,
    ) -> None:
        """Take one; `more` like it are only counted."""
        key = (code, path)
        self._seen[key] += 1 + more
        if self._seen[key] - more <= MOST_OF_A_KIND:
            self._kept.append(Finding(code, path, detail, position, offset))

    def add_error(self, code: str, error: KsegError, path: str = "") -> None:
        """Take what an error says."""
        self.add(code, error.path or path, error.message, position=error.position, offset=error.offset)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Take those of a part of the work."""
        for finding in findings:
            self._seen[finding.code, finding.path] += 1 + finding.others
            self._kept.append(replace(finding, others=0))

    def list(self) -> list[Finding]:
        """All of them; the last of a kind in a file says how many more there are."""
        kept_of: Counter[tuple[str, str]] = Counter((finding.code, finding.path) for finding in self._kept)
        last = {(finding.code, finding.path): i for i, finding in enumerate(self._kept)}
        return [
            replace(finding, others=self._seen[key] - kept_of[key])
            if last[key := (finding.code, finding.path)] == i
            else finding
            for i, finding in enumerate(self._kept)
        ]
