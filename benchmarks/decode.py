"""Decode whole segments to Arrow, one thread, CRC checked: against Kafka's Java classes, Python clients, the limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from benchmarks import data
from benchmarks.anchors import Anchor
from benchmarks.limits import Layout, do_bare_steps, reach_limit, read_layout
from benchmarks.measure import Contestant, Effort, Goal, compare, take_turns, warm_up
from kseg.types import Codec

FETCH_BYTES = 1 << 20  # what consumers fetch from a partition at once, unless told otherwise
SHARES = {"aiokafka": 4, "kafka-python": 32}  # slow ones get the first quarter, or less, of a log
COPIES = {Codec.NONE: 10, Codec.LZ4: 5, Codec.ZSTD: 3, Codec.SNAPPY: 5, Codec.GZIP: 4}  # a log of 250 MB, or less
ONE_RECORD_COPIES = {Codec.NONE: 20, Codec.LZ4: 15, Codec.ZSTD: 6, Codec.SNAPPY: 15, Codec.GZIP: 16}
JAVA_RATIO = {Codec.NONE: 1.5}
OTHER_JAVA_RATIO = 1.3
LIMIT_RATIO = 1 / 1.5
AIOKAFKA_RATIO = 5.0  # with one record a batch


def read_with_kseg(folder: Path) -> int:
    """Read a log to Arrow and count the rows."""
    import kseg

    return sum(batch.num_rows for batch in kseg.open_log(str(folder)).read())


def _fetches(layout: Layout, share: int) -> list[tuple[int, int]]:
    """Ranges of whole batches, position and size, of about `FETCH_BYTES`, over the first share of a log."""
    batches = [batch for chunk in layout.chunks for batch in chunk]
    ranges: list[tuple[int, int]] = []
    for position, size, _ in batches[: max(len(batches) // share, 1)]:
        if ranges and position + size - ranges[-1][0] <= FETCH_BYTES:
            ranges[-1] = ranges[-1][0], position + size - ranges[-1][0]
        else:
            ranges.append((position, size))
    return ranges


def _iter_batches(content: Any) -> Iterator[Any]:
    while content.has_next():
        batch = content.next_batch()
        if not batch.validate_crc():
            raise ValueError(f"bad CRC at offset {batch.base_offset}")
        yield batch


def read_with_client(log: Path, fetches: list[tuple[int, int]], records: Any) -> int:
    """Decode to record objects with a client's own classes.

    The records of a fetch are in a list together, as a consumer's `getmany` or `poll` gives them to its caller.
    """
    total = 0
    with log.open("rb", buffering=0) as file:
        for _, size in fetches:
            content = records(file.read(size))
            total += len([record for batch in _iter_batches(content) for record in batch])
    return total


def goals(case: data.Case) -> list[Goal]:
    """What kseg has to reach."""
    wanted = [Goal("java", JAVA_RATIO.get(case.codec, OTHER_JAVA_RATIO)), Goal("limit", LIMIT_RATIO)]
    return [*wanted, Goal("aiokafka", AIOKAFKA_RATIO)] if case.batch_records == 1 else wanted


def measure_case(case: data.Case, effort: Effort) -> dict[str, Any]:
    """All contestants on one log."""
    folder = data.cached_log(case)
    log = folder / data.LOG_NAME
    layout = read_layout(folder)
    fetches = {name: _fetches(layout, share) for name, share in SHARES.items()}
    with ExitStack() as stack:
        jvm = stack.enter_context(Anchor("DecodeAnchor"))
        contestants = [
            Contestant("kseg", lambda: read_with_kseg(folder)),
            Contestant("java", lambda: jvm.call(f"file {log}"), jvm.last_seconds),
            Contestant("java-fetched", lambda: jvm.call(f"fetched {log}"), jvm.last_seconds),
            Contestant("limit", reach_limit(folder, layout)),
            Contestant("aiokafka", lambda: read_with_client(log, fetches["aiokafka"], AiokafkaRecords)),
            Contestant("kafka-python", lambda: read_with_client(log, fetches["kafka-python"], KafkaPythonRecords)),
        ]
        if case.batch_records == 1:
            contestants.append(Contestant("bare", do_bare_steps(folder, layout.records)))
        for contestant in contestants:
            warm_up(contestant, effort)
        take_turns(contestants, effort)
    raw = sum(raw for chunk in layout.chunks for _, _, raw in chunk)
    row = {"case": case.name, "records": layout.records, "file_bytes": log.stat().st_size, "record_bytes": raw}
    result = compare(contestants, goals(case))
    rates = result["records_per_second"]
    against, limit = ("aiokafka", "bare") if case.batch_records == 1 else ("java", "limit")
    result["ratios"][against]["reachable"] = round(rates[limit] / rates[against], 3)
    return row | result


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per case."""
    effort = Effort.of(quick=quick)
    for case in data.cases(quick=quick, copies=COPIES):
        if case.batch_records == 1 and not quick:  # they hold few bytes, and whole segments are what is to be read
            case = dataclasses.replace(case, copies=ONE_RECORD_COPIES[case.codec])
        if only in case.name:
            yield measure_case(case, effort)
