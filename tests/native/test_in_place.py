"""Large uncompressed batches are read to where their values stay: nothing is lost, whatever lies between them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import kseg
from kseg.errors import FormatError
from kseg.format import straight as reader
from tests.builders import LogBuilder
from tests.scale import JIT_DISABLED, counts

COLUMNS = ["offset", "timestamp", "timestampType", "key", "value", "headers"]
WIDTHS = [0, 1, 90, 1200, 9000, 40_000]
LESS = 10 if JIT_DISABLED else 1  # of everything: a plain loop over bytes takes its time
HEADERS = (((b"h", b"1"), (b"g", None)), ((b"long", b"x" * 300),))
FIELDS = {
    "offset": lambda r: r.offset,
    "timestampType": lambda r: r.timestamp_type,
    "timestamp": lambda r: r.timestamp,
    "key": lambda r: r.key,
    "value": lambda r: r.value,
    "headers": lambda r: [{"key": key.decode(), "value": value} for key, value in r.headers] or None,
}


def told(records, columns):
    return [tuple(FIELDS[name](record) for name in columns) for record in records]


def rows(batches, columns):
    found = []
    for batch in batches:
        batch.validate(full=True)
        table = pa.Table.from_batches([batch])
        parts = []
        for name in columns:
            column = table[name]
            if name == "timestamp":
                column = pa.compute.divide(column.cast("int64"), 1000 if column.type.unit == "us" else 1)
            parts.append(column.to_pylist())
        found += zip(*parts, strict=True)
    return found


def content(rng, with_headers):
    width = rng.choice(WIDTHS)

    def make(offset):
        value = None if rng.random() < 0.05 else rng.randbytes(rng.randrange(width + 1))
        key = None if rng.random() < 0.1 else b"key %d" % rng.randrange(1000) * rng.choice([1, 1, 1, 40])
        return key, value, rng.choice(HEADERS) if with_headers and rng.random() < 0.2 else ()

    return make


def some_log(root, rng):
    """Mostly large uncompressed batches, and between them all that these windows are not for."""
    builder = LogBuilder(root)
    odd = rng.choice([0.0, 0.1, 0.4])
    while sum(len(entry.data) for entry in builder.batches) < 1_500_000 // LESS:
        kind = rng.random()
        if kind >= odd:
            builder.batch(builder.make(rng.choice([3, 20, 60]), content=content(rng, with_headers=False)))
        elif kind < odd * 0.2:
            builder.batch(builder.make(9, content=content(rng, with_headers=True)))
        elif kind < odd * 0.5:
            codec = rng.choice(["lz4", "zstd", "gzip", "snappy"])
            builder.batch(builder.make(9, content=content(rng, with_headers=False)), codec)
        elif kind < odd * 0.6:
            builder.legacy(2, magic=rng.choice([0, 1]))
        elif kind < odd * 0.7:
            builder.append_time(4)
        elif kind < odd * 0.8:
            builder.skip(rng.randrange(50)).empty(2)
        else:
            for _ in range(rng.randrange(30)):
                builder.record(b"k", b"small")
    return builder


def test_the_buffer_is_not_used_again_where_all_batches_are_large(tmp_path, monkeypatch):
    made, new_payloads = [], reader._new_payloads

    def noted(limit):
        made.append(new_payloads(limit))
        return made[-1]

    monkeypatch.setattr(reader, "_new_payloads", noted)
    builder = LogBuilder(tmp_path)
    for _ in range(12 // LESS + 1):
        builder.batch(builder.make(10, content=lambda offset: (b"key", b"%d" % offset * 4000, ())))
    path = builder.write()
    assert rows(kseg.open_log(path).read(columns=COLUMNS), COLUMNS) == told(builder.records, COLUMNS)
    (payloads,) = made
    first = builder.segments[0].data[:200_000]
    held = payloads.data[: len(first)].tobytes()
    assert held == first


@pytest.mark.parametrize("seed", range(counts(60)))
def test_records_are_those_of_the_log_whatever_lies_between_large_batches(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    builder = some_log(tmp_path, rng)
    columns = rng.choice([COLUMNS, COLUMNS[:-1], ["offset", "value"], ["value"], ["key", "offset"]])
    monkeypatch.setattr(reader, "FIRST_ROWS", rng.choice([7, 100, 1 << 14]))
    monkeypatch.setattr(reader, "CALL_BYTES", rng.choice([100_000, 32 << 20]))
    last = builder.next_offset
    start, end = sorted(rng.randrange(last + 1) for _ in range(2)) if seed % 3 else (0, last)
    size = rng.choice([4 << 10, 300 << 10, 1 << 20, 5 << 20])
    log = kseg.open_log(builder.write())
    found = rows(log.read(start, end, columns=columns, batch_bytes=size), columns)
    assert found == told((r for r in builder.records if start <= r.offset < end), columns)


def long_values(offset):
    return b"key", b"%d" % offset * 3000, ()


def few_headers(offset):
    return b"key", b"%d" % offset * 1500, HEADERS[offset % 2] if offset % 3 else ()


BETWEEN = {
    "headers": lambda builder: builder.batch(builder.make(20, content=few_headers)),
    "lz4": lambda builder: builder.batch(builder.make(40, content=long_values), "lz4"),
    "legacy": lambda builder: builder.legacy(builder.make(3, content=long_values)),
    "append time": lambda builder: builder.append_time(builder.make(7, content=long_values)),
    "small": lambda builder: builder.batch(builder.make(1)),
}


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[:-1]], ids=["with headers", "without headers"])
@pytest.mark.parametrize("place", [3] if JIT_DISABLED else range(14))
@pytest.mark.parametrize("kind", BETWEEN)
def test_what_is_not_read_in_place_lies_anywhere_in_a_window(kind, place, columns, tmp_path):
    builder = LogBuilder(tmp_path)
    for number in range(5 if JIT_DISABLED else 15):
        builder.batch(builder.make(5, content=long_values))
        if number == place:
            BETWEEN[kind](builder)
    found = rows(kseg.open_log(builder.write()).read(columns=columns), columns)
    assert found == told(builder.records, columns)


@pytest.mark.parametrize("seed", range(counts(20)))
def test_what_is_before_a_broken_record_is_given(seed, tmp_path):
    """Nothing of the broken batch comes, though its first values were moved already, and all of those before it."""
    rng = random.Random(seed)
    builder = LogBuilder(tmp_path)
    for _ in range(rng.randrange(4, 40) // LESS + 1):
        builder.batch(builder.make(rng.choice([5, 30]), content=content(rng, with_headers=seed % 4 == 0)))
    sound = list(builder.records)
    records = builder.make(8, content=lambda offset: (b"key", b"%d" % offset * 2000, ()))
    builder.batch(records)
    data = builder.batches[-1].data
    builder.corrupt(data.rindex(b"key") - 1, repair=True)  # the length of the last key
    for _ in range(3):
        builder.batch(5)
    found, log = [], kseg.open_log(builder.write())
    with pytest.raises(FormatError) as caught:
        for batch in log.read(columns=COLUMNS):
            found += rows([batch], COLUMNS)
    assert caught.value.offset is not None
    assert found == told(sound, COLUMNS)


def test_a_damaged_batch_behind_a_window_is_told(tmp_path):
    builder = LogBuilder(tmp_path)
    for _ in range(30 // LESS):
        builder.batch(builder.make(10, content=long_values))
    sound = list(builder.records)
    builder.batch(builder.make(10, content=long_values)).corrupt(9000)
    found, log = [], kseg.open_log(builder.write())
    with pytest.raises(FormatError, match="checksum"):
        for batch in log.read(columns=COLUMNS):
            found += rows([batch], COLUMNS)
    assert found == told(sound, COLUMNS)
