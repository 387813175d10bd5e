"""Building indexes from the batch table."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import LogError
from kseg.index.build import IndexBuilder, RollLimits, Stop
from kseg.index.offset import OffsetIndex
from kseg.index.time import TimeIndex
from tests.index.twins import index_twin, make_table, table_of
from tests.scale import counts

BATCHES = st.lists(st.tuples(st.integers(1, 20), st.integers(-1, 50), st.integers(61, 3000)), max_size=60)


def _table(steps, base):
    offset = base - 1
    batches = []
    for delta, timestamp, size in steps:
        offset += delta
        batches.append((offset, timestamp, size))
    rows = [{"last_offset": o, "max_timestamp": t, "size": s} for o, t, s in batches]
    return make_table(rows), batches


@given(BATCHES, st.integers(0, 2**40), st.sampled_from([0, 100, 4096]), st.integers(0, 60))
def test_entries_follow_kafkas_rule_however_the_rows_come(steps, base, interval, cut):
    table, batches = _table(steps, base)
    builder = IndexBuilder(base, interval)
    cut = min(cut, len(batches))
    builder.add(table, cut, 0)
    builder.add(table, len(batches) - cut, first_row=cut)
    builder.finish()
    builder.finish()
    expected = index_twin(batches, base, interval)
    assert (list(builder.offset_index), list(builder.time_index)) == expected
    assert builder.max_timestamp == max((t for _, t, _ in batches), default=-1)
    assert builder.size == sum(s for _, _, s in batches)


@given(BATCHES, st.integers(0, 60))
def test_resuming_restarts_the_interval_only(steps, cut):
    table, batches = _table(steps, 5)
    cut = min(cut, len(batches))
    first = IndexBuilder(5, 100)
    first.add(table, cut)
    first.finish()
    again = IndexBuilder.resume(
        OffsetIndex.parse(first.offset_index.to_bytes(), 5),
        TimeIndex.parse(first.time_index.to_bytes(), 5),
        size=first.size,
        index_interval_bytes=100,
    )
    again.add(table, len(batches) - cut, first_row=cut)
    again.finish()
    assert again.max_timestamp == max((t for _, t, _ in batches), default=-1)
    assert list(again.offset_index)[: first.offset_index.entries] == list(first.offset_index)
    positions = {position: last for (last, _, _), position in zip(batches, _positions(batches), strict=True)}
    assert all(positions[position] == offset for offset, position in again.offset_index)
    assert again.offset_index.check(log_size=again.size) == []


def _positions(batches):
    return np.cumsum([0] + [size for _, _, size in batches])[:-1].tolist()


def _stop(rows, limits, base=0, interval=0):
    builder = IndexBuilder(base, interval)
    return builder, builder.add_until_roll(make_table(rows), len(rows), limits)


def _rows(*triples):
    return [{"last_offset": o, "max_timestamp": t, "size": s} for o, t, s in triples]


@pytest.mark.parametrize(
    ("rows", "limits", "expected"),
    [
        # a segment may be exactly segment.bytes long
        (_rows((0, 1, 100), (1, 1, 100), (2, 1, 100)), RollLimits(segment_bytes=200), (2, Stop.SEGMENT_BYTES)),
        (_rows((0, 1, 100), (1, 1, 101)), RollLimits(segment_bytes=200), (1, Stop.SEGMENT_BYTES)),
        (_rows((0, 1, 100), (1, 1, 201)), RollLimits(segment_bytes=200), (1, Stop.BATCH_TOO_LARGE)),
        # the clock is the first batch's greatest timestamp, and must be passed by more than segment.ms
        (_rows((0, 50, 1), (1, 90, 1), (2, 150, 1), (3, 151, 1)), RollLimits(segment_ms=100), (3, Stop.SEGMENT_MS)),
        (_rows((0, 50, 1), (1, -(2**63), 1)), RollLimits(segment_ms=0), (2, Stop.NONE)),
        # without a timestamp in the first batch, the segment's age
        (_rows((0, -1, 1), (1, 999, 1)), RollLimits(segment_ms=100, age_ms=100), (2, Stop.NONE)),
        (_rows((0, -1, 1), (1, 999, 1)), RollLimits(segment_ms=100, age_ms=101), (1, Stop.SEGMENT_MS)),
        # full indexes: 4 offset entries fit in 36 bytes; of the time index's slots the last is kept free
        (_rows(*[(i, 5, 10) for i in range(9)]), RollLimits(index_bytes=36), (5, Stop.OFFSET_INDEX_FULL)),
        (_rows(*[(i, i, 10) for i in range(9)]), RollLimits(index_bytes=24), (2, Stop.TIME_INDEX_FULL)),
        (_rows((2**31 - 1, 1, 9), (2**31, 1, 9)), RollLimits(), (1, Stop.OFFSET_RANGE)),
        (_rows((-1, 1, 9)), RollLimits(), (0, Stop.OFFSET_RANGE)),
        (_rows((5, 1, 9), (6, 1, 9), (6, 1, 9)), RollLimits(), (2, Stop.OUT_OF_ORDER)),
        (_rows((5, 1, 2**31), (6, 1, 9)), RollLimits(), (1, Stop.LOG_TOO_LARGE)),
        (_rows((5, 0, 9), (6, 2**63 - 1, 9)), RollLimits(), (2, Stop.NONE)),
    ],
)
def test_stops_before_the_row_that_needs_a_roll(rows, limits, expected):
    builder, got = _stop(rows, limits)
    assert got == expected
    taken = expected[0]
    assert builder.size == sum(row["size"] for row in rows[:taken])
    assert builder.max_timestamp == max((row["max_timestamp"] for row in rows[:taken]), default=-1)
    assert expected[1].rolls == (Stop.SEGMENT_BYTES <= expected[1] <= Stop.OFFSET_RANGE)


def test_rows_that_fit_no_segment_are_an_error():
    with pytest.raises(LogError, match="offset 2147483648") as caught:
        IndexBuilder(0).add(make_table(_rows((1, 1, 70), (2**31, 1, 70))), 2)
    assert caught.value.position == 70


def test_more_entries_than_one_call_holds():
    count = counts(20_000)
    table = make_table(_rows(*[(i, i, 10) for i in range(count)]))
    builder = IndexBuilder(0, 0)
    builder.add(table, count)
    assert builder.offset_index.offsets.tolist() == list(range(1, count))


def _logs(golden, *folders):
    found = [path for folder in folders for path in sorted((golden / folder).glob("*/*.log"))]
    assert len(found) > 3
    return found


def test_rebuilt_indexes_answer_as_the_brokers_do(golden):
    """Scanning on from either answer must reach the wanted batch, and neither may pass it."""
    for path in _logs(golden, "before", "cleaned", "expired"):
        table, rows = table_of(path)
        base = int(path.stem)
        builder = IndexBuilder(base)
        builder.add(table, rows, 0)
        builder.finish()
        brokers = OffsetIndex.parse(path.with_suffix(".index").read_bytes(), base, str(path))
        times = TimeIndex.parse(path.with_suffix(".timeindex").read_bytes(), base, str(path))
        assert brokers.check(log_size=path.stat().st_size) == []
        assert times.check() == []
        assert builder.max_timestamp == times.max_timestamp
        if rows:
            assert builder.time_index.last_entry == times.last_entry
        starts = dict(zip(table[0, :rows].tolist(), table[3, :rows].tolist(), strict=True))
        for index in (builder.offset_index, brokers):
            assert all(starts[position] == offset for offset, position in index)


@pytest.mark.parametrize("seed", range(counts(6)))
def test_rebuilt_indexes_equal_kafkas_own_recovery(oracle, tmp_path, seed):
    directory = tmp_path / "t-0"
    interval = [0, 256, 1000][seed % 3]
    setting = {"index.interval.bytes": interval}
    oracle.gen(directory, 100 + seed, 250, lat=seed % 2, legacy=0.3 if seed % 6 == 5 else 0, **setting)
    copy = tmp_path / "copy" / "t-0"
    shutil.copytree(directory, copy)
    for sidecar in [*copy.glob("*index"), *copy.glob("*.snapshot")]:
        sidecar.unlink()
    oracle.load(copy, **setting)
    logs = sorted(copy.glob("*.log"))
    assert logs
    for path in logs:
        table, rows = table_of(path)
        builder = IndexBuilder(int(path.stem), interval)
        builder.add(table, rows, 0)
        builder.finish()
        assert builder.offset_index.to_bytes() == path.with_suffix(".index").read_bytes()
        assert builder.time_index.to_bytes() == path.with_suffix(".timeindex").read_bytes()
