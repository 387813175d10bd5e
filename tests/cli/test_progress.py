"""Lines of progress, where stderr is no terminal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kseg.cli import progress
from kseg.cli.progress import Lines


def told(capsys: pytest.CaptureFixture[str], steps: list[int], total: int = 100) -> list[str]:
    lines = Lines()
    lines.begin("orders-0 keys", total)
    for step in steps:
        lines.advance(step)
    lines.end()
    return capsys.readouterr().err.splitlines()


def test_a_long_phase_ended_without_its_last_line(capsys, monkeypatch):
    times = iter([0.0, 11.0, 11.0, 12.0])  # at the start, at the first step twice, at the second
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(times)))
    assert told(capsys, [30, 70]) == ["kseg: orders-0 keys: 30 %", "kseg: orders-0 keys: 100 %"]


def test_a_line_is_not_told_twice(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert told(capsys, [50, 50]) == ["kseg: orders-0 keys: 50 %", "kseg: orders-0 keys: 100 %"]


def test_a_short_phase_is_silent(capsys):
    assert told(capsys, [50, 50]) == []
