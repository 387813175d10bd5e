"""Mutated indexes: every entry that would mislead a reader is found; entries of older brokers are not."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path

import numpy as np
import pytest

import kseg
from kseg.index.offset import OffsetIndex
from kseg.native import table as t
from kseg.native.headers import fill_headers
from tests.scale import counts
from tests.verify.copies import batch_places, codes, found, rows

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


def indexed_log(root: Path, seed: int) -> Path:
    """Two segments of many small batches with timestamps that rise and fall, indexed every few batches; with holes."""
    random_ = random.Random(seed)
    path = root / "indexed-0"
    config = kseg.LogConfig(index_interval_bytes=300)
    offset = 0
    with kseg.create_log(path, config=config, clock=lambda: 1_700_000_060) as log:
        for number in range(80):
            offset += random_.choice([0, 0, 0, 5])
            count = random_.randrange(1, 4)
            table = rows(offset, count)
            times = [1_700_000_000_000 + random_.randrange(5000) + number * 100 for _ in range(count)]
            table = table.set_column(2, "timestamp", [times]).append_column(
                "offset", [list(range(offset, offset + count))]
            )
            log.append(table)
            offset += count
            if number == 60:
                log.roll()
    return path


def headers(log: Path) -> np.ndarray:
    data = np.frombuffer(log.read_bytes(), np.uint8)
    table = t.new_table(len(batch_places(log)))
    fill_headers(data, 0, data.size, 0, table, 0)
    return table


def misleads(table: np.ndarray, entries: list[tuple[int, int]], base: int) -> bool:
    """Whether a lookup of some offset through the entries, as a broker searches, passes over the batch that holds it.

    The slow obvious way: for each offset that is wanted, search, then ask where the first batch is that reaches it.
    """
    positions, lasts = table[t.POSITION].tolist(), table[t.LAST_OFFSET].tolist()
    for wanted in [*(base + relative for relative, _ in entries), *lasts]:
        if wanted > lasts[-1]:
            continue
        position = 0
        for relative, place in entries:
            if base + relative <= wanted:
                position = place
        right = positions[next(i for i, last in enumerate(lasts) if last >= wanted)]
        if position not in positions or position > right:
            return True
    return False


@pytest.mark.parametrize("seed", range(counts(3)))
def test_misleading_offset_entries_are_found(tmp_path, seed):
    path = indexed_log(tmp_path, seed)
    assert found(path) == []
    random_ = random.Random(seed)
    log = sorted(path.glob("*.log"))[0]
    index, table = log.with_suffix(".index"), headers(log)
    data = index.read_bytes()
    entries = [OFFSET_ENTRY.unpack_from(data, at) for at in range(0, len(data), 8)]
    misled = 0
    for _ in range(counts(120)):
        changed = list(entries)
        slot = random_.randrange(len(entries))
        relative, position = entries[slot]
        positions, lasts = table[t.POSITION].tolist(), table[t.LAST_OFFSET].tolist()
        changed[slot] = random_.choice(
            [
                (relative ^ 1 << random_.randrange(31), position),
                (relative, position ^ 1 << random_.randrange(31)),
                (random_.choice(lasts), random_.choice(positions)),
                (relative + random_.randrange(-4, 5), position),
                (relative, random_.choice(positions)),
            ]
        )
        index.write_bytes(b"".join(OFFSET_ENTRY.pack(max(0, one), place) for one, place in changed))
        parsed = OffsetIndex.parse(index.read_bytes(), 0)
        if misleads(table, [(offset, place) for offset, place in parsed], 0) or parsed.parse_problems:
            misled += 1
            assert codes(path) & {"KS201", "KS202"}, f"{entries[slot]} became {changed[slot]}"
        elif changed[slot] == entries[slot]:
            assert found(path) == []
    assert misled > counts(40) // 4
    index.write_bytes(data)


def test_entries_of_older_brokers_are_sound(tmp_path):
    """They have the last offset of a whole append, and the position of its first batch."""
    path = indexed_log(tmp_path, 1)
    log = sorted(path.glob("*.log"))[0]
    table = headers(log)
    steps = range(3, table.shape[1] - 3, 4)
    entries = [(int(table[t.LAST_OFFSET, row + 2]), int(table[t.POSITION, row])) for row in steps]
    log.with_suffix(".index").write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries))
    top, times = (-1, 0), [(-1, 0)]
    row = 0
    while row < table.shape[1]:
        end = row + 3 if row in steps else row + 1  # an append of three batches is indexed, others are one batch
        latest = int(table[t.MAX_TIMESTAMP, row:end].max())
        if latest > top[0]:
            top = (latest, int(table[t.LAST_OFFSET, end - 1]))
        if (row in steps or end == table.shape[1]) and top[0] > times[-1][0]:
            times.append(top)
        row = end
    times = times[1:]
    log.with_suffix(".timeindex").write_bytes(b"".join(TIME_ENTRY.pack(*entry) for entry in times))
    assert found(path) == []


def time_misleads(path: Path, table: np.ndarray, index: OffsetIndex, entries: list[tuple[int, int]]) -> bool:
    """Whether a lookup by time through the entries passes over a batch that is as late as what is looked for."""
    for timestamp, relative in entries:
        _, position = index.lookup(relative)
        before = table[t.MAX_TIMESTAMP, table[t.POSITION] < position]
        if len(before) and before.max() >= timestamp:
            return True
    return entries[-1][0] != table[t.MAX_TIMESTAMP].max()  # what a broker takes for the segment's greatest


@pytest.mark.parametrize("seed", range(counts(3)))
def test_misleading_time_entries_are_found(tmp_path, seed):
    path = indexed_log(tmp_path, seed)
    random_ = random.Random(seed)
    log = sorted(path.glob("*.log"))[0]
    table = headers(log)
    file = log.with_suffix(".timeindex")
    data = file.read_bytes()
    offset_index = OffsetIndex.parse(log.with_suffix(".index").read_bytes(), 0)
    entries = [TIME_ENTRY.unpack_from(data, at) for at in range(0, len(data), 12)]
    misled = 0
    for _ in range(counts(120)):
        changed = list(entries)
        slot = random_.randrange(len(entries))
        timestamp, relative = entries[slot]
        changed[slot] = random_.choice(
            [
                (timestamp ^ 1 << random_.randrange(45), relative),
                (timestamp, relative ^ 1 << random_.randrange(31)),
                (timestamp + random_.randrange(-500, 500), relative),
                (timestamp, int(random_.choice(table[t.LAST_OFFSET]))),
            ]
        )
        file.write_bytes(b"".join(TIME_ENTRY.pack(*entry) for entry in changed))
        rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in itertools.pairwise(changed))
        if not rising or time_misleads(path, table, offset_index, changed):
            misled += 1
            assert codes(path) & {"KS205", "KS206", "KS208"}, f"{entries[slot]} became {changed[slot]}"
    assert misled > counts(40) // 4


def test_padding_is_no_entry_and_rubbish_in_it_is(tmp_path):
    path = indexed_log(tmp_path, 0)
    log = sorted(path.glob("*.log"))[-1]
    for suffix, size in ((".index", 8), (".timeindex", 12)):
        index = log.with_suffix(suffix)
        data = index.read_bytes()
        index.write_bytes(data + bytes(100 * size))
        assert found(path) == [], "a crash leaves the room that was made"
        index.write_bytes(data + bytes(3))
        assert codes(path) & {"KS201", "KS205"}
        index.write_bytes(data + bytes(50 * size) + b"\1" + bytes(50 * size - 1))
        assert codes(path) & {"KS201", "KS205"}
        index.write_bytes(data)


def test_lost_indexes_are_told(tmp_path):
    path = indexed_log(tmp_path, 0)
    first, last = sorted(path.glob("*.log"))
    first.with_suffix(".timeindex").write_bytes(b"")
    assert [line[:5] for line in found(path)] == ["KS209"]
    first.with_suffix(".timeindex").unlink()
    assert [line[:5] for line in found(path)] == ["KS209"]
    first.with_suffix(".index").unlink()
    assert found(path) == []
    assert "KS204" in codes(path, None)
    last.unlink()
    assert {line[:5] for line in found(path)} == {"KS703"} | {"KS504"} & {line[:5] for line in found(path)}
