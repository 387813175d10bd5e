"""Control records: transaction markers, and what the metadata quorum writes."""

from __future__ import annotations

import pytest

from kseg.errors import CorruptRecordError
from kseg.internal.control_records import TYPES, decode_control_record
from tests.internal.vectors import VECTORS, Vector, without_unknown_tags

NUMBERS = {table.name: number for number, (_, table) in enumerate(TYPES)}


def key_of(number: int, version: int = 0) -> bytes:
    return version.to_bytes(2, "big", signed=True) + number.to_bytes(2, "big", signed=True)


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v.topic == "control" and v.version == 0], ids=lambda vector: vector.name
)
def test_a_record_of_the_quorum(vector: Vector):
    number = NUMBERS[vector.name]
    decoded = decode_control_record(key_of(number), vector.value)
    assert (decoded["type"], decoded["typeId"]) == (TYPES[number][0], number)
    assert without_unknown_tags(decoded["value"]) == vector.value_json
    for end in range(len(vector.value)):
        with pytest.raises(CorruptRecordError):
            decode_control_record(key_of(number), vector.value[:end])


@pytest.mark.parametrize(("number", "name"), [(0, "ABORT"), (1, "COMMIT")])
def test_a_transaction_marker(number: int, name: str):
    decoded = decode_control_record(key_of(number), b"\0\0\0\0\0\7")
    assert decoded == {"type": name, "typeId": number, "version": 0, "value": {"coordinatorEpoch": 7}}
    assert decode_control_record(key_of(number, 3), b"\0\5\0\0\0\7new")["version"] == 5


def test_an_unknown_type_is_kept():
    assert decode_control_record(key_of(7), b"x") == {
        "type": "unknown",
        "reason": "control record type 7",
        "key": "AAAABw==",
        "value": "eA==",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\7"),
        (b"\0\0\0", b"\0\0\0\0\0\7"),
        (key_of(0, -1), b"\0\0\0\0\0\7"),
        (key_of(1), None),
        (key_of(1), b"\xff\xff\0\0\0\7"),
        (key_of(1), b"\0\0\0\0\0"),
    ],
)
def test_what_kafka_refuses_is_corrupt(key: bytes | None, value: bytes | None):
    with pytest.raises(CorruptRecordError):
        decode_control_record(key, value)
