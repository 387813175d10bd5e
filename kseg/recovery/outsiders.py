"""Batches that a producer wrote outside of its open transaction: no broker starts on them, so salvage leaves them out.

A producer is transactional or it is not, so one that wrote both kinds of batches has some that are wrong. Where most of
its batches are plain, the transactional ones go; else the plain ones that came while a transaction was open.
"""

from __future__ import annotations

import collections

import numpy as np
from numpy.typing import NDArray

from kseg.errors import LogError
from kseg.log.producers import ProducerState
from kseg.log.walk import Chunk
from kseg.native import table as t
from kseg.recovery.folder import Folder
from kseg.recovery.segments import LoadedSegment


def find_plain_producers(folder: Folder) -> NDArray[np.int64]:
    """Ids of the producers that wrote transactional batches, but mostly plain ones.

    Batches are counted up to where a segment cannot be walked: more than most of them are not needed.
    """
    balance: collections.Counter[int] = collections.Counter()
    transactional: set[int] = set()
    for base in folder.bases():
        try:
            for chunk in LoadedSegment(folder, base).walk():
                ids, is_data, in_transaction = _kinds(chunk)
                transactional.update(np.unique(ids[is_data & in_transaction]).tolist())
                for kind, step in ((is_data & ~in_transaction, 1), (is_data & in_transaction, -1)):
                    for producer, count in zip(*np.unique(ids[kind], return_counts=True), strict=True):
                        balance[int(producer)] += step * int(count)
        except LogError:
            continue
    return np.array([producer for producer in sorted(transactional) if balance[producer] > 0], np.int64)


def find_outsiders(chunk: Chunk, state: ProducerState, plain: NDArray[np.int64]) -> tuple[list[int], ProducerState]:
    """Positions of the batches of a chunk that go, and the producers behind those that stay."""
    ids, is_data, in_transaction = _kinds(chunk)
    stray = is_data & in_transaction & np.isin(ids, plain)
    outside: list[int] = chunk.table[t.POSITION, : chunk.rows][stray].tolist()
    table = np.ascontiguousarray(chunk.table[:, : chunk.rows][:, ~stray])
    row, rows = 0, table.shape[1]
    while row < rows:
        before = state.copy()
        try:
            state.add(table, rows - row, first_row=row)
            break
        except LogError as error:
            found = row + int((table[t.BASE_OFFSET, row:] == error.offset).argmax())
        goes = table[t.PRODUCER_ID, found] not in plain  # else it is wrong that its transaction is open
        if goes:
            outside.append(int(table[t.POSITION, found]))
        before.add(table, found - row + (not goes), first_row=row, strict=False)
        state, row = before, found + 1
    return outside, state


def _kinds(chunk: Chunk) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Producer ids of batches, which of them are a producer's data, and which are transactional."""
    ids, attributes = chunk.table[t.PRODUCER_ID, : chunk.rows], chunk.table[t.ATTRIBUTES, : chunk.rows]
    return ids, (ids >= 0) & (attributes & t.CONTROL_BIT == 0), attributes & t.TRANSACTIONAL_BIT != 0
