"""Rows by day and hour against the obvious way, and the names of directories."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.exporting.layout import END_OF_CALENDAR_MS, UNKNOWN, cut_by_slot, directory_of
from tests.exporting.lake import DAY, NEW_YEAR

TIMES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(NEW_YEAR - 3 * DAY, NEW_YEAR + 3 * DAY),
    st.none(),
    st.sampled_from([-1, 0, NEW_YEAR - 1, NEW_YEAR, END_OF_CALENDAR_MS - 1, END_OF_CALENDAR_MS]),
)


def plain_directory(time_ms, by):
    """The twin: by the calendar of Python."""
    try:
        time_ms = -1 if time_ms is None else time_ms
        time = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=time_ms)
    except OverflowError:
        time = None
    names = ["topic=t"]
    if by is not None:
        valid = time is not None and time_ms >= 0
        names.append(f"day={time:%Y-%m-%d}" if valid else "day=__HIVE_DEFAULT_PARTITION__")
        if by == "hour":
            names.append(f"hour={time:%H}" if valid else "hour=__HIVE_DEFAULT_PARTITION__")
    return "/".join(names)


@given(times=st.lists(TIMES, min_size=1, max_size=50), by=st.sampled_from([None, "day", "hour"]))
def test_each_row_is_in_its_directory_in_order(times, by):
    batch = pa.record_batch(
        {"n": pa.array(range(len(times))), "timestamp": pa.array(times, pa.timestamp("ms", tz="UTC"))}
    )
    found = {}
    for slot, piece in cut_by_slot(batch, by):
        directory = directory_of("t", by, slot)
        assert directory not in found
        found[directory] = piece.column("n").to_pylist()
    wanted = {}
    for n, time in enumerate(times):
        wanted.setdefault(plain_directory(time, by), []).append(n)
    assert found == wanted


def test_a_batch_of_one_day_is_not_copied():
    batch = pa.record_batch({"timestamp": pa.array([NEW_YEAR, NEW_YEAR + 5], pa.timestamp("ms", tz="UTC"))})
    ((_, piece),) = cut_by_slot(batch, "day")
    assert piece is batch


@pytest.mark.parametrize(
    ("topic", "by", "slot", "directory"),
    [
        ("orders", None, UNKNOWN, "topic=orders"),
        ("a.b_c-1", "day", NEW_YEAR // DAY, "topic=a.b_c-1/day=2026-01-01"),
        ("orders", "hour", NEW_YEAR // 3_600_000 + 5, "topic=orders/day=2026-01-01/hour=05"),
        ("a/b=c", "day", UNKNOWN, "topic=a%2Fb%3Dc/day=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_names(topic, by, slot, directory):
    assert directory_of(topic, by, slot) == directory
