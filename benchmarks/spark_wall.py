"""The wall that every Python reader of Spark runs into: rows that are ready, handed to the JVM without being read.

The first batch of rows that kseg gives is kept and given again and again, so that nothing is left but what Spark
does with it: the socket, the JVM's Arrow reader, and its copies of each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kseg.datasource.planning import plan_read, read_options
from kseg.datasource.spark_schema import arrow_schema, record_schema
from kseg.log.plan import Split, read_splits
from kseg.log.walk import ReadOptions
from kseg.options import SourceOptions, option_map, parse_source_options

FORMAT = "kseg-wall"

_kept: dict[str, list[pa.RecordBatch]] = {}  # of this worker process


@dataclass(frozen=True, slots=True)
class Ready:
    """One task: rows like those that a task of kseg would read."""

    splits: list[Split]
    schema: pa.Schema
    how: ReadOptions
    rows: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the rows."""
        if not self.rows:
            return
        key = self.splits[0].path
        if key not in _kept:
            _kept[key] = [next(iter(read_splits(self.splits, self.schema, self.how)))]
        batch = _kept[key][0]
        whole, rest = divmod(self.rows, batch.num_rows)
        for _ in range(whole):
            yield batch
        yield batch.slice(0, rest)


def plan_ready(path: str, topic: str, records: int) -> tuple[list[Ready], StructType]:
    """Plan as kseg does; the rows are shared out evenly."""
    options = _options(path, topic)
    schema = record_schema(options)
    tasks = plan_read(options)
    ready = []
    for number, splits in enumerate(tasks):
        rows = records // len(tasks) + (number < records % len(tasks))
        ready.append(Ready(splits, arrow_schema(schema), read_options(options), rows))
    return ready, schema


def _options(path: str, topic: str) -> SourceOptions:
    return parse_source_options(option_map(path, topic, None, {}))


def wall_of_scan(spark: SparkSession, path: str, topic: str, records: int) -> DataFrame:
    """By `mapInArrow`, as `kseg.scan` does."""
    tasks, schema = plan_ready(path, topic, records)
    count = max(len(tasks), 1)

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number < len(tasks):
                    yield from tasks[number].batches()

    return spark.range(0, count, 1, count).mapInArrow(give, schema)


@dataclass
class ReadyPartition(InputPartition):
    """One task of the data source."""

    ready: Ready | None = None


class WallReader(DataSourceReader):
    """Gives ready rows."""

    def __init__(self, tasks: Sequence[Ready]) -> None:
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        """One for each task of the plan."""
        return [ReadyPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one."""
        ready = getattr(partition, "ready", None)
        return iter(()) if ready is None else ready.batches()


class WallSource(DataSource):
    """A data source with kseg's columns and nothing behind it."""

    @classmethod
    def name(cls) -> str:
        """Its name in `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """As kseg's."""
        return record_schema(_options(self.options["path"], self.options["topic"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan as kseg does."""
        records = int(self.options["records"])
        return WallReader(plan_ready(self.options["path"], self.options["topic"], records)[0])


def wall_of_format(spark: SparkSession, path: str, topic: str, records: int) -> DataFrame:
    """By the Python Data Source, as `format("kseg")` does."""
    spark.dataSource.register(WallSource)
    reader = spark.read.format(FORMAT).option("topic", topic).option("records", records)
    return reader.load(path)
