"""Time several contestants in turns, so that a noisy machine disturbs all of them alike, and compare them.

Seconds are those of the processor, not of the clock on the wall: everything here runs on one thread and reads from the
page cache, so the two are equal on an idle machine, and on a busy one a wait for a core does not count.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

SETTLED = 4  # runs that are no faster than those before them

Run = Callable[[], int]


@dataclass(slots=True)
class Contestant:
    """Someone who does the work: `run` does it once and returns how many records it did.

    A contestant that runs in another process gives `clock`: the seconds that its last run took there.
    """

    name: str
    run: Run
    clock: Callable[[], float] | None = None
    records: int = 0
    seconds: list[float] = field(default_factory=list)

    def once(self) -> float:
        """Run and return the seconds."""
        began = time.process_time()
        self.records = self.run()
        elapsed = time.process_time() - began
        return elapsed if self.clock is None else self.clock()

    @property
    def best_rate(self) -> float:
        """Records a second in the best round."""
        return self.records / min(self.seconds)

    @property
    def median_rate(self) -> float:
        """Records a second in the median round."""
        return self.records / statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio to reach: the first contestant's rate over that of `against`."""

    against: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure one case."""

    seconds: float
    min_rounds: int
    max_rounds: int
    warm_up_seconds: float

    @classmethod
    def of(cls, *, quick: bool) -> Effort:
        """Enough for a first look, or for a result that is kept."""
        return cls(0.8, 3, 7, 0.4) if quick else cls(6.0, 12, 24, 1.0)


def warm_up(contestant: Contestant, effort: Effort) -> None:
    """Run once; and one that a just-in-time compiler works on until it gets no faster, or is hopelessly slow at it."""
    taken = [contestant.once()]
    began = time.perf_counter()
    while contestant.clock is not None:
        elapsed = time.perf_counter() - began
        settled = len(taken) > 2 * SETTLED and min(taken[-SETTLED:]) > 0.98 * min(taken[:-SETTLED])
        if (settled and elapsed >= effort.warm_up_seconds) or elapsed >= 3 * effort.warm_up_seconds:
            return
        taken.append(contestant.once())


def in_turn(contestants: Sequence[Contestant], number: int) -> list[Contestant]:
    """The order of a round: each begins in turn, and when all have begun, the next rounds go the other way round.

    So nobody always comes behind the same one, which may leave the disk or the memory busy.
    """
    turns, first = divmod(number, len(contestants))
    order = [*contestants[first:], *contestants[:first]]
    return order[::-1] if turns % 2 else order


def take_turns(contestants: Sequence[Contestant], effort: Effort) -> None:
    """Give each contestant one run a round, until the time is used up."""
    gc.collect()
    gc.disable()  # a collection would hit whoever's turn it is
    try:
        end = time.perf_counter() + effort.seconds
        for done in range(effort.max_rounds):
            for contestant in in_turn(contestants, done):
                contestant.seconds.append(contestant.once())
            if done + 1 >= effort.min_rounds and time.perf_counter() >= end:
                break
    finally:
        gc.enable()


def compare(contestants: Sequence[Contestant], goals: Sequence[Goal]) -> dict[str, Any]:
    """The first contestant against each of the others: raw seconds, rates, ratios, and whether goals are met.

    A ratio is above 1 where the first is faster. Goals are judged by the best rounds; that of the medians is there too.
    """
    first, *others = contestants
    wanted = {goal.against: goal.ratio for goal in goals}
    ratios: dict[str, dict[str, Any]] = {}
    for other in others:
        ratio = first.best_rate / other.best_rate
        entry: dict[str, Any] = {"best": round(ratio, 3), "median": round(first.median_rate / other.median_rate, 3)}
        if other.name in wanted:
            entry |= {"goal": round(wanted[other.name], 3), "met": ratio >= wanted[other.name]}
        ratios[other.name] = entry
    return {
        "records_per_second": {one.name: round(one.best_rate) for one in contestants},
        "records_a_round": {one.name: one.records for one in contestants},
        "seconds": {one.name: [round(value, 6) for value in one.seconds] for one in contestants},
        "ratios": ratios,
    }
