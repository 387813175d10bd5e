"""Which batches of a segment to keep where their offsets contradict each other: as many as can be read one by one.

A base offset is not under the checksum, and a last offset can be wrong under one that fits. A batch that claims offsets
too high reaches over those behind it, one that claims them too low falls back behind those before it: no reader can use
both. So the longest run of rising offsets stays, and the others are lost. Of runs that are equally long, that one stays
in which more batches vouch for each other and hold as many records as offsets; then the one with the lower end. Two
batches vouch for each other if no offsets are missing between them but those of the batches between them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import NDArray

from kseg.log.order import Offsets


def find_rising(firsts: Offsets, lasts: Offsets, full: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The batches that stay, given in the order of the file; none ends before it begins.

    Args:
        full: Which of them hold as many records as offsets.
    """
    spans = lasts - firsts + 1
    distances = firsts - (np.cumsum(spans) - spans)  # equal where no offsets are missing
    before, last = _best_runs(firsts.tolist(), lasts.tolist(), distances.tolist(), full.tolist())
    stays = np.zeros(len(firsts), np.bool_)
    while last >= 0:
        stays[last] = True
        last = before[last]
    return stays


def _best_runs(firsts: list[int], lasts: list[int], distances: list[int], full: list[bool]) -> tuple[list[int], int]:
    """Of the best run that ends with each batch the batch before it, -1 for none; and where the best of all ends.

    `ends` are the last offsets of the runs that no run with a lower end is better than: they rise with the worth.
    """
    one = 2 * len(firsts) + 1  # a batch is worth more than all that can be said of its neighbours
    worths, before = [0] * len(firsts), [-1] * len(firsts)
    ends: list[int] = []
    runs: list[int] = []
    vouching: dict[int, int] = {}  # by distance the batch that the best run ends with
    for i, (first, last, distance) in enumerate(zip(firsts, lasts, distances, strict=True)):
        place = bisect_left(ends, first) - 1
        previous, worth = (runs[place], worths[runs[place]]) if place >= 0 else (-1, 0)
        neighbour = vouching.get(distance)
        if neighbour is not None and worths[neighbour] + 1 > worth:
            previous, worth = neighbour, worths[neighbour] + 1
        worths[i], before[i] = worth + one + full[i], previous
        if neighbour is None or worths[i] > worths[neighbour]:
            vouching[distance] = i
        lower = bisect_right(ends, last)
        if lower and worths[runs[lower - 1]] >= worths[i]:
            continue
        start = bisect_left(ends, last)
        stop = start
        while stop < len(ends) and worths[runs[stop]] <= worths[i]:
            stop += 1
        ends[start:stop], runs[start:stop] = [last], [i]
    return before, runs[-1] if runs else -1
