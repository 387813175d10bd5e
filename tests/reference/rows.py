"""Between Arrow record batches and the twins' records, a row at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.reference.record import Record


def records_of(batches: pa.RecordBatch | Iterable[pa.RecordBatch]) -> list[Record]:
    """Rows of full batches (all standard columns) as records; each batch must be sound Arrow."""
    made: list[Record] = []
    for batch in [batches] if isinstance(batches, pa.RecordBatch) else batches:
        batch.validate(full=True)
        columns: dict[str, list[Any]] = {
            name: batch.column(name).to_pylist() for name in ("offset", "key", "value", "headers", "timestampType")
        }
        columns["timestamp"] = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for offset, stamp, key, value, headers, kind in zip(
            *(columns[name] for name in ("offset", "timestamp", "key", "value", "headers", "timestampType")),
            strict=True,
        ):
            pairs = tuple((header["key"].encode(), header["value"]) for header in headers or ())
            made.append(Record(offset, stamp, key, value, pairs, kind))
    return made


def as_text(records: Iterable[Record]) -> list[Record]:
    """Records with header keys that are sound UTF-8, broken bytes replaced as Java replaces them."""
    return [
        replace(record, headers=tuple((_java_text(key).encode(), value) for key, value in record.headers))
        for record in records
    ]


def _java_text(key: bytes) -> str:
    """As Python replaces them, but for the bytes of a surrogate, whole or cut, which are one to Java."""
    parts = re.split(rb"\xed[\xa0-\xbf][\x80-\xbf]?", key)
    return "\ufffd".join(part.decode("utf-8", "replace") for part in parts)


def table_of(records: Sequence[Record]) -> pa.RecordBatch:
    """Records as a batch that a writer takes, with offsets and timestamps."""
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    headers = [
        [{"key": key.decode(), "value": value} for key, value in record.headers] if record.headers else None
        for record in records
    ]
    return pa.record_batch(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "headers": pa.array(headers, pa.list_(header)),
            "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
            "offset": pa.array([record.offset for record in records], pa.int64()),
        }
    )
