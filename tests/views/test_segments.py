"""The view of segments says what is on disk."""

from __future__ import annotations

from pathlib import Path

import kseg
from kseg.views import segments
from tests.views.support import rows_of


def test_rows_are_the_files(golden):
    rows = rows_of("segments", kseg.open_dir(golden / "before"))
    assert [row["path"] for row in rows] == sorted(str(path) for path in (golden / "before").glob("*/*.log"))
    for row in rows:
        path = Path(row["path"])
        assert path.parent.name == f"{row['topic']}-{row['partition']}"
        assert (int(path.stem), path.stat().st_size) == (row["baseOffset"], row["size"])
        assert row["indexBytes"] == path.with_suffix(".index").stat().st_size
        assert row["timeIndexBytes"] == path.with_suffix(".timeindex").stat().st_size
        assert row["hasTxnIndex"] == path.with_suffix(".txnindex").exists()
        assert row["tier"] == "local"
        assert abs(row["mtime"].timestamp() - path.stat().st_mtime) < 0.002


def test_segments_follow_each_other(golden):
    rows = [row for row in rows_of("segments", kseg.open_dir(golden / "before")) if row["topic"] == "multi-segment"]
    assert [row["nextOffset"] for row in rows] == [*(row["baseOffset"] for row in rows[1:]), 9000]
    assert [row["isActive"] for row in rows] == [False] * (len(rows) - 1) + [True]


def test_an_empty_segment_and_missing_indexes(golden, tmp_path):
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "00000000000000000007.log").touch()
    (row,) = rows_of("segments", kseg.open_dir(tmp_path))
    assert (row["baseOffset"], row["nextOffset"], row["maxTimestamp"]) == (7, 7, None)
    assert (row["indexBytes"], row["timeIndexBytes"], row["hasTxnIndex"]) == (None, None, False)


def test_partitions_share_units(golden):
    logs = kseg.open_dir(golden / "before").partitions
    assert len(segments.plan(logs)) == 1
    assert len(segments.plan(logs, unit_segments=1)) == len(logs)
