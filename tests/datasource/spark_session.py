"""One Spark session for a test process: small, on loopback, with Spark's own Kafka connector on its class path.

A process holds one JVM and a JVM one such session, so what any test needs of the class path is there from the start.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import pyspark
from pyspark.sql import SparkSession

from tests.kafka.connector import connector_jars
from tests.kafka.jars import Missing, java
from tests.s3.server import S3_ENVIRONMENT

_ROOT = Path(__file__).resolve().parent.parent.parent
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # quick to start, modest beside a broker


def environment() -> dict[str, str]:
    """Return the variables that Spark and its Python workers need, for this process or for one that a test starts."""
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),  # workers unpickle the tests' own classes by name
        **S3_ENVIRONMENT,
    }


def configuration(folder: Path, master: str = "local[2]") -> dict[str, str]:
    """Return the settings of a session that keeps its files below `folder`; the connector's jars where they are had."""
    jars = os.pathsep.join(str(jar) for jar in _jars_or_none())
    return {
        "spark.master": master,
        "spark.app.name": "kseg-tests",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": SMALL_JVM,
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.executor.extraJavaOptions": SMALL_JVM,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.python.worker.reuse": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def start_session(folder: Path, settings: Mapping[str, str] | None = None, master: str = "local[2]") -> SparkSession:
    """Start this process's session; raises Missing where there is no Java that Spark can run on."""
    java()
    builder = SparkSession.builder
    for name, value in {**configuration(folder, master), **(settings or {})}.items():
        builder = builder.config(name, value)
    variables = environment()
    if master.startswith("local-cluster"):
        variables["SPARK_HOME"] = str(_home_of_workers(folder))
    with mock.patch.dict(os.environ, variables):  # the JVM and this context take them over while they start
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextlib.contextmanager
def session_conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Set session settings for a block: `with session_conf(spark, **{"spark.sql.ansi.enabled": "false"}):`."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def _home_of_workers(folder: Path) -> Path:
    """A SPARK_HOME of links: a cluster's workers write below theirs, which is not to be pyspark's own folder."""
    home = folder / "home"
    home.mkdir(parents=True)
    for name in ("bin", "jars", "python", "sbin"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def _jars_or_none() -> list[Path]:
    try:
        return connector_jars()
    except Missing:
        return []
