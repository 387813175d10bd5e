"""`kseg.scan`: the fast lane. The plan and decoder of the data source on `mapInArrow`, which copies rows once less."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kseg.datasource.planning import plan_read, read_options
from kseg.datasource.spark_schema import arrow_schema, record_schema
from kseg.errors import OptionError
from kseg.log.plan import Split
from kseg.log.walk import ReadOptions
from kseg.options import Paths, option_map, parse_source_options


def scan(
    spark: SparkSession,
    path: Paths,
    *,
    topics: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Read partitions as a DataFrame, with only the columns asked for.

    The plan is made now: what is in the files from now on is not seen.

    Args:
        path: A log directory, a topic or partition directory, or several; paths or URIs.
        topics: Names of topics; by default all that are there, internal ones excepted.
        columns: Any columns of the source, in any order; by default those of the Kafka source.
        options: Options of the source by their names with underscores for dots, such as `startingOffsets="earliest"`.
    """
    parsed = parse_source_options(option_map(path, topics, columns, options))
    if parsed.view != "records":
        raise OptionError(f"scan reads records; use spark.read.format('kseg') for view={parsed.view}")
    schema = record_schema(parsed)
    tasks = plan_read(parsed)
    count = max(len(tasks), 1)
    reader = _task_reader(tasks, arrow_schema(schema), read_options(parsed))
    return spark.range(0, count, 1, count).mapInArrow(reader, schema)


def _task_reader(
    tasks: list[list[Split]], schema: pa.Schema, how: ReadOptions
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from kseg.datasource.worker import begin_task
        from kseg.log.plan import read_splits

        begin_task()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number < len(tasks):
                    yield from read_splits(tasks[number], schema, how)

    return read_tasks
