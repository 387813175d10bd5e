"""Keys and values in a schema registry's wire format, taken apart with Spark column expressions.

Serializers that use a schema registry put five bytes before what they write; Protobuf's put the place of the
message's type in its schema behind them:

    byte 0      magic, 0
    bytes 1-4   schema id, big endian
    Protobuf:   how many message indexes, then the indexes, all zig-zag varints; a lone 0 is short for [0]
    the rest    payload

`kseg.schema_registry` splits this without a Python function per row, so the work stays in Spark's own code. Spark
decodes the payload, given the schema that the id stands for:

```python
import kseg
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, from_json

framed = df.select("offset", kseg.schema_registry.split("value").alias("framed"))

# Avro (needs Spark's spark-avro package): the schema that the values of one id were written with
of_schema_7 = framed.where(col("framed.schemaId") == 7)
from_avro_values = of_schema_7.select("offset", from_avro("framed.payload", avro_schema).alias("order"))

# JSON Schema: the payload is JSON text
json_text = col("framed.payload").cast("string")
from_json_values = framed.select("offset", from_json(json_text, "id long, item string").alias("order"))
```

`from_protobuf` goes with `split("value", protobuf=True)` in the same way; `messageIndexes` says which message of the
schema file the payload is: [0] the first, [2, 0] the first one nested in the third.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as sf

__all__ = ["is_framed", "payload", "schema_id", "split"]

_PREFIX_BYTES = 5
_FEW = 3  # message indexes that are read without a loop
_VARINT_BYTES = 5  # the longest varint of 32 bits
_VARINT = r"\G(?:[89A-F].){0,4}[0-7]."  # one varint in hexadecimal, right behind the one before it
_TO_THE_END = 2**31 - 1


def split(column: Column | str, *, protobuf: bool = False) -> Column:
    """Return a struct of the framing's parts; null where the bytes are no such framing.

    Its fields are `magic` (tinyint, always 0), `schemaId` (int), with `protobuf` also `messageIndexes` (array<int>,
    of any length), and `payload` (binary, empty where nothing follows). Null are a null value, fewer than five bytes,
    another first byte, and with `protobuf` message indexes that are cut off or no varints of 32 bits. Bytes written
    by something else may start with a zero too: compare `schemaId` with the ids that the registry has given out.

    Args:
        column: A binary column, or its name.
        protobuf: The values are Protobuf's, with message indexes before the payload.
    """
    data = _binary(column)
    if not protobuf:
        return sf.when(_has_prefix(data), _parts(data, None, sf.lit(_PREFIX_BYTES)))
    cases = sf.when(~_has_prefix(data) | (sf.length(data) == _PREFIX_BYTES), sf.lit(None))
    for count in range(_FEW + 1):
        cases = cases.when(_is_short_list(data, count), _parts(data, *_short_list(data, count)))
    return cases.otherwise(_let(data, _split_listed))


def schema_id(column: Column | str) -> Column:
    """Return the schema id (int) of framed values; null where the bytes are no such framing."""
    data = _binary(column)
    return sf.when(_has_prefix(data), _schema_id(data))


def payload(column: Column | str, *, protobuf: bool = False) -> Column:
    """Return what follows the framing, for `from_avro`, `from_json` or `from_protobuf`; null where there is none."""
    return split(column, protobuf=protobuf)["payload"]


def is_framed(column: Column | str, *, protobuf: bool = False) -> Column:
    """Tell framed values from others: true or false, and false for null."""
    return split(column, protobuf=True).isNotNull() if protobuf else _has_prefix(_binary(column))


# -- the prefix --------------------------------------------------------------------------------------------------------


def _binary(column: Column | str) -> Column:
    return (sf.col(column) if isinstance(column, str) else column).cast("binary")


def _has_prefix(data: Column) -> Column:
    starts_with_zero = sf.substring(data, 1, 1) == sf.lit(b"\0")
    return sf.coalesce((sf.length(data) >= _PREFIX_BYTES) & starts_with_zero, sf.lit(False))


def _schema_id(data: Column) -> Column:
    """Return bytes 1 to 4 as an int; a plain cast of the unsigned number would refuse its upper half."""
    sign = sf.lit(1 << 31)
    return (_unsigned(data, 2, 4).bitwiseXOR(sign) - sign).cast("int")


def _unsigned(data: Column, position: int, size: int) -> Column:
    return sf.conv(sf.hex(sf.substring(data, position, size)), 16, 10).cast("bigint")


def _parts(data: Column, indexes: Column | None, end: Column) -> Column:
    parts = [sf.lit(0).cast("tinyint").alias("magic"), _schema_id(data).alias("schemaId")]
    if indexes is not None:
        parts.append(indexes.alias("messageIndexes"))
    return sf.struct(*parts, sf.substring(data, end + 1, sf.lit(_TO_THE_END)).alias("payload"))


# -- Protobuf's message indexes ----------------------------------------------------------------------------------------
#
# Nearly all messages have few indexes of a byte each; plain expressions answer those, and Spark compiles them. The
# general way loops with functions of arrays, which Spark interprets: several times slower.


def _is_short_list(data: Column, count: int) -> Column:
    has_count = sf.substring(data, _PREFIX_BYTES + 1, 1) == sf.lit(bytes([2 * count]))
    if count == 0:
        return has_count
    more_follows = sf.lit(int.from_bytes(b"\x80" * count))
    one_byte_each = _unsigned(data, _PREFIX_BYTES + 2, count).bitwiseAND(more_follows) == 0
    return has_count & (sf.length(data) > _PREFIX_BYTES + count) & one_byte_each


def _short_list(data: Column, count: int) -> tuple[Column, Column]:
    """Return the indexes and the position behind them; no indexes are short for the first message."""
    together = _unsigned(data, _PREFIX_BYTES + 2, count)
    raw = [sf.shiftright(together, 8 * (count - 1 - i)).bitwiseAND(sf.lit(127)) for i in range(count)]
    return sf.array(*map(_unzigzag, raw or [sf.lit(0)])), sf.lit(_PREFIX_BYTES + 1 + count)


def _split_listed(data: Column) -> Column:
    """Return the parts of values that hold a count and that many indexes; null where they do not.

    The count says how many bytes the indexes take at most, so that the payload is not looked through.
    """

    def with_count(count: Column) -> Column:
        possible = (count >= 0) & (count < sf.length(data))  # an index takes a byte or more
        return sf.when(possible, _let(_varints(data, (count + 1) * _VARINT_BYTES), lambda found: listed(count, found)))

    def listed(count: Column, varints: Column) -> Column:
        indexes = sf.when(count == 0, sf.array(sf.lit(0))).otherwise(_numbers(sf.slice(varints, 2, count)))
        digits = sf.length(sf.array_join(sf.slice(varints, 1, count + 1), ""))
        return sf.when(sf.size(varints) > count, _parts(data, indexes, sf.shiftright(digits, 1) + _PREFIX_BYTES))

    first = sf.slice(_varints(data, sf.lit(_VARINT_BYTES)), 1, 1)
    return _let(sf.get(_numbers(first), sf.lit(0)), with_count)


def _varints(data: Column, size: Column) -> Column:
    """Return the varints of up to `size` bytes behind the prefix, in hexadecimal, up to the first that is none."""
    digits = sf.hex(sf.substring(data, sf.lit(_PREFIX_BYTES + 1), size))
    return sf.regexp_extract_all(digits, sf.lit(_VARINT), sf.lit(0))


def _numbers(varints: Column) -> Column:
    """Return varints, given in hexadecimal, as numbers. Each step names what it starts from only once or cheaply."""
    digits = 2 * _VARINT_BYTES
    values = sf.transform(varints, lambda text: sf.conv(sf.rpad(text, digits, "0"), 16, 10).cast("bigint"))
    return sf.transform(sf.transform(values, _join_groups), _unzigzag)


def _join_groups(value: Column) -> Column:
    """Return the 32 bits that five bytes, the lowest seven bits first, are made of."""
    raw = sf.lit(0)
    for i in range(_VARINT_BYTES):
        group = sf.shiftright(value, 8 * (_VARINT_BYTES - 1 - i)).bitwiseAND(sf.lit(127))
        raw += sf.shiftleft(group, 7 * i)
    return raw % (1 << 32)


def _unzigzag(raw: Column) -> Column:
    return sf.shiftright(raw, 1).bitwiseXOR(-(raw % 2)).cast("int")


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return `body` of a value that is computed once a row, however often the body names it."""
    return sf.get(sf.transform(sf.array(value), body), sf.lit(0))
