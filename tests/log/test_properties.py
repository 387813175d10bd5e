"""Java properties files."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import FormatError
from kseg.log.properties import format_properties, parse_properties

TEXT = st.text(st.characters(codec="utf-16-be", max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=12)


def test_javas_own_examples():
    data = (
        b"# comment\n! another\n\n  Truth = Beauty\nTruth2:Beauty\nTruth3\t\t\t:Beauty\n"
        b"fruits   apple, banana, \\\n   pear, \\\r\n\t mango\ncheeses\n"
        b"a\\:b\\=c=d\\:e=f\nunicode=\\u0041\\t|\npath=c:\\\\temp\\\\x\nlast=end\\"
    )
    assert parse_properties(data) == {
        "Truth": "Beauty",
        "Truth2": "Beauty",
        "Truth3": "Beauty",
        "fruits": "apple, banana, pear, mango",
        "cheeses": "",
        "a:b=c": "d:e=f",
        "unicode": "A\t|",
        "path": "c:\\temp\\x",
        "last": "end",
    }


@given(st.dictionaries(TEXT, TEXT))
def test_round_trip(values):
    assert parse_properties(format_properties(values, "made by a test")) == values


@given(st.binary(max_size=100))
def test_any_bytes_give_values_or_an_error(data):
    with contextlib.suppress(FormatError):
        parse_properties(data)


def test_a_bad_escape_is_an_error():
    with pytest.raises(FormatError, match="p: malformed"):
        parse_properties(b"a=\\u12", "p")
