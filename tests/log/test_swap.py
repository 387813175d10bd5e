"""Segments in the place of others: what is not there takes nobody's place."""

from __future__ import annotations

import pytest

from kseg.errors import LogError
from kseg.log.swap import replace_segments
from tests.builders import LogBuilder


def content(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("there", [(), (0,), (3,)])
def test_segments_were_deleted_though_the_new_one_was_not_there(tmp_path, there):
    log = LogBuilder(tmp_path).segment().batch(3).segment().batch(3).write()
    for base in there:
        (log / f"{base:020d}.log.cleaned").write_bytes(b"new")
    before = content(log)
    with pytest.raises(LogError, match="is not there"):
        replace_segments(log, [0, 3], [0, 3])
    assert content(log) == before


def test_indexes_that_a_new_segment_has_not_are_not_missed(tmp_path):
    log = LogBuilder(tmp_path).segment().batch(3).segment().batch(3).write()
    (log / f"{0:020d}.log.cleaned").write_bytes(b"new")
    replace_segments(log, [0], [0, 3])
    assert content(log)[f"{0:020d}.log"] == b"new"
    assert not list(log.glob(f"{3:020d}.*"))
