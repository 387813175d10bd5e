"""How a job tells how far it is. The base class says nothing; the command line has one that draws."""

from __future__ import annotations


class Progress:
    """Called by a job from the thread that started it; every method may be overridden."""

    def begin(self, phase: str, total: int, unit: str = "B") -> None:
        """A phase of the job starts; `total` units of work lie ahead."""

    def advance(self, amount: int) -> None:
        """`amount` more units are done."""

    def end(self) -> None:
        """The phase is over, done or failed."""


SILENT = Progress()
