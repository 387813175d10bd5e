"""The Spark session of a job that was started from a shell."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kseg.errors import OptionError
from kseg.runner import spark_failures, spark_reason


@contextlib.contextmanager
def open_session(master: str) -> Iterator[SparkSession]:
    """A session for a block: one that is there already, or a new one, which is stopped at the end.

    An empty master leaves the choice to Spark's own settings, as spark-submit makes them.

    Raises:
        OptionError: Spark does not start.
        JobError: What was run on it failed for a reason that is not kseg's.
    """
    found = SparkSession.getActiveSession()
    if found is not None:
        yield found
        return
    if master.startswith("local"):  # workers on this machine need what this process has
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: SparkSession.Builder = SparkSession.builder
    builder = builder.appName("kseg")
    try:
        session = (builder.master(master) if master else builder).getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise OptionError(f"Spark does not start on {master!r}: {spark_reason(error)}") from error
    chosen = session.sparkContext.master or ""
    if "PYSPARK_PYTHON" not in os.environ and chosen.startswith("local"):
        session.sparkContext.pythonExec = sys.executable  # Spark's own settings chose this machine
    try:
        with spark_failures():
            yield session
    finally:
        session.stop()
