"""The same reads on any kind of Spark: a local session, executors in processes of their own, a Connect server.

Steps give values that JSON can carry, since some of them run in another process (tests/datasource/elsewhere.py).
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import kseg
from kseg.progress import Progress

TOPICS = "plain,tx"  # every query costs a second or two wherever it runs: all of the data are read by other tests
VIEWS = ("batches", "offsets", "topics")
_COLUMNS = ("topic", "partition", "offset", "unix_millis(timestamp) ms", "key", "value")


def digest(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """How many rows, and a hash of them in order of topic, partition and offset."""
    ordered = sorted(rows, key=lambda row: row[:3])
    return [len(ordered), hashlib.sha256(repr(ordered).encode()).hexdigest()]


def frame_digest(frame: Any) -> list[Any]:
    """The digest of a DataFrame with the source's columns."""
    return digest(tuple(_plain(value) for value in row) for row in frame.selectExpr(*_COLUMNS).collect())


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def batch(spark: Any, data: str, folder: Path) -> Any:
    """Records by format("kseg"), in more than one task."""
    reader = spark.read.format("kseg").option("subscribe", TOPICS).option("kafka.isolation.level", "read_committed")
    return frame_digest(reader.option("minPartitions", "4").load(data))


def scan(spark: Any, data: str, folder: Path) -> Any:
    """The same by `kseg.scan`."""
    options = {"kafka_isolation_level": "read_committed", "minPartitions": 4}
    return frame_digest(kseg.scan(spark, data, topics=TOPICS, **options))


def stream(spark: Any, data: str, folder: Path) -> Any:
    """The same by a query that ends where the logs end, in several batches, through a sink of files."""
    source = spark.readStream.format("kseg").option("startingOffsets", "earliest")
    source = source.option("subscribe", TOPICS).option("kafka.isolation.level", "read_committed")
    source = source.option("maxOffsetsPerTrigger", "2000").load(data)
    sink = source.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = sink.option("path", str(folder / "rows")).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(120):
            raise TimeoutError("the query did not end within 120 s")
    finally:
        query.stop()
    return frame_digest(spark.read.parquet(str(folder / "rows")))


def export(spark: Any, data: str, folder: Path) -> Any:
    """The same as Parquet that the tasks have written; progress is told up to the end."""
    told: list[int] = []

    class Told(Progress):
        def advance(self, amount: int) -> None:
            told.append(amount)

    options = {"kafka_isolation_level": "read_committed", "minPartitions": 4}
    report = kseg.export(spark, data, folder / "lake", topics=TOPICS, progress=Told(), **options)
    if sum(told) != report.bytes:
        return f"told {sum(told)} of {report.bytes} bytes"
    return frame_digest(spark.read.parquet(str(folder / "lake")))


def views(spark: Any, data: str, folder: Path) -> Any:
    """Rows of each view."""
    return {view: spark.read.format("kseg").option("view", view).load(data).count() for view in VIEWS}


def sql(spark: Any, data: str, folder: Path) -> Any:
    """A temporary view and a table with `USING kseg`, by SQL alone, and what is left when they are dropped."""
    options = f"OPTIONS (path '{data}', subscribe 'plain', includeHeaders 'true')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW plain_view USING kseg {options}")
    spark.sql(f"CREATE TABLE plain_table USING kseg {options}")
    try:
        by_partition = "SELECT partition, count(*) FROM {} GROUP BY ALL ORDER BY ALL"
        counts = {
            name: [tuple(row) for row in spark.sql(by_partition.format(name)).collect()]
            for name in ("plain_view", "plain_table")
        }
        joined = "SELECT count(*) FROM plain_table t JOIN plain_view v USING (partition, offset)"
        return {**counts, "joined": spark.sql(joined).first()[0], "columns": spark.table("plain_table").columns}
    finally:
        spark.sql("DROP TABLE plain_table")
        spark.sql("DROP VIEW plain_view")


def one_frame(spark: Any, data: str, folder: Path) -> Any:
    """Repeated actions, self-joins, unions and a cache on one DataFrame."""
    frame = spark.read.format("kseg").option("subscribe", "plain").load(data)
    pairs = frame.alias("a").join(frame.alias("b"), ["partition", "offset"]).where("a.value <=> b.value")
    both = frame.where("partition = 0").union(frame.where("partition = 1"))
    found = [frame.count(), frame.where("partition = 1").count(), frame.count(), pairs.count(), both.distinct().count()]
    kept = frame.cache()
    try:
        found += [kept.count(), kept.where("partition = 0").count(), kept.union(frame).count()]
    finally:
        kept.unpersist()
    return [*found, frame.count()]


def framing(spark: Any, data: str, folder: Path) -> Any:
    """Column expressions of the schema registry, which have to be made of Connect's columns in Connect."""
    from pyspark.sql.functions import lit

    rows = spark.range(1).select(lit(b"\0\0\0\0\x07payload").alias("value"))
    framed = rows.select(kseg.schema_registry.split("value").alias("f"))
    row = framed.selectExpr("f.schemaId", "decode(f.payload, 'UTF-8')").first()
    return list(row)


def wrong(spark: Any, data: str, folder: Path) -> Any:
    """What an error says of a topic that is not there."""
    try:
        spark.read.format("kseg").option("subscribe", "no-such-topic").load(data).count()
    except Exception as error:
        return "no-such-topic" in str(error) and "LogError" in str(error)
    return "no error"


STEPS: dict[str, Callable[[Any, str, Path], Any]] = {
    step.__name__: step for step in (batch, scan, stream, export, views, sql, one_frame, framing, wrong)
}


def run_steps(spark: Any, data: str, folder: Path) -> dict[str, Any]:
    """Results by step; a step that fails gives its error's text."""
    results: dict[str, Any] = {}
    for name, step in STEPS.items():
        try:
            results[name] = step(spark, data, folder)
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
    return results


# -- kernels in workers ------------------------------------------------------------------------------------------------


def kernel_counts(spark: Any, data: str) -> list[dict[str, int]]:
    """How each of two first tasks came by its kernels: loaded from the cache, or compiled; and what it read."""
    schema = "pid long, loaded long, compiled long, records long, warm boolean, frozen long"
    rows = spark.range(0, 2, 1, 2).mapInArrow(_Reader(data), schema).collect()
    return [row.asDict() for row in rows]


class _Reader:
    def __init__(self, data: str) -> None:
        self._data = data

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        warm = "kseg.log.plan" in sys.modules
        for _ in batches:
            records = sum(batch.num_rows for log in kseg.open_dir(self._data) for batch in log.read())
            loaded, compiled = _kernel_origins()
            columns = {"pid": os.getpid(), "loaded": loaded, "compiled": compiled, "records": records}
            yield pa.RecordBatch.from_pylist([{**columns, "warm": warm, "frozen": gc.get_freeze_count()}])


def _kernel_origins() -> tuple[int, int]:
    """Kernels of this process that came from the cache, and those that were compiled."""
    import kseg.native as native

    seen: dict[int, Any] = {}
    for info in pkgutil.iter_modules(native.__path__):
        for value in vars(importlib.import_module(f"kseg.native.{info.name}")).values():
            if type(getattr(value, "_cache", None)).__name__ == "_KernelCache":
                seen[id(value)] = value.stats
    stats = list(seen.values())
    return sum(sum(s.cache_hits.values()) for s in stats), sum(sum(s.cache_misses.values()) for s in stats)
