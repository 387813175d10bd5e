"""Damaged chunks of a tier, on Spark."""

from __future__ import annotations

import pytest

import kseg
from kseg.tiering.layout import ChunkedPart
from tests.tiering.damaged import REASON, DamagedTier


@pytest.mark.parametrize("way", ["compressed", "both"])
def test_what_lies_in_other_chunks_is_read(spark, tmp_path, way):
    tier = DamagedTier(tmp_path, way)
    tier.damage(1, 2)
    wanted = tier.offsets_without(1, 2)
    keys = ",".join(f"{key}={file}" for key, file in tier.keys.items())
    options = {"subscribe": "orders", "minPartitions": "9", **({"remoteKeys": keys} if keys else {})}
    reader = spark.read.format("kseg").options(**options)
    rows = reader.option("corrupt", "column").load(str(tier.root)).collect()
    assert sorted(row.offset for row in rows if row["_corrupt"] is None) == wanted
    told = [row["_corrupt"] for row in rows if row["_corrupt"] is not None]
    assert told
    assert all(REASON.search(row.reason) and row.file == str(tier.path(1, ChunkedPart.LOG)) for row in told)
    skipped = kseg.scan(spark, str(tier.root), columns=["offset"], corrupt="skip", **options)
    assert sorted(row.offset for row in skipped.collect()) == wanted
