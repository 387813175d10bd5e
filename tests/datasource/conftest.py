"""The Spark session of the data source's tests. Every test of this folder is marked `spark`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.datasource.spark_session import start_session
from tests.kafka.connector import connector_jars
from tests.kafka.jars import Missing


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test of this folder; earlier than the hook that sends marked tests to one worker."""
    item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session, shared by all tests: views, tables and settings that a test makes, it takes away."""
    try:
        session = start_session(tmp_path_factory.mktemp("spark"))
    except Missing as missing:
        pytest.skip(str(missing))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_with_kafka(spark: SparkSession) -> SparkSession:
    """The same session for tests that read with `format("kafka")`; they are skipped where the jars are not had."""
    try:
        connector_jars()
    except Missing as missing:
        pytest.skip(str(missing))
    return spark
