"""The columns of a record, their Arrow types, and which of them a reader asked for.

Names, order and types are those of Spark's Kafka source, `headers` last; the columns behind them are kseg's own and
come only when they are named. Timestamps are milliseconds, as Kafka stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from kseg.errors import OptionError

HEADER_TYPE = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(HEADER_TYPE)),
    ]
)

EXTRA_SCHEMA = pa.schema(
    [
        pa.field("leaderEpoch", pa.int32()),
        pa.field("producerId", pa.int64()),
        pa.field("producerEpoch", pa.int16()),
        pa.field("sequence", pa.int32()),
    ]
)

CORRUPT_COLUMN = "_corrupt"
CORRUPT_TYPE = pa.struct(
    [
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("startOffset", pa.int64()),
        pa.field("endOffset", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)


def with_corrupt_column(schema: pa.Schema) -> pa.Schema:
    """The same columns, and last the one that tells damage."""
    return schema.append(pa.field(CORRUPT_COLUMN, CORRUPT_TYPE))


def select_columns(columns: Sequence[str] | None) -> pa.Schema:
    """The schema of a read: every column of `RECORD_SCHEMA`, or those named, in the order in which they are named."""
    if columns is None:
        return RECORD_SCHEMA
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise OptionError(f"columns is a list of names, got {columns!r}")
    columns = list(columns)
    if not columns:
        raise OptionError("columns names no column")
    fields = []
    for name in columns:
        schema = RECORD_SCHEMA if name in RECORD_SCHEMA.names else EXTRA_SCHEMA
        if name not in schema.names:
            known = ", ".join(RECORD_SCHEMA.names + EXTRA_SCHEMA.names)
            raise OptionError(f"unknown column {name!r}; valid values are {known}")
        fields.append(schema.field(name))
    if len(set(columns)) != len(fields):
        raise OptionError(f"columns names a column twice: {', '.join(columns)}")
    return pa.schema(fields)
