"""How a job tells how far it is. The base class says nothing; the command line has one that draws."""

from __future__ import annotations


class Progress:
    """Called by a job; every method may be overridden.

    Calls never overlap, but they may come from other threads than the one that started the job: on Spark, and where
    several partitions are worked on at a time, of which one is shown.
    """

    def begin(self, phase: str, total: int, unit: str = "B") -> None:
        """A phase of the job starts; `total` units of work lie ahead."""

    def advance(self, amount: int) -> None:
        """`amount` more units are done."""

    def end(self) -> None:
        """The phase is over, done or failed."""


SILENT = Progress()
