"""A tier on a real S3 server, read by Spark: both layouts, both isolation levels, over connections that break."""

from __future__ import annotations

import pytest

import kseg
from tests.s3.proxy import Proxy
from tests.tiering.cluster import make_cluster, rows, run


@pytest.mark.parametrize("layout", ["plain", "chunked"])
def test_both_levels_and_connections_that_break(spark, s3, tmp_path, layout):
    folder = make_cluster(tmp_path / "data", segments=3, per_segment=60)
    whole = [(row.offset, row.value) for row in rows(folder / "a-0")]
    assert run(folder, s3.bucket("tier"), layout=layout, delete_local=True).deleted_segments == 2
    with Proxy(s3.address, drop_every=25) as proxy:
        options = {"subscribe": "a", "remote": s3.uri("tier", proxy.address), "columns": "offset,value"}
        for level, wanted in (
            ("read_uncommitted", whole),
            ("read_committed", [row for row in whole if row[0] % 60 > 54]),
        ):
            reader = spark.read.format("kseg").options(**options).option("kafka.isolation.level", level)
            found = reader.load(str(folder)).collect()
            assert sorted((row.offset, row.value and bytes(row.value)) for row in found) == wanted
        alone = kseg.scan(spark, options["remote"], topics="a", columns=["offset"])
        assert sorted(row.offset for row in alone.collect()) == [row[0] for row in whole if row[0] < 120]
        assert proxy.connections > 10
