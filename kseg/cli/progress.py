"""Progress for people: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Final, Never

from tqdm import tqdm

from kseg.progress import SILENT, Progress

SECONDS_BETWEEN_LINES: Final = 10.0


class Bar(Progress):
    """Draws one bar per phase on stderr."""

    def __init__(self) -> None:
        self._bar: tqdm[Never] | None = None

    def begin(self, phase: str, total: int, unit: str = "B") -> None:
        """Show an empty bar."""
        self._bar = tqdm(
            total=total, desc=phase, unit=unit, unit_scale=True, unit_divisor=1024, dynamic_ncols=True, leave=False
        )

    def advance(self, amount: int) -> None:
        """Fill it a little."""
        if self._bar is not None:
            self._bar.update(amount)

    def end(self) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Lines(Progress):
    """Writes a line on stderr every few seconds of a phase that takes longer, and one at its end then."""

    def __init__(self) -> None:
        self._phase, self._total, self._done, self._told = "", 0, 0, 0.0
        self._percent: int | None = None

    def begin(self, phase: str, total: int, unit: str = "B") -> None:
        """Start counting."""
        self._phase, self._total, self._done, self._told = phase, total, 0, time.monotonic()
        self._percent = None

    def advance(self, amount: int) -> None:
        """Count, and tell if it was quiet for a while."""
        self._done += amount
        if time.monotonic() - self._told >= SECONDS_BETWEEN_LINES:
            self._told = time.monotonic()
            self._tell()

    def end(self) -> None:
        """Tell how far it came, where there is a line of the phase that says less."""
        if self._percent is not None and self._percent < self._reached:
            self._tell()
        self._percent = None

    @property
    def _reached(self) -> int:
        return 100 * self._done // self._total if self._total else 100

    def _tell(self) -> None:
        self._percent = self._reached
        print(f"kseg: {self._phase}: {self._percent} %", file=sys.stderr, flush=True)


def for_people(*, quiet: bool = False) -> Progress:
    """The progress that fits where stderr goes; none with --json, whose readers are programs."""
    if quiet:
        return SILENT
    return Bar() if sys.stderr.isatty() else Lines()
