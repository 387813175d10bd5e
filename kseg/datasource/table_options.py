"""The options of a table in Spark's catalog: kept in the table's schema, because Spark does not hand them to a read.

For `CREATE TABLE ... USING kseg OPTIONS (...)` Spark asks for the schema with all options, stores that schema, and
later reads the table with no options at all but those of `SELECT ... FROM table WITH (...)`. A column's metadata are
part of the stored schema, so the options travel in those of the first column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

_KEY = "kseg.options"
_OPTION = "option."  # Spark mixes the table's properties with its options, and marks the options by a second copy


def own_options(options: Mapping[str, str]) -> Mapping[str, str]:
    """The options without the properties that a table being created has besides: its owner, comment and others."""
    if not _is_table(options):
        return options
    kept = {name.removeprefix(_OPTION): value for name, value in options.items() if name.startswith(_OPTION)}
    if "path" in options:
        kept["path"] = options["path"]
    return kept


def remember_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema with the options in it where a table is being created, else the schema as it is."""
    if not _is_table(options) or not schema.fields:
        return schema
    first, *others = schema.fields
    metadata = {**(first.metadata or {}), _KEY: json.dumps(dict(own_options(options)), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def recall_options(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """The options of a read: those that a table was created with, and over them those that the read itself names."""
    kept = next((field.metadata[_KEY] for field in schema.fields if _KEY in (field.metadata or {})), "{}")
    return {**json.loads(kept), **options}


def _is_table(options: Mapping[str, str]) -> bool:
    return "provider" in options and "owner" in options
