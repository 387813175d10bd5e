"""The table language, and what the writer refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kseg.errors import CorruptRecordError, OptionError
from kseg.internal.schema import message, parse_versions
from kseg.internal.wire import WireReader, write_uvarint

ALL_TYPES = message(
    "All",
    "0-2",
    "2+",
    """
    flag      bool
    tiny      int8
    port      uint16
    ratio     float64
    id        uuid
    name      string
    note      string?   =null
    data      bytes
    items     []Item
      number    int32
      inner     Inner?
        text      string
    later     int64     1-2   =-1
    extra     []Item?   2+    tag=3
      number    int32
    """,
)
VALUE: dict[str, Any] = {
    "flag": True,
    "tiny": -1,
    "port": 65535,
    "ratio": 0.5,
    "id": "_" * 21 + "w",
    "name": "n",
    "note": None,
    "data": "AAE=",
    "items": [{"number": 1, "inner": None}, {"number": 2, "inner": {"text": "t"}}],
}


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("0", [0], [1]), ("1-3", [1, 3], [0, 4]), ("4+", [4, 32767], [3]), ("none", [], [0])],
)
def test_versions(text: str, inside: list[int], outside: list[int]):
    versions = parse_versions(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


@pytest.mark.parametrize(
    ("version", "more"),
    [(0, {}), (1, {"later": 5}), (2, {"later": 5, "extra": [{"number": 9}]}), (2, {"later": -1, "extra": None})],
)
def test_round_trip(version: int, more: dict[str, Any]):
    assert ALL_TYPES.decode(ALL_TYPES.encode({**VALUE, **more}, version), version) == {**VALUE, **more}


def test_defaults_may_be_left_out_and_tagged_ones_are_not_written():
    short = {name: value for name, value in VALUE.items() if name != "note"}
    assert ALL_TYPES.decode(ALL_TYPES.encode(short, 1), 1) == {**VALUE, "later": -1}
    assert ALL_TYPES.encode({**VALUE, "extra": []}, 2) == ALL_TYPES.encode(VALUE, 2)


def test_a_tag_that_comes_twice_counts_the_last_time():
    encoded = ALL_TYPES.encode({**VALUE, "extra": None}, 2)
    assert encoded.endswith(b"\x01\x03\x01\x00")
    twice = encoded[:-4] + b"\x02\x03\x01\x00\x03\x01\x01"
    assert "extra" not in ALL_TYPES.decode(twice, 2)


def test_unknown_tags_in_any_order_are_kept():
    plain = ALL_TYPES.encode(VALUE, 2)
    assert plain.endswith(b"\x00")
    decoded = ALL_TYPES.decode(plain[:-1] + b"\x02\x28\x01a\x04\x00", 2)
    assert decoded["unknownTaggedFields"] == [{"tag": 4, "data": ""}, {"tag": 40, "data": "YQ=="}]
    assert ALL_TYPES.encode(decoded, 2) == plain[:-1] + b"\x02\x04\x00\x28\x01a"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"later": 1}, "All version 0 has no field later"),
        ({"port": -1}, "All.port: -1 does not fit"),
        ({"tiny": "x"}, "All.tiny: 'x' does not fit"),
        ({"id": "short"}, "All.id: 'short' is not a uuid"),
        ({"id": "!" * 22}, "All.id: .* is not base64"),
        ({"name": None}, "All.name: None is not a string"),
        ({"name": "x" * 40000}, "All.name: length 40000 is above 32767"),
        ({"name": "\ud800"}, "All.name: .* has no UTF-8 form"),
        ({"data": None}, "All.data: null is not allowed"),
        ({"data": "?"}, "All.data: '\\?' is not base64"),
        ({"items": None}, "All.items: None is not a list"),
        ({"items": [3]}, "All.items: Item: 3 is not a mapping"),
        ({"items": [{"number": 1}]}, "All.items: Item.inner is missing"),
    ],
)
def test_what_cannot_be_written_says_which_field(change: dict[str, Any], text: str):
    with pytest.raises(OptionError, match=text):
        ALL_TYPES.encode({**VALUE, **change}, 0)


def test_a_version_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="All has no version 3"):
        ALL_TYPES.encode(VALUE, 3)


def test_bytes_after_the_struct_are_refused():
    with pytest.raises(CorruptRecordError, match="All: 1 bytes left over"):
        ALL_TYPES.decode(ALL_TYPES.encode(VALUE, 0) + b"\0", 0)


def test_a_hostile_count_allocates_nothing():
    numbers = message("Numbers", "0", "none", "numbers   []int32")
    with pytest.raises(CorruptRecordError, match="length 2147483647 at byte 0, 0 bytes left"):
        numbers.decode(b"\x7f\xff\xff\xff", 0)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**31 - 1])
def test_uvarints(value: int):
    out = bytearray()
    write_uvarint(out, value)
    reader = WireReader(bytes(out))
    assert (reader.uvarint(), reader.remaining) == (value, 0)


@pytest.mark.parametrize("value", [-1, 2**31])
def test_a_uvarint_of_more_than_31_bits_is_refused(value: int):
    with pytest.raises(OptionError, match="31-bit"):
        write_uvarint(bytearray(), value)
    with pytest.raises(CorruptRecordError, match="31 bits"):
        WireReader(b"\x80\x80\x80\x80\x08").uvarint()
