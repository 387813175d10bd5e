"""Whole topics through Spark: kseg on the broker's files against Spark's Kafka connector on the broker itself.

One session, one broker, one topic of two partitions. Contestants take turns. Seconds are those of the wall clock,
since a query keeps many threads of several processes busy; those that the same query takes on an empty topic are taken
off on both sides. The processor seconds of Spark's JVM and of its Python workers stand beside. Where all rows enter
the JVM, `wall` is what Spark itself takes for them when Python has them ready.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import kseg
from benchmarks import data
from benchmarks.measure import Contestant, Goal, compare
from benchmarks.processes import cpu_seconds, descendants
from benchmarks.spark_wall import wall_of_format, wall_of_scan
from tests.datasource.spark_session import start_session
from tests.kafka.broker import Broker
from tests.kafka.connector import connector_jars

RECORDS = 20_000_000
QUICK_RECORDS = 2_000_000
ROUNDS, QUICK_ROUNDS = 4, 2
PARTITIONS = 2
FULL, EMPTY = "bench", "empty"
CODEC = "snappy"  # of the Parquet files of both
LEAST_SECONDS = 0.001  # what is left of a run when the empty one was no faster
_JVM = ("-Xmx1g", "-XX:+UseG1GC")

VALUE_BYTES = 100

Query = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took: seconds on the wall, and of the processor by who used it."""

    wall: float
    jvm: float
    python: float
    broker: float

    @classmethod
    def of(cls, place: Place, action: Callable[[], None]) -> Cost:
        """Run it once."""
        jvm, broker = place.jvm, place.broker.pid
        before = {pid: cpu_seconds(pid) for pid in [broker, jvm, *descendants(jvm)]}
        began = time.perf_counter()
        action()
        wall = time.perf_counter() - began
        used = {pid: cpu_seconds(pid) - before.get(pid, 0.0) for pid in [broker, jvm, *descendants(jvm)]}
        return cls(wall, used.pop(jvm), broker=used.pop(broker), python=sum(used.values()))


@dataclass(slots=True)
class Timed:
    """A query on the full and on the empty topic, and what its runs took."""

    name: str
    query: Query
    full: list[Cost] = field(default_factory=list)
    empty: list[Cost] = field(default_factory=list)

    def run(self, place: Place) -> None:
        """Run on the empty topic, then on the full one."""
        self.empty.append(Cost.of(place, lambda: self.query(EMPTY)))
        self.full.append(Cost.of(place, lambda: self.query(FULL)))

    def net(self, part: str) -> list[float]:
        """Seconds of each run on the full topic, without the least that the empty one took."""
        least = min(getattr(cost, part) for cost in self.empty)
        return [max(getattr(cost, part) - least, LEAST_SECONDS) for cost in self.full]

    def contestant(self, records: int) -> Contestant:
        """As something to compare, by the clock on the wall."""
        return Contestant(self.name, lambda: records, records=records, seconds=self.net("wall"))

    def facts(self, records: int) -> dict[str, Any]:
        """Figures for the result file."""
        per_million = {part: round(min(self.net(part)) / records * 1e6, 4) for part in ("jvm", "python", "broker")}
        return {
            "full_seconds": [round(cost.wall, 3) for cost in self.full],
            "empty_seconds": [round(cost.wall, 3) for cost in self.empty],
            "cpu_seconds_per_million": per_million,
        }


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is."""

    spark: SparkSession
    broker: Broker
    folder: Path

    @property
    def path(self) -> str:
        """The broker's log directory."""
        return str(self.broker.data_dir)

    @property
    def jvm(self) -> int:
        """Spark's process."""
        return int(self.spark.sparkContext._gateway.proc.pid)

    def connector(self, topic: str) -> DataFrame:
        """The topic by Spark's own source."""
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.broker.address)
        return reader.option("subscribe", topic).load()

    def source(self, topic: str, **options: str) -> DataFrame:
        """The topic by format("kseg")."""
        return self.spark.read.format("kseg").option("subscribe", topic).options(**options).load(self.path)


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _cases(place: Place, records: int) -> Iterator[tuple[str, float, dict[str, Query]]]:
    """Name, goal, and what each does: kseg, the connector, and `wall` where all rows enter the JVM."""

    def count_by_connector(topic: str) -> None:
        _check(topic, place.connector(topic).count(), records)

    def count_by_headers(topic: str) -> None:
        counted = place.source(topic, view="batches", columns="count").selectExpr("sum(count)").first()
        _check(topic, (counted and counted[0]) or 0, records)

    def all_by_connector(topic: str) -> None:
        _drain(place.connector(topic))

    def rows(topic: str) -> int:
        return records if topic == FULL else 0

    def format_all(topic: str) -> None:
        _drain(place.source(topic))

    def scan_all(topic: str) -> None:
        _drain(kseg.scan(place.spark, place.path, topics=topic))

    def wall_format(topic: str) -> None:
        _drain(wall_of_format(place.spark, place.path, topic, rows(topic)))

    def wall_scan(topic: str) -> None:
        _drain(wall_of_scan(place.spark, place.path, topic, rows(topic)))

    def scan_offsets(topic: str) -> None:
        _drain(kseg.scan(place.spark, place.path, topics=topic, columns=["offset"]))

    def offsets_by_connector(topic: str) -> None:
        _drain(place.connector(topic).select("offset"))

    yield "format", 4.0, {"kseg": format_all, "connector": all_by_connector, "wall": wall_format}
    yield "scan", 5.0, {"kseg": scan_all, "connector": all_by_connector, "wall": wall_scan}
    yield "scan-offset", 12.0, {"kseg": scan_offsets, "connector": offsets_by_connector}
    yield "count-batches", 50.0, {"kseg": count_by_headers, "connector": count_by_connector}
    yield (
        "export",
        6.0,
        {
            "kseg": lambda topic: _export(place, topic),
            "connector": lambda topic: _export_by_connector(place, topic),
        },
    )


def _check(topic: str, found: int, records: int) -> None:
    if found != (records if topic == FULL else 0):
        raise ValueError(f"{topic}: counted {found} records")


def _export(place: Place, topic: str) -> None:
    target = place.folder / "exported"
    shutil.rmtree(target, ignore_errors=True)
    kseg.export(place.spark, place.path, str(target), topics=topic, compression=CODEC)


def _export_by_connector(place: Place, topic: str) -> None:
    target = place.folder / "exported"
    shutil.rmtree(target, ignore_errors=True)
    frame = place.connector(topic).selectExpr("*", "to_date(timestamp) AS day")
    frame.write.partitionBy("topic", "day").option("compression", CODEC).parquet(str(target))


@contextmanager
def _place(records: int) -> Iterator[Place]:
    """A broker with the topics, and a session."""
    connector_jars()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kseg-bench-")))
        (folder / "broker").mkdir()
        broker = Broker(folder / "broker", jvm=_JVM)
        with broker:
            broker.create_topic(FULL, PARTITIONS, {"retention.ms": -1})
            broker.create_topic(EMPTY)
        _fill(broker, records)
        stack.enter_context(broker)
        settings = {"spark.driver.extraJavaOptions": "", "spark.driver.memory": "3g"}
        spark = start_session(folder / "spark", settings)
        stack.callback(spark.stop)
        yield Place(spark, broker, folder)


def _fill(broker: Broker, records: int) -> None:
    """Append the records while the broker is down: batches of 16 KiB, as producers send them, with lz4."""
    block = data.make_records(200_000, VALUE_BYTES)
    for partition in range(PARTITIONS):
        with kseg.append_to(broker.partition_dir(FULL, partition)) as writer:
            left = records // PARTITIONS
            while left:
                part = block.slice(0, min(left, block.num_rows))
                writer.append(part, codec="lz4", batch_bytes=16 << 10)
                left -= part.num_rows


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per way to read."""
    records = int(os.environ.get("KSEG_SPARK_RECORDS", QUICK_RECORDS if quick else RECORDS))
    with _place(records) as place:
        for name, goal, queries in _cases(place, records):
            if only not in name:
                continue
            timed = [Timed(who, query) for who, query in queries.items()]
            for _ in range(1 + (QUICK_ROUNDS if quick else ROUNDS)):
                for one in timed:
                    one.run(place)
            for one in timed:
                del one.full[0], one.empty[0]  # the first round compiled code and started workers
            result = compare([one.contestant(records) for one in timed], [Goal("connector", goal)])
            details = {one.name: one.facts(records) for one in timed}
            yield {"case": name, **result, "cpu_ratio": _cpu_ratio(*timed[:2]), "details": details}


def _cpu_ratio(ours: Timed, theirs: Timed) -> float:
    """How many times the processor seconds of Spark's processes the connector takes; its broker's do not count."""
    least = [min(sum(pair) for pair in zip(one.net("jvm"), one.net("python"), strict=True)) for one in (ours, theirs)]
    return round(least[1] / least[0], 3)
