"""The wire format of schema registries as column expressions, against a plain twin over many values at once."""

from __future__ import annotations

import random
import re

import pytest
from pyspark.sql import functions as sf

from kseg.datasource import schema_registry
from tests.datasource.spark_session import session_conf
from tests.reference.errors import RejectedError
from tests.reference.varint import decode_varint, encode_varint
from tests.scale import counts

PREFIX = b"\0\0\0\0\7"
SPLIT_TYPE = "struct<magic:tinyint,schemaId:int,payload:binary>"
PROTOBUF_TYPE = "struct<magic:tinyint,schemaId:int,messageIndexes:array<int>,payload:binary>"


# -- the twin ----------------------------------------------------------------------------------------------------------


def split_twin(data):
    if data is None or len(data) < 5 or data[0] != 0:
        return None
    return 0, int.from_bytes(data[1:5], "big", signed=True), data[5:]


def split_protobuf_twin(data):
    framed = split_twin(data)
    if framed is None:
        return None
    try:
        count, position = decode_varint(data, 5)
        if count < 0:
            return None
        indexes = []
        for _ in range(count):
            index, position = decode_varint(data, position)
            indexes.append(index)
    except RejectedError:
        return None
    return 0, framed[1], indexes or [0], data[position:]


def parts_twin(data):
    plain, protobuf = split_twin(data), split_protobuf_twin(data)
    schema_id, payload = plain[1:] if plain else (None, None)
    return schema_id, payload, protobuf[-1] if protobuf else None, plain is not None, protobuf is not None


# -- the values --------------------------------------------------------------------------------------------------------


def framed(indexes, payload, prefix=PREFIX):
    return prefix + b"".join(encode_varint(number) for number in (len(indexes), *indexes)) + payload


TABLE = [
    None,
    b"",
    b"\0",
    b"\0\0\0\0",  # one byte short
    PREFIX,  # an empty payload; cut off for Protobuf
    b"\1\0\0\0\7payload",  # another magic
    b"\xff\0\0\0\7payload",
    b'{"id": 1}',
    b"\0\x7f\xff\xff\xffpayload",
    b"\0\x80\0\0\0payload",  # the id's sign bit
    b"\0\xff\xff\xff\xff",
    PREFIX + b"\0",  # [0] in short, an empty payload
    PREFIX + b"\0payload",
    PREFIX + b"\x80\0payload",  # the same count in two bytes
    PREFIX + b"\x80\x80\x80\x80\0payload",
    PREFIX + b"\x80\x80\x80\x80\x80\0payload",  # a varint of six bytes
    PREFIX + b"\x80",  # a cut-off count
    PREFIX + b"\1payload",  # a count of -1
    PREFIX + b"\xff\xff\xff\xff\x0fpayload",  # the least count
    PREFIX + b"\xfe\xff\xff\xff\x0fpayload",  # the greatest count
    PREFIX + b"\xfe\xff\xff\xff\xffpayload",  # too long at the last byte
    PREFIX + b"\x80\x80\x80\x80\x70payload",  # surplus bits of the fifth byte
    framed([0], b"payload"),
    framed([1], b""),
    framed([63, -64], b"payload"),
    framed([64, 1], b"payload"),
    framed([1, 0, 2], b"\0\0\x80\xff"),
    framed([1, 0, 2, 3, 4, 5], b"\0\0\x80\xff"),
    framed([64, 8192, 2**31 - 1, -(2**31), -1], b"payload"),  # varints of each length
    framed([5] * 300, b"payload"),
    framed([300] * 70, b"p" * 1000),
    framed([1, 2], b"")[:-1],  # a cut-off list
    framed([1, 300], b"")[:-1],  # a cut-off index
    PREFIX + b"\4\2\xff\xff\xff\xff\xff\1payload",  # an index of six bytes
    PREFIX + b"\4\xff\xff\xff\xff\x7f\2payload",
]


def random_values(seed, count):
    rng = random.Random(seed)

    def bits(most):
        return rng.getrandbits(rng.randrange(1, most)) * rng.choice((1, -1))

    def made():
        payload, most = rng.randbytes(rng.randrange(20)), rng.choice((7, 32))
        return framed([bits(most) for _ in range(rng.randrange(6))], payload, b"\0" + rng.randbytes(4))

    def damaged(data):
        cut = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data
        at = rng.randrange(len(data))
        return cut[:at] + rng.choice((b"\x80", b"\xff", b"\0", rng.randbytes(1))) + cut[at + 1 :]

    return [made() if rng.random() < 0.4 else damaged(made()) for _ in range(count)]


@pytest.fixture(scope="module")
def values():
    return TABLE + random_values(1, counts(2000))


@pytest.fixture(scope="module")
def frame(spark, values):
    made = spark.createDataFrame(list(enumerate(values)), "row int, value binary").coalesce(1).cache()
    yield made
    made.unpersist()


def answers(frame, column):
    return [row.found for row in frame.select("row", column.alias("found")).orderBy("row").collect()]


def differences(values, found, expected):
    """Return what differs, and so nothing where all is well; the bytes in hexadecimal say which value it was."""
    plain = (None if row is None else tuple(row) if isinstance(row, tuple) else row for row in found)
    together = zip(values, plain, expected, strict=True)
    return [(value and value.hex(), got, want) for value, got, want in together if got != want][:5]


# -- the tests ---------------------------------------------------------------------------------------------------------


def test_split_equals_the_twin(frame, values):
    found = answers(frame, schema_registry.split("value"))
    assert differences(values, found, [split_twin(value) for value in values]) == []


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_split_of_protobuf_equals_the_twin(spark, frame, values, ansi):
    expected = [split_protobuf_twin(value) for value in values]
    assert sum(row is None for row in expected) > len(values) // 10 < sum(row is not None for row in expected)
    with session_conf(spark, **{"spark.sql.ansi.enabled": ansi}):
        found = answers(frame, schema_registry.split("value", protobuf=True))
    assert differences(values, found, expected) == []


def test_the_parts_alone_equal_those_of_split(frame, values):
    parts = sf.struct(
        schema_registry.schema_id("value"),
        schema_registry.payload(sf.col("value")),
        schema_registry.payload("value", protobuf=True),
        schema_registry.is_framed(sf.col("value")),
        schema_registry.is_framed("value", protobuf=True),
    )
    expected = [parts_twin(value) for value in values]
    assert differences(values, answers(frame, parts), expected) == []


def test_types_are_as_documented(frame):
    plain, protobuf = schema_registry.split("value"), schema_registry.split("value", protobuf=True)
    assert [kind for _, kind in frame.select(plain.alias("a"), protobuf.alias("b")).dtypes] == [
        SPLIT_TYPE,
        PROTOBUF_TYPE,
    ]


def test_no_python_function_is_in_the_plan(frame):
    plan = frame.select(schema_registry.split("value", protobuf=True))._jdf.queryExecution().toString()
    assert "Python" not in plan
    assert "ArrowEval" not in plan


def test_a_value_that_a_python_function_made_can_be_split(spark):
    made = sf.udf(lambda _: framed([1, 0], b"payload"), "binary")("id")
    row = spark.range(1).select(schema_registry.split(made, protobuf=True).alias("found")).first()
    assert tuple(row.found) == (0, 7, [1, 0], b"payload")


def test_the_documented_example_runs(spark_with_kafka):
    avro = PREFIX + b"\x02\x06pen"  # zig-zag 1, then a string of three bytes
    json = b'\0\0\0\0\x08{"id": 2, "item": "ink"}'
    names = {
        "df": spark_with_kafka.createDataFrame([(0, avro), (1, json), (2, None)], "offset long, value binary"),
        "avro_schema": """{"type": "record", "name": "order", "fields": [
            {"name": "id", "type": "long"}, {"name": "item", "type": "string"}]}""",
    }
    exec(re.search(r"```python\n(.*?)```", schema_registry.__doc__, re.DOTALL)[1], names)
    assert names["from_avro_values"].collect() == [(0, (1, "pen"))]
    assert names["from_json_values"].where("offset > 0").collect() == [(1, (2, "ink")), (2, None)]
