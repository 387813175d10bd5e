"""The columns of the source as Spark types, and which of them a query asked for."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kseg.errors import OptionError
from kseg.schema import EXTRA_SCHEMA, RECORD_SCHEMA

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
    "leaderEpoch": IntegerType(),
    "producerId": LongType(),
    "producerEpoch": ShortType(),
    "sequence": IntegerType(),
}
KNOWN_COLUMNS = (*RECORD_SCHEMA.names, *EXTRA_SCHEMA.names)


def record_schema(columns: Sequence[str] | None, *, include_headers: bool) -> StructType:
    """The schema of a read: the Kafka source's columns, headers last where asked for, or the columns named."""
    if columns is None:
        columns = [name for name in RECORD_SCHEMA.names if include_headers or name != "headers"]
    for name in columns:
        if name not in _TYPES:
            raise OptionError(f"unknown column {name!r}; valid values are {', '.join(KNOWN_COLUMNS)}")
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def check_schema(schema: StructType) -> None:
    """Refuse a user's schema that names a column kseg does not have, or gives it another type."""
    for field in schema.fields:
        if field.name not in _TYPES:
            raise OptionError(f"unknown column {field.name!r}; valid values are {', '.join(KNOWN_COLUMNS)}")
        if field.dataType != _TYPES[field.name]:
            wanted = _TYPES[field.name].simpleString()
            raise OptionError(f"column {field.name!r} is {wanted}, not {field.dataType.simpleString()}")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a reader: equal in names, types and nullability."""
    return to_arrow_schema(schema, timezone="UTC")
