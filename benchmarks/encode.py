"""Encode records from Arrow, one thread, against Kafka's MemoryRecordsBuilder and aiokafka's batch builder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from benchmarks import data
from benchmarks.anchors import Anchor
from benchmarks.measure import Contestant, Effort, Goal, compare, take_turns, warm_up
from kseg.types import Codec

GOALS = (Goal("java", 1.0), Goal("aiokafka", 3.0))
SHARE = 4  # aiokafka gets the first quarter of the records
Rows = list[tuple[int, bytes, bytes]]


def encode_with_kseg(case: data.Case) -> int:
    """Encode all records of a case; the Arrow batch was made before."""
    encoded = data.encode_case(case)
    return case.records if encoded.count else 0


def encode_with_aiokafka(rows: Rows, case: data.Case) -> int:
    """Encode rows in batches of the same count."""
    for start in range(0, len(rows), case.batch_records):
        builder = DefaultRecordBatchBuilder(2, int(case.codec), 0, -1, -1, -1, data.WHATEVER_SIZE)
        for delta, (stamp, key, value) in enumerate(rows[start : start + case.batch_records]):
            builder.append(delta, stamp, key, value, [])
        builder.build()
    return len(rows)


def _rows(records: pa.RecordBatch) -> Rows:
    columns = [records.column(name).to_pylist() for name in ("timestamp", "key", "value")]
    return list(zip(*columns, strict=True))


def measure_case(case: data.Case, effort: Effort) -> dict[str, Any]:
    """All contestants on the same records."""
    records = data.make_records(case.records, case.value_bytes)
    rows = _rows(records.slice(0, case.records // SHARE))
    plain = data.Case(Codec.NONE, 500, case.value_bytes, case.records)
    with Anchor("EncodeAnchor") as jvm:
        jvm.call(f"load {data.cached_log(plain) / data.LOG_NAME}")
        command = f"encode {case.codec.label} {case.batch_records}"
        contestants = [
            Contestant("kseg", lambda: encode_with_kseg(case)),
            Contestant("java", lambda: jvm.call(command), jvm.last_seconds),
            Contestant("aiokafka", lambda: encode_with_aiokafka(rows, case)),
        ]
        for contestant in contestants:
            warm_up(contestant, effort)
        take_turns(contestants, effort)
    row = {"case": case.name, "records": case.records, "record_bytes": records.nbytes}
    return row | compare(contestants, GOALS)


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per case."""
    effort = Effort.of(quick=quick)
    for case in data.cases(quick=quick):
        if only in case.name:
            yield measure_case(case, effort)
