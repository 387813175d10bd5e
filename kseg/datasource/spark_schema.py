"""The columns of the source as Spark types, and which of them a query asked for."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
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
from kseg.options import SourceOptions
from kseg.schema import CORRUPT_COLUMN, RECORD_SCHEMA

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
_CORRUPT = StructType(
    [
        StructField("file", StringType()),
        StructField("position", LongType()),
        StructField("size", LongType()),
        StructField("startOffset", LongType()),
        StructField("endOffset", LongType()),
        StructField("reason", StringType()),
    ]
)
_ALWAYS_KNOWN = ("topic", "partition", "offset")
_MAY_BE_NULL = ("key", "value", "headers", CORRUPT_COLUMN)


def record_schema(options: SourceOptions) -> StructType:
    """The schema of a read: the Kafka source's columns, headers last where asked for, or the columns named.

    With `corrupt=column` the column that tells damage is behind them, unless it is named among them.
    """
    types = _types(options)
    columns = options.columns
    if columns is None:
        columns = tuple(name for name in RECORD_SCHEMA.names if options.include_headers or name != "headers")
    if CORRUPT_COLUMN in types and CORRUPT_COLUMN not in columns:
        columns = (*columns, CORRUPT_COLUMN)
    for name in columns:
        if name not in types:
            raise OptionError(f"unknown column {name!r}; valid values are {', '.join(types)}")
    return StructType([StructField(name, types[name]) for name in columns])


def check_schema(schema: StructType, options: SourceOptions) -> None:
    """Refuse a user's schema that names a column kseg does not have, or gives it another type."""
    types = _types(options)
    _check_names(schema)
    for field in schema.fields:
        if field.name not in types:
            raise OptionError(f"unknown column {field.name!r}; valid values are {', '.join(types)}")
        if not field.nullable and field.name in _MAY_BE_NULL:
            raise OptionError(f"column {field.name!r} can be null: leave NOT NULL out of the schema")
        if field.dataType != types[field.name]:
            wanted = types[field.name].simpleString()
            raise OptionError(f"column {field.name!r} is {wanted}, not {field.dataType.simpleString()}")
    if CORRUPT_COLUMN not in types:
        return
    if CORRUPT_COLUMN not in schema.fieldNames():
        raise OptionError(f"with corrupt=column the schema must have the column {CORRUPT_COLUMN}")
    for field in schema.fields:
        if not field.nullable and field.name not in _ALWAYS_KNOWN:
            raise OptionError(
                f"with corrupt=column the column {field.name!r} must be nullable: damage has no {field.name}"
            )


def view_schema(options: SourceOptions) -> StructType:
    """All columns of the view."""
    from kseg.views.registry import get_view

    return from_arrow_schema(get_view(options.view).schema)


def check_view_schema(schema: StructType, options: SourceOptions) -> None:
    """Refuse a user's schema that names a column the view does not have, or gives it another type."""
    known = view_schema(options)
    _check_names(schema)
    for field in schema.fields:
        wanted, given = field_of(known, field.name).dataType.simpleString(), field.dataType.simpleString()
        if wanted != given:
            raise OptionError(f"column {field.name!r} of the view {options.view} is {wanted}, not {given}")
        if not field.nullable:
            raise OptionError(f"column {field.name!r} of a view can be null: leave NOT NULL out of the schema")


def _check_names(schema: StructType) -> None:
    names = schema.fieldNames()
    if not names or len(set(names)) != len(names):
        raise OptionError(f"a schema names at least one column, and none twice: {', '.join(names)}")


def field_of(schema: StructType, name: str) -> StructField:
    """A column by its name."""
    if name not in schema.fieldNames():
        raise OptionError(f"unknown column {name!r}; valid values are {', '.join(schema.fieldNames())}")
    return schema[name]


def _types(options: SourceOptions) -> dict[str, DataType]:
    return {**_TYPES, CORRUPT_COLUMN: _CORRUPT} if options.corrupt == "column" else _TYPES


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a reader: equal in names, types and nullability."""
    return to_arrow_schema(schema, timezone="UTC")
