"""An offload whose tasks run on Spark copies what one in this process copies."""

from __future__ import annotations

import pytest

from kseg.tiering import fsck
from tests.tiering.cluster import make_cluster, run

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("layout", ["plain", "chunked"])
def test_the_same_objects(spark, tmp_path, layout):
    found = {}
    for name, session in (("here", None), ("spark", spark)):
        folder, tier = make_cluster(tmp_path / name / "data", partitions=2), tmp_path / name / "tier"
        report = run(folder, tier, layout=layout, spark=session, delete_local=True)
        assert (report.refusals, [partition.error for partition in report.partitions]) == ((), [None, None])
        assert (report.segments, report.deleted_segments) == (6, 6)
        assert not any((folder / f"a-{partition}" / ".kseg").exists() for partition in range(2))
        checked = fsck(str(tier), metadata=folder, remote_metadata_partitions=1, deep=True)
        assert (checked.segments, checked.findings) == (6, ())
        found[name] = sorted(
            (path.name[:20], path.suffix, path.stat().st_size) for path in tier.rglob("*-*.*") if path.is_file()
        )
    assert found["here"] == found["spark"]
