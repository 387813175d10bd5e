"""Every record type and version, against what Kafka's own classes wrote and said."""

from __future__ import annotations

import pytest

from kseg.errors import CorruptRecordError
from kseg.internal.decode import decode_record, encode_record
from tests.internal.vectors import BARE, COORDINATORS, FRAMED, VECTORS, Vector, decode, without_unknown_tags

every_vector = pytest.mark.parametrize("vector", VECTORS, ids=str)


def test_the_vectors_cover_every_type_and_version_of_the_tables():
    covered = {(vector.name, vector.version) for vector in VECTORS}
    tables = [kind.value for records in COORDINATORS.values() for kind in records.types.values()]
    tables += [kind for records in FRAMED.values() for kind in records.types.values()] + list(BARE.values())
    wanted = {(table.name, version) for table in tables for version in table.versions}
    # A transaction marker has no JSON converter; values of type 0 above version 0 are of old brokers only.
    extra = {("EndTxnMarker", 0)} | {("LegacyOffsetCommitValue", version) for version in range(1, 5)}
    assert wanted - covered == extra
    assert covered <= wanted


@every_vector
def test_a_record_decodes_to_what_kafka_prints(vector: Vector):
    key, value = decode(vector)
    assert without_unknown_tags(value) == vector.value_json
    assert key == vector.key_json


@every_vector
def test_encode_undoes_decode(vector: Vector):
    if vector.topic in COORDINATORS:
        records = COORDINATORS[vector.topic]
        assert records.encode(records.decode(vector.key, vector.value)) == (vector.key, vector.value)
        decoded = decode_record(vector.topic, vector.key, vector.value)
        assert encode_record(vector.topic, decoded) == (vector.key, vector.value)
    elif vector.topic in FRAMED:
        decoded = FRAMED[vector.topic].decode(None, vector.value, redact=False)
        assert encode_record(vector.topic, decoded) == (None, vector.value)
    else:
        table = BARE[vector.name]
        assert table.encode(table.decode(vector.value, vector.version), vector.version) == vector.value


@every_vector
def test_a_value_cut_anywhere_is_corrupt_and_nothing_else(vector: Vector):
    for end in range(len(vector.value)):
        with pytest.raises(CorruptRecordError):
            decode(vector, vector.value[:end])


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if vector.key], ids=str)
def test_a_key_cut_anywhere_is_corrupt(vector: Vector):
    for end in range(len(vector.key or b"")):
        with pytest.raises(CorruptRecordError):
            decode_record(vector.topic, (vector.key or b"")[:end], vector.value)


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if vector.key], ids=str)
def test_a_null_value_is_a_deleted_key(vector: Vector):
    decoded = decode_record(vector.topic, vector.key, None)
    assert decoded is not None
    assert (decoded["key"], decoded["version"], decoded["value"]) == (vector.key_json, None, None)
    assert encode_record(vector.topic, decoded) == (vector.key, None)


@every_vector
def test_a_changed_byte_is_corrupt_or_decodes(vector: Vector):
    for position in range(len(vector.value)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(vector.value)
            damaged[position] ^= flip
            try:
                decode(vector, bytes(damaged))
            except CorruptRecordError as error:
                assert error.message
