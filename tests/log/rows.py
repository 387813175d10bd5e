"""Rows of a read as plain tuples, to compare with what others say."""

from __future__ import annotations

import pyarrow as pa


def plain_rows(batches):
    """(offset, timestamp in ms, timestamp type, key, value, [(header, value), ...]) of each record."""
    rows = []
    for batch in batches:
        batch.validate(full=True)
        stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
        columns = (batch.column(name).to_pylist() for name in ("offset", "timestampType", "key", "value", "headers"))
        for stamp, offset, kind, key, value, headers in zip(stamps, *columns, strict=True):
            rows.append((offset, stamp, kind, key, value, [(h["key"], h["value"]) for h in headers or []]))
    return rows
