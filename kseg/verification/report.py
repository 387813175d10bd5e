"""What `verify` hands back."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from kseg.reports import Report
from kseg.tables import Column, format_count, format_size, format_table, visible
from kseg.verification.findings import Finding
from kseg.verification.kinds import Severity

_COLUMNS: Final = (
    Column("CODE"),
    Column("SEVERITY"),
    Column("FILE", at_least=20),
    Column("BYTE", right=True),
    Column("OFFSET", right=True),
)
_ORDER: Final = {Severity.DAMAGE: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True)
class VerifyReport(Report):
    """What was looked at, and what was found; it prints as a table.

    Attributes:
        findings: By partition, and in the order of the files.
        against: The copy that was compared, None where there was none.
    """

    path: str
    against: str | None
    deep: bool
    partitions: int
    segments: int
    batches: int
    records: int
    bytes: int
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """True where there is no damage; there may be warnings."""
        return not self.of(Severity.DAMAGE)

    def of(self, severity: Severity | str) -> list[Finding]:
        """The findings of one severity: `damage`, `warning` or `info`."""
        return [finding for finding in self.findings if finding.severity == severity]

    def counts(self) -> dict[str, int]:
        """How many findings there are of each severity, those not listed included."""
        found: Counter[str] = Counter()
        for finding in self.findings:
            found[finding.severity.value] += 1 + finding.others
        return {severity.value: found[severity.value] for severity in Severity}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        plain = super(VerifyReport, self).to_dict()
        return plain | {"findings": [finding.to_dict() for finding in self.findings], **self.summary()}

    def summary(self) -> dict[str, Any]:
        """What was looked at, and how many findings there are, without the findings."""
        names = ("path", "against", "deep", "partitions", "segments", "batches", "records", "bytes", "seconds")
        return {name: getattr(self, name) for name in names} | {"sound": self.is_sound} | self.counts()

    def lines(self, width: int = 80, *, infos: bool = True) -> list[str]:
        """The report for people: findings, the worst first, what they mean, and a summary."""
        shown = [finding for finding in self.findings if infos or finding.severity is not Severity.INFO]
        shown.sort(key=lambda finding: _ORDER[finding.severity])
        lines: list[str] = []
        if shown:
            rows = [(f.code, f.severity.value, self._place(f), f.position, f.offset) for f in shown]
            head, *body = format_table(_COLUMNS, rows, width)
            lines.append(head)
            for finding, row in zip(shown, body, strict=True):
                lines += [row, *_indented(_detail(finding), width)]
            lines.append("")
            for code in dict.fromkeys(finding.code for finding in shown):
                kind = next(finding for finding in shown if finding.code == code)
                lines += _indented(f"{code}: {kind.meaning} {kind.advice}", width, first="")
            lines.append("")
        return lines + self._summary_lines()

    def _place(self, finding: Finding) -> str:
        path = finding.path
        root = self.path.rstrip("/") + "/"
        return path[len(root) :] if path.startswith(root) else path

    def _summary_lines(self) -> list[str]:
        counts = self.counts()
        what = "records too" if self.deep else "without records"
        rate = self.bytes / self.seconds if self.seconds > 0 else 0.0
        return [
            f"{format_count(self.partitions, 'partition')}, {format_count(self.segments, 'segment')}, "
            f"{format_count(self.batches, 'batch')} ({what}), {format_size(self.bytes)}",
            f"in {self.seconds:.2f} s, {format_size(int(rate))}/s: "
            f"{counts['damage']} damaged, {format_count(counts['warning'], 'warning')}, "
            f"{format_count(counts['info'], 'info')}",
        ]


def _detail(finding: Finding) -> str:
    text = visible(finding.detail, keep_backslash=True)
    return f"{text} (and {finding.others} more)" if finding.others else text


def _indented(text: str, width: int, first: str = "       ") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent="       ", break_on_hyphens=False)
