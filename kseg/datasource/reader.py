"""The batch reader: partitions are tasks of splits, rows are Arrow batches straight from the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kseg.datasource.planning import plan_read, read_options, warn_once
from kseg.datasource.spark_schema import arrow_schema
from kseg.datasource.worker import begin_task
from kseg.errors import LogError
from kseg.options import SourceOptions


@dataclass
class SplitPartition(InputPartition):
    """One task: the splits that it reads, one after the other."""

    splits: Sequence[object] = field(default_factory=list)


@dataclass
class UnitPartition(InputPartition):
    """One task of a view."""

    unit: object = None


class RecordReader(DataSourceReader):
    """Reads records; what it needs in tasks is in the partitions, because Spark pickles the reader before it plans."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """Plan the read; what is in the files from now on is not seen until the DataFrame is loaded again."""
        return [SplitPartition(splits) for splits in plan_read(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's splits; a task without splits, which Spark makes of an empty plan, has no rows."""
        from kseg.log.plan import read_splits

        begin_task()
        return read_splits(getattr(partition, "splits", []), self._schema, read_options(self._options))


class ViewReader(DataSourceReader):
    """Reads a view: batches, segments, offsets, groups, transactions or topics."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = schema.fieldNames()

    def partitions(self) -> list[InputPartition]:
        """Plan the view over the partitions asked for, or over all where it needs the internal topics."""
        from kseg.log.select import LIST_HINT, find_logs, select_logs
        from kseg.tiering.reading import store_opener
        from kseg.views.registry import get_view

        warn_once(self._options)
        view = get_view(self._options.view)
        if view.per_partition:
            logs = select_logs(self._options.paths, self._options, store_opener(self._options))
        else:  # what decides is not in the partitions that were asked for; the view itself chooses among replicas
            logs = find_logs(self._options.paths, self._options, store_opener(self._options))
            where = ", ".join(self._options.paths)
            if not logs:
                raise LogError("no partitions to read here", path=where, hint=LIST_HINT)
            if view.needs is not None and not any(log.topic == view.needs for log in logs):
                hint = "give the log directories that hold it, too"
                raise LogError(f"view {view.name} needs {view.needs}, which is not here", path=where, hint=hint)
        return [UnitPartition(unit) for unit in view.plan(logs)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one unit of the view, with the columns that were asked for."""
        from kseg.views.registry import get_view

        unit = getattr(partition, "unit", None)
        if unit is None:
            return
        begin_task()
        for batch in get_view(self._options.view).read(unit):
            yield batch.select(self._columns)
