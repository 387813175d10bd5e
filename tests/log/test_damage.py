"""Readers that pass over damage: what is sound is given, what is missing is told, wherever splits cut the file."""

from __future__ import annotations

import random
import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.log.partition import Log
from kseg.log.plan import plan_splits, read_split
from kseg.log.walk import ReadOptions
from kseg.schema import CORRUPT_COLUMN, RECORD_SCHEMA, with_corrupt_column
from kseg.storage import open_store
from tests.log.rows import plain_rows
from tests.reference import batch as v2
from tests.scale import counts

SKIP = ReadOptions(skip_damage=True)
COLUMN_SCHEMA = with_corrupt_column(RECORD_SCHEMA)
FLIPPED = ["multi-segment-0", "compact-tx-0", "compact-plain-0", "tx-0", "mixed-codecs-0", "java-lz4-0", "retained-0"]


def batches_of(directory):
    """(file, position, size, base offset, last offset) of each batch, by the twin."""
    found = []
    for file in sorted(directory.glob("*.log")):
        data = file.read_bytes()
        for position, size in v2.walk(data)[0]:
            base = int.from_bytes(data[position : position + 8], "big")
            found.append(
                (file, position, size, base, base + int.from_bytes(data[position + 23 : position + 27], "big"))
            )
    return found


def flip(file, position, value=None):
    with file.open("r+b") as opened:
        opened.seek(position)
        old = opened.read(1)[0]
        opened.seek(position)
        opened.write(bytes([old ^ 0xFF if value is None else value]))


def skipping(directory):
    store, path = open_store(directory)
    return Log(store, path, options=SKIP)


def read_all_ways(directory, rng):
    """Rows and damages of a plain read, and of splits of several sizes and ranges; the rows of all must be the same."""
    log = kseg.open_log(directory)
    reader = log.read(on_corrupt="skip", read_past_high_watermark=True)
    rows, damages = plain_rows(reader), reader.damages
    told = log.read(on_corrupt="column", read_past_high_watermark=True)
    check_column(told, rows, damages)
    planned = skipping(directory)
    assert planned.end_offset >= (rows[-1][0] + 1 if rows else 0)
    middle = rng.randrange(planned.start_offset, planned.end_offset + 1)
    for target in (1, 50_000, 1 << 30):
        for cut in (planned.start_offset, middle):
            splits = plan_splits(planned, planned.start_offset, cut, target_bytes=target)
            splits += plan_splits(
                planned, cut, planned.end_offset, target_bytes=target, continues=cut > planned.start_offset
            )
            seen = []
            assert plain_rows(b for split in splits for b in read_split(split, RECORD_SCHEMA, SKIP, seen)) == rows
            assert sorted((d.path, d.position) for d in seen) == sorted((d.path, d.position) for d in damages)
    return rows, damages


def check_column(batches, rows, damages):
    table = pa.Table.from_batches(batches, schema=COLUMN_SCHEMA)
    sound = table.filter(pa.compute.is_null(table[CORRUPT_COLUMN]))
    assert plain_rows(sound.to_batches()) == rows
    places = table.filter(pa.compute.is_valid(table[CORRUPT_COLUMN])).to_pylist()
    assert [row[CORRUPT_COLUMN]["position"] for row in places] == [damage.position for damage in damages]
    for row, damage in zip(places, damages, strict=True):
        assert row["offset"] == damage.start and row["topic"] and row["partition"] is not None
        assert row["key"] is row["value"] is row["timestamp"] is row["timestampType"] is row["headers"] is None
        assert row[CORRUPT_COLUMN]["reason"] and row[CORRUPT_COLUMN]["file"] == damage.path


def assert_covered(missing, damages):
    for offset in missing:
        assert any(damage.start <= offset < damage.end for damage in damages), offset


@pytest.mark.parametrize("name", FLIPPED)
@pytest.mark.parametrize("seed", range(counts(3)))
def test_flips_cost_the_batches_that_they_are_in(golden, tmp_path, name, seed):
    rng = random.Random(f"{name} {seed}")
    directory = shutil.copytree(golden / "before" / name, tmp_path / name)
    every = plain_rows(kseg.open_log(directory).read(read_past_high_watermark=True))
    batches = batches_of(directory)
    hit = rng.sample(batches[:-1], min(rng.choice((1, 2, 5)), len(batches) - 1))
    for file, position, size, _, _ in hit:
        # not the base offset (0 to 7), which other tests are about, nor the leader epoch, which no checksum covers
        flip(
            file, position + rng.choice((rng.randrange(8, 12), 16, 17, rng.randrange(21, 61), rng.randrange(61, size)))
        )
    lost = {offset for _, _, _, base, last in hit for offset in range(base, last + 1)}
    with pytest.raises(kseg.errors.FormatError):
        list(kseg.open_log(directory).read(read_past_high_watermark=True))
    rows, damages = read_all_ways(directory, rng)
    assert rows == [row for row in every if row[0] not in lost]
    assert damages
    assert_covered({row[0] for row in every} & lost, damages)


@pytest.mark.parametrize("name", FLIPPED)
@pytest.mark.parametrize("seed", range(counts(3)))
def test_a_flipped_base_offset_never_gives_a_record_under_a_false_offset(golden, tmp_path, name, seed):
    rng = random.Random(f"{name} {seed}")
    directory = shutil.copytree(golden / "before" / name, tmp_path / name)
    every = plain_rows(kseg.open_log(directory).read(read_past_high_watermark=True))
    batches = batches_of(directory)
    file, position, _, base, last = rng.choice(batches[:-1])
    bit = rng.randrange(0, 63)
    old = file.read_bytes()[position + 7 - bit // 8]
    flip(file, position + 7 - bit // 8, old ^ (1 << bit % 8))
    rows, damages = read_all_ways(directory, rng)
    if "compact" in name:  # in holes a small step is possible, and nothing tells that it is wrong
        return
    left = [row for row in every if not base <= row[0] <= last]
    assert rows == left
    assert damages
    assert_covered({row[0] for row in every} - {row[0] for row in rows}, damages)
