"""Verify on Spark finds what it finds in this process."""

from __future__ import annotations

import dataclasses
import re
import shutil

import pytest

import kseg
from tests.tiering.cluster import make_cluster, run

pytestmark = pytest.mark.spark


def test_findings_on_spark_are_those_of_this_process(spark, golden, tmp_path):
    shutil.copytree(golden / "before", tmp_path / "data")
    file = tmp_path / "data" / "compact-tx-0" / f"{4282:020d}.log"
    data = bytearray(file.read_bytes())
    data[5000] ^= 4
    file.write_bytes(data)
    here = kseg.verify(tmp_path / "data", against=golden / "before", deep=True)
    there = kseg.verify(tmp_path / "data", against=golden / "before", deep=True, spark=spark)
    assert not here.is_sound
    assert there.findings == here.findings
    assert (there.batches, there.records, there.bytes) == (here.batches, here.records, here.bytes)


def _without_seconds(finding):
    """How long a store was asked again is not the same in two runs."""
    return dataclasses.replace(finding, detail=re.sub(r" in \d+ s\b", "", finding.detail))


def test_a_tier_in_a_bucket_is_verified_by_executors(spark, s3, tmp_path):
    """They open the store by its URI themselves, and tell what this process tells, damage included."""
    folder = make_cluster(tmp_path / "data", per_segment=60)
    tier = s3.bucket("tier")
    assert run(folder, tier, layout="chunked").segments == 3
    here, there = kseg.verify(tier, deep=True), kseg.verify(tier, deep=True, spark=spark)
    assert here.is_sound
    assert (there.segments, there.records, there.findings) == (3, here.records, here.findings)
    assert kseg.verify(folder, against=tier, topics=["a"], spark=spark).is_sound
    log = min(path for path in s3.folder.rglob("*.log") if path.is_file())
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    here, there = kseg.verify(tier), kseg.verify(tier, spark=spark)
    assert not there.is_sound
    assert [_without_seconds(finding) for finding in there.findings] == [
        _without_seconds(finding) for finding in here.findings
    ]
