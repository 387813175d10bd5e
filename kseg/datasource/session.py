"""The Spark session of a job that was started from a shell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession


@contextlib.contextmanager
def open_session(master: str) -> Iterator[SparkSession]:
    """A session for a block: one that is there already, or a new one, which is stopped at the end.

    An empty master leaves the choice to Spark's own settings, as spark-submit makes them.
    """
    found = SparkSession.getActiveSession()
    if found is not None:
        yield found
        return
    builder: SparkSession.Builder = SparkSession.builder
    builder = builder.appName("kseg")
    session = (builder.master(master) if master else builder).getOrCreate()
    try:
        yield session
    finally:
        session.stop()
