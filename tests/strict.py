"""Where CI=true, a test that did not run is a failure: skips and loose expected failures fail the session.

These are pytest hooks; tests/conftest.py takes them in. Under xdist the controller receives every worker's
reports, so it alone decides.
"""

from __future__ import annotations

import os

import pytest

_not_run: dict[str, str] = {}


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"xfail without strict: {report.wasxfail}"
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # A marked xfail is strict (xfail_strict, and refuse_loose_xfails below); a call of pytest.xfail() never is.
    strict_xfail = hasattr(report, "wasxfail") and "xfail" in report.keywords
    if report.skipped and not strict_xfail:
        _not_run[report.nodeid] = _reason(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _not_run[report.nodeid] = _reason(report)


def refuse_loose_xfails(items: list[pytest.Item]) -> None:
    loose = [item.nodeid for item in items for mark in item.iter_markers("xfail") if mark.kwargs.get("strict") is False]
    if loose:
        raise pytest.UsageError("xfail marks must be strict: " + ", ".join(loose))


def _fails_session(config: pytest.Config) -> bool:
    on_worker = hasattr(config, "workerinput")
    return bool(_not_run) and not on_worker and os.environ.get("CI") == "true"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _fails_session(session.config) and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _fails_session(config):
        terminalreporter.section("did not run, which CI=true counts as failed", red=True)
        for test, reason in sorted(_not_run.items()):
            terminalreporter.line(f"{test}: {reason}")
