"""Tiers: offload against a copy and against zstd alone, a Spark scan of a tier against local files, bytes fetched.

`plain` and `copy` bring the same files to the same store: a directory, each file made durable, or a bucket of a real S3
server on this machine; the seconds are those of the clock on the wall, since disks and servers work too, and the ratio
of processor seconds stands beside. `chunked` is held, by processor seconds, against one core that does nothing but
compress the same chunks. All run on one thread.
`scan-*` is `kseg.scan` to Spark's noop sink, from a bucket in a local directory against the same segments as a broker
has them, wall clock, without what the same query takes on an empty topic. `fetch-*` counts the bytes that a read of
1,000 records takes out of a tier: at most two chunks, and the indexes.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import zstandard
from pyarrow import fs as pafs
from pyspark.sql import DataFrame, SparkSession

import kseg
from benchmarks import data
from benchmarks.measure import Contestant, Effort, Goal, compare, take_turns
from kseg.storage import open_store
from kseg.tiering.layout import LAYOUTS, Layout
from kseg.tiering.manifest import SegmentManifest
from kseg.tiering.tier import open_tier
from kseg.tiering.upload import DEFAULT_CHUNK_SIZE
from tests.datasource.spark_session import start_session
from tests.kafka.jars import Missing
from tests.s3.server import S3_ENVIRONMENT, S3Server
from tests.tiering.tiers import CountingStore

TOPIC = "bench"
SIZE, QUICK_SIZE = 1 << 30, 128 << 20
SEGMENTS = 2
COPY_RATIO, ZSTD_RATIO, SCAN_RATIO = 0.8, 0.8, 0.7
RECORDS = 1_000
LEAST_SECONDS = 0.001


def make_log(folder: Path, size: int, codec: str) -> Path:
    """A partition whose sealed segments have about `size` bytes together, in batches of 16 KiB."""
    block = data.make_records(100_000, 100)
    partition = folder / codec / f"{TOPIC}-0"
    with kseg.create_log(partition, config=kseg.LogConfig(segment_bytes=size // SEGMENTS)) as writer:
        while sum(path.stat().st_size for path in partition.glob("*.log")) < size:
            writer.append(block, codec=codec, batch_bytes=16 << 10)
        writer.roll()
        writer.append(block.slice(0, 1))
    return partition


def sealed_files(partition: Path) -> list[Path]:
    """The files that an offload copies."""
    active = max(partition.glob("*.log")).stem
    return [
        path for path in sorted(partition.iterdir()) if path.suffix and path.stem[:20].isdigit() and path.stem < active
    ]


@dataclass(slots=True)
class Upload:
    """A way to bring files to a store: `work` gets a fresh place, which is emptied again, and gives the bytes."""

    work: Callable[[str], int]
    place: Callable[[], str]
    empty: Callable[[str], None]
    by_wall: bool = True
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)

    def run(self) -> int:
        """Do it once."""
        place = self.place()
        wall, cpu = time.perf_counter(), time.process_time()
        size = self.work(place)
        self.cpus.append(time.process_time() - cpu)
        self.walls.append(time.perf_counter() - wall)
        self.empty(place)
        return size

    def last_seconds(self) -> float:
        """What the last run took, by the clock that counts."""
        return (self.walls if self.by_wall else self.cpus)[-1]


def forget(_: str) -> None:
    """Nothing was left there."""


def offload(partition: Path, place: str, *, layout: Layout) -> int:
    """Offload all sealed segments on one thread; return their bytes."""
    report = kseg.tiering.offload(partition, place, layout=layout, archive=True, workers=1)
    if report.refusals or any(found.error for found in report.partitions):
        raise ValueError(str(report))
    return report.log_bytes


def copy_to_folder(partition: Path, place: str) -> int:
    """Copy the same files to a directory, durably."""
    Path(place).mkdir(parents=True)
    size = 0
    for path in sealed_files(partition):
        target = Path(place) / path.name
        shutil.copyfile(path, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
        size += path.stat().st_size if path.suffix == ".log" else 0
    return size


def copy_to_bucket(partition: Path, place: str) -> int:
    """Copy the same files to a bucket, one after the other, with pyarrow."""
    filesystem, root = pafs.FileSystem.from_uri(place)
    size = 0
    for path in sealed_files(partition):
        pafs.copy_files(
            str(path), f"{root}/{path.name}", pafs.LocalFileSystem(), filesystem, chunk_size=4 << 20, use_threads=False
        )
        size += path.stat().st_size if path.suffix == ".log" else 0
    return size


def compress_only(partition: Path, _: str) -> int:
    """Compress the chunks of the sealed segments, and throw them away."""
    size = 0
    for path in sealed_files(partition):
        if path.suffix == ".log":
            with path.open("rb") as file:
                while chunk := file.read(DEFAULT_CHUNK_SIZE):
                    zstandard.ZstdCompressor(write_content_size=True).compress(chunk)
                    size += len(chunk)
    return size


def measure_uploads(name: str, pair: tuple[Upload, Upload], goal: Goal, effort: Effort) -> dict[str, Any]:
    """Measure kseg against an anchor."""
    contestants = [
        Contestant(who, one.run, one.last_seconds) for who, one in zip(("kseg", goal.against), pair, strict=True)
    ]
    for contestant in contestants:
        contestant.once()
    take_turns(contestants, effort)
    processor_ratio = round(min(pair[1].cpus[1:]) / min(pair[0].cpus[1:]), 3)
    return {"case": name, **compare(contestants, [goal]), "processor_ratio": processor_ratio}


def uploads(folder: Path, size: int, effort: Effort, only: str) -> Iterator[dict[str, Any]]:
    """Rows for offload."""
    numbers = itertools.count()

    def place() -> str:
        return str(folder / f"tier-{next(numbers)}")

    logs = {codec: make_log(folder, size, codec) for codec in ("none", "lz4")}
    for codec, partition in logs.items():
        if only in (name := f"plain-local-{codec}"):
            ours = Upload(partial(offload, partition, layout="plain"), place, shutil.rmtree)
            copy = Upload(partial(copy_to_folder, partition), place, shutil.rmtree)
            yield measure_uploads(name, (ours, copy), Goal("copy", COPY_RATIO), effort)
    if only in (name := "chunked-local"):
        ours = Upload(partial(offload, logs["none"], layout="chunked"), place, shutil.rmtree, by_wall=False)
        alone = Upload(partial(compress_only, logs["none"]), place, forget, by_wall=False)
        yield measure_uploads(name, (ours, alone), Goal("zstd", ZSTD_RATIO), effort)
    if only in (name := "plain-s3-lz4"):
        yield from s3_uploads(name, logs["lz4"], folder, effort)


def s3_uploads(name: str, partition: Path, folder: Path, effort: Effort) -> Iterator[dict[str, Any]]:
    """The row for S3; none where the server cannot be had."""
    try:
        server = S3Server(folder)
    except Missing:
        return
    numbers = itertools.count()
    with server, mock.patch.dict(os.environ, S3_ENVIRONMENT):
        server.bucket("tier")

        def place() -> str:
            return server.uri(f"tier/{next(numbers)}")

        def empty(uri: str) -> None:
            shutil.rmtree(server.folder / open_store(uri)[1])

        ours = Upload(partial(offload, partition, layout="plain"), place, empty)
        copy = Upload(partial(copy_to_bucket, partition), place, empty)
        yield measure_uploads(name, (ours, copy), Goal("copy", COPY_RATIO), effort)


@dataclass(slots=True)
class Scan:
    """A scan of a topic, and what its runs took."""

    name: str
    frame: Callable[[], DataFrame]
    seconds: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Do it once."""
        began = time.perf_counter()
        self.frame().write.format("noop").mode("overwrite").save()
        self.seconds.append(time.perf_counter() - began)


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    spark = start_session(folder / "spark", {"spark.driver.extraJavaOptions": "", "spark.driver.memory": "3g"})
    try:
        yield spark
    finally:
        spark.stop()


def scans(folder: Path, size: int, rounds: int, only: str) -> Iterator[dict[str, Any]]:
    """Rows for Spark."""
    cases: list[tuple[str, Layout]] = [(codec, layout) for codec in ("lz4", "zstd") for layout in LAYOUTS]
    wanted = [case for case in cases if only in f"scan-{case[0]}-{case[1]}"]
    if not wanted:
        return
    with kseg.create_log(folder / "empty" / "none-0"):
        pass
    with _session(folder) as spark:
        for codec, layout in wanted:
            partition = folder / codec / f"{TOPIC}-0"
            partition = partition if partition.exists() else make_log(folder, size, codec)
            tier = folder / f"scan-{codec}-{layout}"
            offload(partition, str(tier), layout=layout)
            end = max(int(path.stem) for path in partition.glob("*.log"))
            options = {"endingOffsets": f'{{"{TOPIC}":{{"0":{end}}}}}'}
            local, remote = str(partition.parent), str(tier)
            three = [
                Scan("kseg", partial(kseg.scan, spark, remote, topics=TOPIC)),
                Scan("local", partial(kseg.scan, spark, local, topics=TOPIC, **options)),
                Scan("empty", partial(kseg.scan, spark, str(folder / "empty"), topics="none")),
            ]
            for _ in range(rounds + 1):
                for scan in three:
                    scan.run()
            least = min(three[2].seconds[1:])
            contestants = [
                Contestant(
                    scan.name,
                    int,
                    records=end,
                    seconds=[max(value - least, LEAST_SECONDS) for value in scan.seconds[1:]],
                )
                for scan in three[:2]
            ]
            yield {"case": tier.name, **compare(contestants, [Goal("local", SCAN_RATIO)])}


def fetches(folder: Path, size: int, only: str) -> Iterator[dict[str, Any]]:
    """Rows for the bytes that a small read fetches."""
    for codec in ("none", "lz4"):
        if only not in (name := f"fetch-{codec}"):
            continue
        partition = folder / codec / f"{TOPIC}-0"
        partition = partition if partition.exists() else make_log(folder, size, codec)
        offload(partition, str(folder / name), layout="chunked")
        log = kseg.open_dir(folder / name)[TOPIC, 0]
        start = log.segments[1].base_offset + 5_000
        tier = open_tier(str(folder / name))
        store = tier.store = CountingStore(tier.store)
        rows = sum(batch.num_rows for batch in log.read(start, start + RECORDS))
        if rows != RECORDS:
            raise ValueError(f"{rows} records")
        largest = max(len(chunk) for chunk in _chunks(folder / name))
        indexes = max(path.stat().st_size for path in (folder / name).rglob("*.indexes"))
        used = sum(got for _, _, got in store.fetched)
        goal = 2 * largest + indexes
        yield {"case": name, "checks": {"bytes_fetched": {"value": used, "goal": goal, "met": used <= goal}}}


def _chunks(tier: Path) -> Iterator[range]:
    for path in tier.rglob("*.rsm-manifest"):
        for place in SegmentManifest.parse(path.read_bytes(), str(path)).chunk_index:
            yield range(place.stored_position, place.stored_position + place.stored_size)


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per case."""
    size = QUICK_SIZE if quick else SIZE
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kseg-bench-")))
        yield from uploads(folder, size, Effort.of(quick=quick), only)
        yield from fetches(folder, size, only)
        yield from scans(folder, size, 2 if quick else 4, only)
