"""Which batches of a file are right about their offsets, where they contradict each other.

The base offset of a batch is not under its checksum: a flipped bit there makes a batch that is sound by itself claim
offsets that are before its predecessor's or behind its successor's. Who is wrong is settled so that no offset is given
that may be false:

1. A batch is vouched for by one before or behind it, or the next but one, if no offset is missing between the two but
   those of a batch between them. Others must fit between those that are vouched for.
2. Of what still contradicts, those count that are in every longest run of rising offsets.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]


def is_rising(firsts: Offsets, lasts: Offsets, floor: int) -> bool:
    """Whether every batch begins behind the one before it, and the first behind `floor`."""
    return bool(((firsts > np.append(floor, lasts[:-1])) & (lasts >= firsts)).all())


def find_in_order(firsts: Offsets, lasts: Offsets, floor: int) -> NDArray[np.bool_]:
    """Which batches, in the order of the file, are right; `floor` is the last offset before them."""
    rows = np.flatnonzero((lasts >= firsts) & (firsts > floor))
    if not is_rising(firsts[rows], lasts[rows], floor):
        rows = rows[_fit_vouched(firsts[rows], lasts[rows], floor)]
    if not is_rising(firsts[rows], lasts[rows], floor):
        rows = rows[_in_every_longest_run(firsts[rows], lasts[rows])]
    right = np.zeros(len(firsts), np.bool_)
    right[rows] = True
    return right


def _fit_vouched(firsts: Offsets, lasts: Offsets, floor: int) -> NDArray[np.bool_]:
    # how many offsets a batch has is under its checksum: where nothing is missing, all have one distance to the count
    spans = np.append(0, lasts - firsts + 1)
    distances = np.append(floor + 1, firsts - np.cumsum(spans)[:-1])
    vouched = np.zeros(len(distances), np.bool_)
    for step in (1, 2):
        equal = distances[step:] == distances[:-step]
        vouched[step:] |= equal
        vouched[:-step] |= equal
    vouched = vouched[1:]
    highest = np.maximum.accumulate(np.where(vouched, lasts, floor))
    lowest = np.minimum.accumulate(np.where(vouched, firsts, np.iinfo(np.int64).max)[::-1])[::-1]
    before = np.append(floor, highest[:-1])
    behind = np.append(lowest[1:], np.iinfo(np.int64).max)
    return np.asarray(vouched | ((firsts > before) & (lasts < behind)))


def _in_every_longest_run(firsts: Offsets, lasts: Offsets) -> NDArray[np.bool_]:
    ending = np.array(_run_lengths(firsts.tolist(), lasts.tolist()))
    starting = np.array(_run_lengths((-lasts[::-1]).tolist(), (-firsts[::-1]).tolist()))[::-1]
    in_some = ending + starting - 1 == ending.max()
    places = np.bincount(ending[in_some], minlength=int(ending.max()) + 1)
    return np.asarray(in_some & (places[ending] == 1))


def _run_lengths(firsts: list[int], lasts: list[int]) -> list[int]:
    """The length of the longest run of rising offsets that ends at each batch."""
    smallest_lasts: list[int] = []  # of the runs of each length
    lengths = []
    for first, last in zip(firsts, lasts, strict=True):
        place = bisect_left(smallest_lasts, first)
        if place == len(smallest_lasts):
            smallest_lasts.append(last)
        else:
            smallest_lasts[place] = min(smallest_lasts[place], last)
        lengths.append(place + 1)
    return lengths
