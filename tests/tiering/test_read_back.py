"""What kseg offloads is read as one log with what is left."""

from __future__ import annotations

import pytest

import kseg
from tests.reference.rows import records_of
from tests.tiering.cluster import make_cluster, rows, run


@pytest.mark.parametrize("layout", ["plain", "chunked"])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_local_and_remote_are_one_log(tmp_path, layout, isolation):
    folder = make_cluster(tmp_path / "data")
    whole = rows(folder / "a-0", isolation=isolation)
    run(folder, tmp_path / "tier", layout=layout, delete_local=True)
    log = kseg.open_log(folder / "a-0", remote=str(tmp_path / "tier"))
    assert [segment.tier for segment in log.segments] == ["remote"] * 3 + ["local"]
    assert records_of(log.read(isolation=isolation)) == whole
