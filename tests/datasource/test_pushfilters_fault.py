"""Spark's fault in `pushFilters`, which is why kseg takes predicates as options and pushes no filters down.

Spark keeps one plan for each `load()`. A scan whose filters were pushed overwrites it, and later or sibling scans of
the same DataFrame read the narrowed plan. The tests that fail for this are strict: the release of Spark that mends it
turns them into failures, and then pushdown is worth having. The reader hands every filter back, so that Spark applies
them too: that does not help, for the narrowed partitions stay.
"""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition

from tests.datasource.spark_session import session_conf

PARTS = 4
ROWS_EACH = 10
FAULT = pytest.mark.xfail(raises=AssertionError, strict=True, reason="Spark keeps pushed filters over scans")


class PartsReader(DataSourceReader):
    """Reads rows (part, row); `part = N` narrows the partitions."""

    def __init__(self):
        self.parts = list(range(PARTS))

    def pushFilters(self, filters):
        for one in filters:
            if isinstance(one, EqualTo) and one.attribute == ("part",):
                self.parts = [part for part in self.parts if part == one.value]
            yield one  # Spark filters again

    def partitions(self):
        return [InputPartition(part) for part in self.parts]

    def read(self, partition):
        return iter([(partition.value, row) for row in range(ROWS_EACH)])


class PartsSource(DataSource):
    @classmethod
    def name(cls):
        return "pushfilters_fault"

    def schema(self):
        return "part int, row int"

    def reader(self, schema):
        return PartsReader()


@pytest.fixture
def frame(spark):
    spark.dataSource.register(PartsSource)
    with session_conf(spark, **{"spark.sql.python.filterPushdown.enabled": "true"}):
        yield spark.read.format("pushfilters_fault").load()


def test_a_first_scan_is_right(frame):
    assert frame.where("part = 1").count() == ROWS_EACH


@FAULT
def test_a_scan_after_a_filtered_one_sees_every_row(frame):
    frame.where("part = 1").count()
    assert frame.count() == PARTS * ROWS_EACH


@FAULT
def test_two_filtered_scans_of_one_query_see_their_own_rows(frame):
    both = frame.where("part = 1").union(frame.where("part = 2"))
    assert sorted(row.part for row in both.collect()) == [1] * ROWS_EACH + [2] * ROWS_EACH
