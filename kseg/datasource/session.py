"""The Spark session of a job that was started from a shell."""

from __future__ import annotations

from pyspark.sql import SparkSession


def get_session(master: str) -> SparkSession:
    """The session of this process, or a new one; an empty master leaves the choice to Spark's own settings."""
    builder: SparkSession.Builder = SparkSession.builder
    builder = builder.appName("kseg")
    return (builder.master(master) if master else builder).getOrCreate()
