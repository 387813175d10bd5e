"""What a broker knows of producers after an erasure."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import erase

NOW_MS = 1_800_000_000_000


def values(keys: list[str]) -> pa.Table:
    return pa.table({"key": keys, "value": ["v"] * len(keys), "timestamp": [NOW_MS - 1000] * len(keys)})


@pytest.mark.parametrize("recovery_point", [0, 5])
@pytest.mark.parametrize("log_start", [1, 2])
def test_producers_below_the_log_start_were_forgotten_once_the_rest_of_that_segment_was_erased(
    oracle, tmp_path, log_start, recovery_point
):
    """A broker that recovers the segment believes a snapshot of its end only where that is behind the log start."""
    directory = tmp_path / "data" / "t-0"
    with kseg.create_log(directory, clock=lambda: NOW_MS / 1000) as writer:
        writer.append(values(["a"]), producer_id=1)
        writer.append(values(["b"]), producer_id=3)
        writer.append(values(["x"]))
        writer.roll()
        writer.append(values(["c", "d"]), producer_id=7)
    for kind, offset in (("log-start", log_start), ("recovery-point", recovery_point)):
        (directory.parent / f"{kind}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    options = {"logStart": log_start, "recoveryPoint": recovery_point, "now": NOW_MS}
    before = oracle.load(shutil.copytree(directory, tmp_path / "before" / "t-0"), **options)
    report = erase(directory, keys=[b"x"])
    assert (report.records, [place.error for place in report.places]) == (1, [None])
    after = oracle.load(shutil.copytree(directory, tmp_path / "after" / "t-0"), **options)
    for name in ("logStart", "logEnd", "lastStable", "producers", "epochs"):
        assert after[name] == before[name]
