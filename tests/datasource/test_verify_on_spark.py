"""Verify on Spark finds what it finds in this process."""

from __future__ import annotations

import shutil

import pytest

import kseg

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
