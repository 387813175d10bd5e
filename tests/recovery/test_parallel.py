"""A segment that is checked in pieces is checked as by one walk, wherever it is divided and damaged."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kseg.errors import FormatError
from kseg.native import table as t
from kseg.recovery import parallel
from kseg.recovery.folder import Folder
from kseg.recovery.segments import walk_chunks
from tests.builders import LogBuilder
from tests.recovery.damages import LOG_DAMAGES, bases_of, copy
from tests.reference.record import Record
from tests.scale import counts


def rows_of(chunks):
    """All rows of a walk, and the damage that ended it."""
    tables, problem = [np.empty((t.COLUMNS, 0), np.int64)], None
    try:
        for chunk in chunks:
            tables += [chunk.table[:, : chunk.rows].copy()]
    except FormatError as error:
        problem = (type(error), error.position, error.message)
    return np.concatenate(tables, axis=1), problem


@pytest.fixture(autouse=True, params=[350, 2 << 20])
def small_pieces(monkeypatch, request):
    """Pieces, tables and buffers that most batches are too many or too large for, or buffers that all fit into."""
    monkeypatch.setattr(parallel, "SMALLEST_PIECE", 300)
    monkeypatch.setattr(parallel, "PIECE_BYTES", 2000)
    monkeypatch.setattr(parallel, "_FIRST_ROWS", 3)
    monkeypatch.setattr(parallel, "_READ_BYTES", request.param)


def assert_same_walk(directory, workers):
    folder = Folder.read(str(directory))
    for base in bases_of(directory):
        with folder.open(f"{base:020d}.log") as file:
            one, problem = rows_of(walk_chunks(file, check=True))
            several, other = rows_of(parallel.walk_checked(file, base, workers=workers))
        assert problem == other
        assert np.array_equal(one, several)


def test_random_damages(logs, tmp_path):
    for number in range(counts(60)):
        rng = random.Random(number)
        directory = copy(rng.choice(logs)[0], tmp_path / str(number))
        rng.choice([*LOG_DAMAGES, lambda *_: ""])(rng, directory)
        assert_same_walk(directory, rng.choice([2, 3]))


def test_batches_inside_records_are_no_batches_of_the_log(tmp_path):
    inner = LogBuilder(tmp_path, "inner").segment().batch(3).batch(3)
    value = inner.segments[0].data * 20
    outer = LogBuilder(tmp_path, "outer").segment()
    for offset in range(30):
        outer.batch([Record(offset, 5, None, value, ())])
    assert_same_walk(outer.write(), 2)
