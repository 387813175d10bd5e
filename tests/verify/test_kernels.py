"""The kernels of verify against slow obvious twins, on tables of random and hostile rows."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from kseg.native import entries
from kseg.native import table as t
from kseg.native import verify as native
from tests.scale import counts

SEEDS = range(counts(30))
LARGE = 2**63 - 1
WIDE = {t.BASE_OFFSET, t.LAST_OFFSET, t.BASE_TIMESTAMP, t.MAX_TIMESTAMP, t.PRODUCER_ID}  # 64 bits in a file


def random_table(random_: random.Random, rows: int, *, hostile: bool) -> np.ndarray:
    table = t.new_table(rows)
    position, offset, epoch = 0, 100, 0
    for row in range(rows):
        magic = random_.choice([2, 2, 2, 1, 0])
        codec = random_.choice([0, 0, 1, 3, 4, 5])
        count = random_.randrange(0, 5)
        span = max(count, 1) + random_.choice([0, 0, 2])
        offset += random_.choice([0, 0, 0, 3])
        epoch += random_.choice([0, 0, 0, 1, -1])
        size = 61 + count * random_.choice([7, 10])
        wrapped = magic < 2 and codec
        table[:, row] = [
            position, size, -1 if wrapped else offset, offset + (span - 1 if magic == 2 or wrapped else 0),
            epoch, magic, 0,
            codec | random_.choice([0, 0, 8, 0x10, 0x20, 0x30, 0x40]), 1000 + random_.randrange(50),
            1000 + random_.randrange(80), random_.choice([-1, 5, 5, 6]), random_.choice([0, 0, 1]),
            random_.choice([-1, 0, 2, 4]), count, random_.choice([-1, 0, 1]), 0, -1,
        ]  # fmt: skip
        if hostile and random_.random() < 0.2:
            wide = random_.random() < 0.5  # 64 bits in the file, or 32
            column = random_.choice(
                [t.BASE_OFFSET, t.LAST_OFFSET, t.MAX_TIMESTAMP] if wide else [t.COUNT, t.LEADER_EPOCH]
            )
            top = LARGE if wide else 2**31 - 1
            table[column, row] = random_.choice([-top - 1, top, -1, 0])
        position += size + random_.choice([0, 0, 0, 30])
        offset = int(table[t.LAST_OFFSET, row]) + 1 if not hostile else offset + span
    return table


def flags_twin(table: np.ndarray, base: int, next_base: int) -> tuple[list[int], list[int]]:
    before, epoch, holes = base - 1, -1, 0
    flags, gaps = [], []
    for row in table.T.tolist():
        found = 0
        magic, attributes, last, count = row[t.MAGIC], row[t.ATTRIBUTES], row[t.LAST_OFFSET], row[t.COUNT]
        codec, first = attributes & 7, row[t.BASE_OFFSET]
        if magic < 2 and codec:
            first = before + 1 if last > before else last
        found |= native.OFFSETS_FALL if first <= before and before >= base else 0
        found |= native.OUT_OF_SEGMENT if first < base or last < first or last > base + 2**31 - 1 else 0
        found |= native.INTO_NEXT if last >= next_base else 0
        if not found:
            holes += first > before + 1
            before = last
        gaps.append(holes)
        if magic < 2:
            found |= native.BAD_CODEC if codec > 3 else 0
        else:
            found |= _v2_twin(row, codec, count, last - first if 0 <= first <= last else -1)
            found |= native.BAD_EPOCH if row[t.LEADER_EPOCH] < -1 else 0
            if row[t.LEADER_EPOCH] >= 0:
                found |= native.EPOCH_FALLS if row[t.LEADER_EPOCH] < epoch else 0
                epoch = row[t.LEADER_EPOCH]
        flags.append(found)
    return flags, gaps


def _v2_twin(row: list[int], codec: int, count: int, delta: int) -> int:
    found = native.BAD_CODEC if codec > 4 else 0
    if count < 0 or count > delta + 1 or (codec == 0 and count * 7 > row[t.SIZE] - 61):
        found |= native.BAD_COUNT
    append_time_or_horizon = row[t.ATTRIBUTES] & 0x48
    if row[t.MAX_TIMESTAMP] < -1:
        found |= native.BAD_TIME
    if count > 0 and not append_time_or_horizon and row[t.BASE_TIMESTAMP] > row[t.MAX_TIMESTAMP]:
        found |= native.BAD_TIME
    control = row[t.ATTRIBUTES] & 0x20
    if control and count > 0 and row[t.MARKER_TYPE] < 0:
        found |= native.BAD_MARKER
    if row[t.PRODUCER_ID] >= 0 and (row[t.PRODUCER_EPOCH] < 0 or (not control and row[t.BASE_SEQUENCE] < 0)):
        found |= native.BAD_PRODUCER
    if row[t.PRODUCER_ID] < 0 and row[t.ATTRIBUTES] & 0x10:
        found |= native.BAD_PRODUCER
    return found


def even_table(rows: int) -> np.ndarray:
    """Batches as a broker writes them: one behind the other, of one leader epoch."""
    table = t.new_table(rows)
    for row in range(rows):
        table[:, row] = [
            row * 100, 100, 100 + 3 * row, 102 + 3 * row, 4, 2, 0, 0, 1000 + row, 1001 + row, 5, 0, 3 * row, 3,
            -1, -1, -1,
        ]  # fmt: skip
    return table


def assert_flags_equal_the_twins(table: np.ndarray, next_base: int) -> None:
    walk = np.zeros(native.WALK_FIELDS, np.int64)
    walk[native.WALK_BASE], walk[native.WALK_NEXT_BASE], walk[native.WALK_LAST] = 100, next_base, 99
    walk[native.WALK_EPOCH], walk[native.WALK_LIMIT] = -1, 100 + 2**31 - 1
    flags, holes = np.zeros(60, np.int64), np.zeros(60, np.int64)
    half = np.ascontiguousarray(table[:, :25]), np.ascontiguousarray(table[:, 25:])
    flagged = native.fill_flags(half[0], 25, walk, flags[:25], holes[:25])
    flagged += native.fill_flags(half[1], 35, walk, flags[25:], holes[25:])
    expected, gaps = flags_twin(table, 100, next_base)
    assert flags.tolist() == expected
    assert holes.tolist() == gaps
    assert flagged == sum(flag != 0 for flag in expected)
    assert walk[native.WALK_HOLES] == gaps[-1]
    assert walk[native.WALK_RECORDS] == np.maximum(table[t.COUNT], 0).sum()
    assert walk[native.WALK_PRODUCERS] == (half[1][t.PRODUCER_ID] >= 0).sum()
    assert walk[native.WALK_CONTROLS] == (half[1][t.ATTRIBUTES] & t.CONTROL_BIT != 0).sum()
    assert walk[native.WALK_LEGACY] == (half[1][t.MAGIC] < 2).sum()
    epochs = half[1][t.LEADER_EPOCH]
    assert walk[native.WALK_EPOCHS] == (epochs[1:] != epochs[:-1]).sum()


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_flags_equal_the_twins(seed, hostile):
    random_ = random.Random(seed)
    assert_flags_equal_the_twins(random_table(random_, 60, hostile=hostile), random_.choice([LARGE, 200]))


def test_even_rows_have_no_flags():
    assert_flags_equal_the_twins(even_table(60), LARGE)
    assert not any(flags_twin(even_table(60), 100, LARGE)[0])


@pytest.mark.parametrize("row", [0, 1, 24, 25, 26, 59])
@pytest.mark.parametrize("column", range(t.COLUMNS))
def test_one_odd_number_among_even_rows_is_flagged_as_by_the_twin(row, column):
    for value in (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 5, 0x7F, 2**31 - 1, 2**63 - 1):
        if column == t.SIZE or (column not in WIDE and abs(value) > 2**31):
            continue
        table = even_table(60)
        table[column, row] = value
        assert_flags_equal_the_twins(table, random.Random(value).choice([LARGE, 200]))
    table = even_table(60)
    table[column, row] += 1
    assert_flags_equal_the_twins(table, LARGE)


@pytest.mark.parametrize("seed", SEEDS)
def test_entries_are_judged_as_by_the_twin(seed):
    """The twin looks at each entry by itself, over all rows."""
    random_ = random.Random(seed)
    table = random_table(random_, 50, hostile=False)
    positions, lasts = table[t.POSITION].tolist(), table[t.LAST_OFFSET].tolist()
    ends = (table[t.POSITION] + table[t.SIZE]).tolist()
    tops = np.maximum.accumulate(np.append(-1, table[t.MAX_TIMESTAMP])).tolist()
    firsts = table[t.BASE_OFFSET].tolist()
    for i in np.flatnonzero((table[t.MAGIC] < 2) & (table[t.ATTRIBUTES] & 7 > 0)).tolist():
        firsts[i] = (lasts[i - 1] if i else 99) + 1
    places = sorted({*random_.sample(positions, 10), *(random_.randrange(ends[-1]) for _ in range(6))})
    offsets = sorted(random_.choice(lasts) + random_.choice([0, 0, 1, -1]) for _ in places)
    times = sorted(random_.choice(tops[1:]) + random_.choice([0, 0, 1, -1]) for _ in range(8))
    time_offsets = sorted(random_.choice(lasts) for _ in times)
    time_places = sorted(random_.choice(positions) for _ in times)
    arrays = [np.array(values, np.int64) for values in (offsets, places, times, time_offsets, time_places)]
    verdicts, time_verdicts = np.zeros(len(places), np.int64), np.zeros(len(times), np.int64)
    cursor = np.zeros(entries.CURSOR_FIELDS, np.int64)
    cursor[entries.SEEN_LAST], cursor[entries.SEEN_MAX] = 99, -1
    for part in (slice(0, 20), slice(20, 50)):
        rows = np.ascontiguousarray(table[:, part])
        entries.scan_entries(rows, rows.shape[1], cursor, *arrays[:2], verdicts, *arrays[2:], time_verdicts)
    for place, offset, verdict in zip(places, offsets, verdicts.tolist(), strict=True):
        inside = any(start < place < end for start, end in zip(positions, ends, strict=True))
        reached = place <= positions[-1]
        assert bool(verdict & entries.NOT_AT_BATCH) == (inside and reached)
        if place in positions:
            row = positions.index(place)
            assert bool(verdict & entries.TOO_LATE) == ((lasts[row - 1] if row else 99) >= offset)
        hole = next((i for i in range(50) if offset < firsts[i] and (not i or offset > lasts[i - 1])), None)
        contiguous = hole is not None and positions[hole] == (ends[hole - 1] if hole else 0)
        assert bool(verdict & entries.NOT_HELD) == contiguous
    for place, offset, time, verdict in zip(time_places, time_offsets, times, time_verdicts.tolist(), strict=True):
        assert bool(verdict & entries.AS_LATE_BEFORE) == (tops[positions.index(place)] >= time)
        row = next(i for i, last in enumerate(lasts) if last >= offset)
        known = tops[row + 1] if offset >= firsts[row] else tops[row]
        assert bool(verdict & entries.NONE_AS_LATE) == (time > known)
        assert bool(verdict & entries.LATER_BEFORE) == (time < known)


@pytest.mark.parametrize("seed", SEEDS)
def test_sequences_are_followed_as_by_the_twin(seed):
    random_ = random.Random(seed)
    table = random_table(random_, 60, hostile=bool(seed % 2))
    holes = np.array(sorted(random_.randrange(4) for _ in range(60)), np.int64)
    slots = np.where(table[t.PRODUCER_ID] >= 0, table[t.PRODUCER_ID] - 5, -1)
    seen = np.full((native.SEEN_FIELDS, 2), -1, np.int64)
    out = np.empty((2, 60), np.int64)
    count = native.scan_sequences(table, 60, slots, holes, 0, 40, seen, out)
    state: dict[int, tuple[int, int, int, int]] = {}
    expected = []
    for number, row in enumerate(table.T.tolist()):
        slot, epoch, sequence = int(slots[number]), row[t.PRODUCER_EPOCH], row[t.BASE_SEQUENCE]
        if slot < 0:
            continue
        last_epoch, last, time, gaps = state.get(slot, (-1, -1, -1, -1))
        if row[t.ATTRIBUTES] & 0x20:
            if row[t.MARKER_TYPE] in (0, 1) and epoch != last_epoch:
                state[slot] = (epoch, -1, time, gaps)
            continue
        ahead = (sequence - last - 1) % 2**31
        if epoch < last_epoch:
            expected.append((number, native.PRODUCER_EPOCH_FALLS))
        elif epoch == last_epoch and last >= 0 and sequence >= 0 and ahead:
            if ahead >= 2**30:
                expected.append((number, native.SEQUENCE_AGAIN))
            elif gaps == holes[number] and abs(row[t.MAX_TIMESTAMP] - time) < 40:
                expected.append((number, native.SEQUENCE_GAP))
        newest = -1 if sequence < 0 else (sequence + row[t.LAST_OFFSET] - row[t.BASE_OFFSET]) % 2**31
        state[slot] = (epoch, newest, row[t.MAX_TIMESTAMP], int(holes[number]))
    assert [tuple(pair) for pair in out[:, :count].T.tolist()] == expected
    for slot, (epoch, last, _, _) in state.items():
        assert (seen[native.LAST_EPOCH, slot], seen[native.LAST_SEQUENCE, slot]) == (epoch, last)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_are_compared_as_by_the_twin(seed):
    random_ = random.Random(seed)
    table = random_table(random_, 30, hostile=False)
    skip = np.array([random_.random() < 0.1 for _ in range(30)])
    offsets, times, expected = [], [], []
    for row in range(30):
        wrong = 0
        if not skip[row] and table[t.COUNT, row] > 0:
            count, last = int(table[t.COUNT, row]), int(table[t.LAST_OFFSET, row])
            legacy = table[t.MAGIC, row] < 2
            made = [last - count + 1 + i + random_.choice([0, 0, 0, 1, -9]) for i in range(count)]
            stamps = [int(table[t.MAX_TIMESTAMP, row]) - random_.choice([0, 5]) for _ in range(count)]
            low = -1 if legacy else int(table[t.BASE_OFFSET, row])
            rises = all(a < b for a, b in itertools.pairwise(made))
            if not rises or made[0] < low or max(made) > last or min(made) < low or (legacy and made[-1] != last):
                wrong |= native.RECORD_OFFSETS
            wrong |= native.RECORD_TIMES if max(stamps) != table[t.MAX_TIMESTAMP, row] else 0
            offsets += made
            times += stamps
        expected.append(wrong)
    wrong_rows = np.zeros(30, np.int64)
    cursor = np.zeros(native.RECORD_CURSOR, np.int64)
    for part in (slice(0, 17), slice(17, None)):
        pieces = np.array(offsets[part], np.int64), np.array(times[part], np.int64)
        native.scan_records(table, 30, skip, cursor, *pieces, wrong_rows)
    assert wrong_rows.tolist() == expected
