"""The tasks of a plan on Spark: same results, same errors."""

from __future__ import annotations

import time

import pytest
from pyspark.errors import PySparkException

import kseg.runner
from kseg.errors import FormatError
from kseg.progress import Progress
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


class Released(Progress):
    """Lets the task that waits go on once some progress was told."""

    def __init__(self, gate):
        self.gate, self.steps = gate, []

    def advance(self, amount):
        self.steps.append(amount)
        self.gate.touch()


def test_progress_is_told_while_tasks_run_and_adds_up(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(kseg.runner, "SECONDS_BETWEEN_LOOKS", 0.01)
    progress = Released(tmp_path / "go")
    gate = progress.gate

    def work(number):
        while number == 5 and not gate.exists():
            time.sleep(0.05)
        return number

    assert run_tasks(work, range(6), spark=spark, progress=progress, weights=[10, 1, 1, 1, 1, 7]) == [*range(6)]
    assert len(progress.steps) > 1 and sum(progress.steps) == 21 and min(progress.steps) > 0
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_job_group_of_the_user_is_kept(spark):
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "mine")
    try:
        assert run_tasks(abs, [-1, -2], spark=spark) == [1, 2]
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
        assert spark.sparkContext.statusTracker().getJobIdsForGroup("mine")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_another_error_ends_the_job(spark):
    with pytest.raises(PySparkException, match="ZeroDivisionError"):
        run_tasks(lambda task: 1 // task, [1, 0, 2], spark=spark)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    assert run_tasks(abs, [-3], spark=spark) == [3]
