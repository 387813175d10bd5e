"""Encode records from Arrow, one thread, against Kafka's MemoryRecordsBuilder, aiokafka's batch builder and a limit.

The limit is what no encoder can leave out: one copy of the records, compression, and the checksum of the result. It
compresses through the same C functions at the same levels, without a Python call per batch; only snappy's blocks are
made by a kernel of kseg's own. Where it is not three times as fast as aiokafka, nothing can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from benchmarks import data
from benchmarks.anchors import Anchor
from benchmarks.measure import Contestant, Effort, Goal, compare, take_turns, warm_up
from kseg.format.builder import BatchOptions, encode_batches
from kseg.format.codec import PackFunctions
from kseg.native import compress
from kseg.native import encode as native
from kseg.native import table as t
from kseg.types import Codec

PIECE_BYTES = 4 << 20
GOALS = (Goal("java", 1.0), Goal("aiokafka", 3.0))
SHARE = 4  # aiokafka gets the first quarter of the records
Rows = list[tuple[int, bytes, bytes]]


def encode_with_kseg(pieces: list[pa.RecordBatch], options: BatchOptions) -> int:
    """Encode Arrow batches of a usual size, one after the other."""
    offset = 0
    for piece in pieces:
        encode_batches(piece, first_offset=offset, options=options, now_ms=0)
        offset += piece.num_rows
    return offset


def _pieces(records: pa.RecordBatch, batch_records: int) -> list[pa.RecordBatch]:
    """Arrow batches of about `PIECE_BYTES`, cut where Kafka's batches end."""
    batches = PIECE_BYTES * records.num_rows // records.nbytes // batch_records
    rows = max(batches, 1) * batch_records
    return [records.slice(start, rows) for start in range(0, records.num_rows, rows)]


def encode_with_aiokafka(rows: Rows, case: data.Case) -> int:
    """Encode rows in batches of the same count."""
    for start in range(0, len(rows), case.batch_records):
        builder = DefaultRecordBatchBuilder(2, int(case.codec), 0, -1, -1, -1, data.WHATEVER_SIZE)
        for delta, (stamp, key, value) in enumerate(rows[start : start + case.batch_records]):
            builder.append(delta, stamp, key, value, [])
        builder.build()
    return len(rows)


def reach_limit(pieces: list[pa.RecordBatch], options: BatchOptions) -> Callable[[], int]:
    """A run of the limit: its records are encoded before the clock starts, and its buffers are warm."""
    plain_options = replace(options, codec=Codec.NONE)
    plain = [encode_batches(piece, first_offset=0, options=plain_options, now_ms=0) for piece in pieces]
    functions = PackFunctions(options.codec, options.level)
    copied = np.empty(max(one.data.size for one in plain), np.uint8)
    room = max(int(compress.packed_bound(one.data.size)) + compress.BLOCK_SLACK * one.count for one in plain)
    packed = np.empty(room, np.uint8)

    def run() -> int:
        for one in plain:
            table, out = one.table.copy(), copied
            copied[: one.data.size] = one.data
            if options.codec is not Codec.NONE:
                out = packed
                compress.pack_batches(
                    int(options.codec), copied, table, 0, one.count, out, 0, functions.addresses, functions.scratch
                )
            native.write_headers(out, table, one.count)
        return sum(int(one.table[t.COUNT].sum()) for one in plain)

    return run


def _rows(records: pa.RecordBatch) -> Rows:
    columns = [records.column(name).to_pylist() for name in ("timestamp", "key", "value")]
    return list(zip(*columns, strict=True))


def measure_case(case: data.Case, effort: Effort) -> dict[str, Any]:
    """All contestants on the same records."""
    records = data.make_records(case.records, case.value_bytes)
    rows = _rows(records.slice(0, case.records // SHARE))
    pieces, options = _pieces(records, case.batch_records), data.batch_options(case)
    plain = data.Case(Codec.NONE, 500, case.value_bytes, case.records)
    with Anchor("EncodeAnchor") as jvm:
        jvm.call(f"load {data.cached_log(plain) / data.LOG_NAME}")
        command = f"encode {case.codec.label} {case.batch_records}"
        contestants = [
            Contestant("kseg", lambda: encode_with_kseg(pieces, options)),
            Contestant("java", lambda: jvm.call(command), jvm.last_seconds),
            Contestant("aiokafka", lambda: encode_with_aiokafka(rows, case)),
            Contestant("limit", reach_limit(pieces, options)),
        ]
        for contestant in contestants:
            warm_up(contestant, effort)
        take_turns(contestants, effort)
    row = {"case": case.name, "records": case.records, "record_bytes": records.nbytes}
    return row | _with_reachable(compare(contestants, GOALS))


def _with_reachable(result: dict[str, Any]) -> dict[str, Any]:
    """Say beside each goal how far the limit gets."""
    rates = result["records_per_second"]
    for goal in GOALS:
        result["ratios"][goal.against]["reachable"] = round(rates["limit"] / rates[goal.against], 3)
    return result


def run(*, quick: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A row per case."""
    effort = Effort.of(quick=quick)
    for case in data.cases(quick=quick):
        if only in case.name:
            yield measure_case(case, effort)
