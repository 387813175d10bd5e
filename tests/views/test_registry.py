"""All views have the shape that the data source relies on."""

from __future__ import annotations

import pyarrow as pa
import pytest

import kseg
from kseg.errors import OptionError
from kseg.views.registry import VIEWS, get_view, read_view


def fields_of(kind):
    """All fields below a type."""
    for i in range(kind.num_fields):
        yield kind.field(i)
        yield from fields_of(kind.field(i).type)


def test_the_names():
    assert list(VIEWS) == ["batches", "segments", "offsets", "groups", "transactions", "topics"]
    with pytest.raises(OptionError, match="valid values are records, batches, segments"):
        get_view("nonsense")


@pytest.mark.parametrize("name", VIEWS)
def test_types_are_ones_that_spark_takes_as_they_are(name):
    schema = VIEWS[name].schema
    nested = [field for top in schema for field in fields_of(top.type) if not pa.types.is_map(top.type)]
    assert all(field.nullable for field in [*schema, *nested])
    for field in [*schema, *nested]:
        if pa.types.is_timestamp(field.type):
            assert (field.type.unit, field.type.tz) == ("us", "UTC")
        if pa.types.is_list(field.type):
            assert field.type.field(0).name == "element"
        assert not pa.types.is_dictionary(field.type)
        assert "_" not in field.name


@pytest.mark.parametrize("name", VIEWS)
def test_read_view_gives_all_rows(golden, name):
    table = pa.Table.from_batches(read_view(name, kseg.open_dir(golden / "before")), schema=VIEWS[name].schema)
    table.validate(full=True)
    assert table.num_rows


@pytest.mark.parametrize("name", VIEWS)
def test_no_logs_no_rows(name):
    assert list(read_view(name, [])) == []
