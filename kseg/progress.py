"""How a job tells how far it is. The base class says nothing; the command line has one that draws."""

from __future__ import annotations


class Progress:
    """Called by a job; every method may be overridden.

    Calls never overlap, but on Spark `advance` may come from another thread than the one that started the job.
    """

    def begin(self, phase: str, total: int, unit: str = "B") -> None:
        """A phase of the job starts; `total` units of work lie ahead."""

    def advance(self, amount: int) -> None:
        """`amount` more units are done."""

    def end(self) -> None:
        """The phase is over, done or failed."""


SILENT = Progress()
