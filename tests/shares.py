"""Where the time of a long run goes, folder by folder; tests/conftest.py takes it in.

Workers' seconds, fixtures included: with two workers a run takes about half of their sum.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

import pytest

SHORT_RUN = 60.0  # seconds; nobody asks where these go


class Shares:
    """A plugin of the process that receives all reports."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = PurePosixPath(report.nodeid.partition("::")[0])
        self._seconds[str(file.parent)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = self._seconds.total()
        if total < SHORT_RUN:
            return
        terminalreporter.section("workers' seconds by folder")
        for folder, seconds in self._seconds.most_common():
            terminalreporter.line(f"{seconds:8.1f} {seconds / total:6.1%} {folder}")
