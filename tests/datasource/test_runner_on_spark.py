"""The tasks of a plan on Spark: same results, same errors."""

from __future__ import annotations

import pytest

from kseg.errors import FormatError
from kseg.runner import run_tasks

pytestmark = pytest.mark.spark


def test_results_and_errors_come_back_in_order(spark):
    def work(number):
        if number == 2:
            raise FormatError("two is bad", path="x", position=2)
        return number * 10

    results = run_tasks(work, range(4), spark=spark)
    assert [results[0], results[1], results[3]] == [0, 10, 30]
    assert isinstance(results[2], FormatError) and results[2].position == 2
