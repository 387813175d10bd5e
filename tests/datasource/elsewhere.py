"""Run the workload on a Spark that a test process cannot hold beside its own: `python -m tests.datasource.elsewhere`.

`cluster` has executors in JVMs of their own, `connect` a client and a server that talk gRPC. Results go to a JSON file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.datasource.spark_session import configuration, environment, start_session
from tests.datasource.workload import kernel_counts, run_steps


def on_cluster(data: str, folder: Path) -> dict[str, Any]:
    """Two executors of one core; the kernels' origins first, while the workers are fresh."""
    spark = start_session(folder, master="local-cluster[2,1,1024]")
    kernels = kernel_counts(spark, data)
    results = run_steps(spark, data, folder)
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver is one of them
    spark.stop()
    return {"kernels": kernels, "executors": executors, **results}


def through_connect(data: str, folder: Path) -> dict[str, Any]:
    """A server in a JVM of its own, which Spark's client starts for `local`; kseg's daemon forks its Python workers."""
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    builder = SparkSession.builder
    settings = {**configuration(folder), "spark.python.daemon.module": "kseg.datasource.daemon"}
    del settings["spark.master"]
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.remote("local[2]").getOrCreate()
    results = {"client": type(spark).__module__, "kernels": kernel_counts(spark, data)}
    results |= run_steps(spark, data, folder)
    spark.stop()
    return results


PLACES = {"cluster": on_cluster, "connect": through_connect}


def main(place: str, data: str, folder: str) -> None:
    """Run, and leave `results.json` in the folder."""
    results = PLACES[place](data, Path(folder))
    Path(folder, "results.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
