"""Records that are read straight from a file, against the walk, which reads any file: the same rows and errors."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import kseg
from kseg.errors import FormatError
from kseg.format import straight
from kseg.format.arrow import RecordDecoder
from kseg.log.walk import BatchWalker
from kseg.native.header_reads import STEP_BYTES
from tests.builders import LogBuilder, sample
from tests.reference.record import Record
from tests.scale import counts

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PLAIN = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
COLUMNS = [None, PLAIN, ["value"], ["timestamp", "headers"], ["offset", "key"], ["timestampType", "value"]]


def without_headers(offset: int):
    return (*sample(offset)[:2], ())


def large_values(size: int):
    return lambda offset: (b"key-%d" % offset, random.Random(offset).randbytes(size // 2) * 2, ())


def random_log(folder: Path, random_: random.Random) -> Path:
    """Several segments, the first of more than one step, with all that a reader can meet."""
    builder = LogBuilder(folder)
    content = random_.choice([sample, without_headers, without_headers, without_headers])
    codecs = random_.choice([CODECS, ["none"], ["none", "none", "none", "lz4"]])
    for number in range(random_.choice([1, 2, 3])):
        builder.segment(builder.next_offset + random_.choice([0, 3]))
        for _ in range(random_.randrange(1, 20)):
            codec = random_.choice(codecs)
            kind = random_.randrange(12)
            if kind == 0:
                builder.append_time(random_.randrange(1, 9), codec)
            elif kind == 1:
                builder.transaction(3, producer_id=9, codec=codec)
                builder.control(random_.choice(["abort", "commit"]), producer_id=9)
            elif kind == 2:
                builder.empty(random_.randrange(1, 5))
            elif kind == 3 and number == 0:
                builder.legacy(3, magic=random_.choice([0, 1]), codec=random_.choice(["none", "gzip", "lz4"]))
            elif kind == 4:
                builder.skip(random_.randrange(1, 9))
            elif kind == 5:
                size = random_.choice([70_000, 300_000])
                builder.batch(builder.make(random_.randrange(1, 4), content=large_values(size)), codec)
            else:
                builder.batch(builder.make(random_.randrange(1, 60), content=content), codec)
    builder.batch(3)  # so that there is something
    return builder.write()


def read(path: Path, *, max_batch_bytes: int | None = None, **how: object) -> tuple[list[dict[str, object]], str]:
    """All rows up to the end or to damage, and what the damage is."""
    batches: list[pa.RecordBatch] = []
    try:
        for batch in kseg.open_log(path, max_batch_bytes=max_batch_bytes).read(**how):
            batch.validate(full=True)
            batches.append(batch)
    except FormatError as error:
        return [row for batch in batches for row in batch.to_pylist()], str(error)
    return [row for batch in batches for row in batch.to_pylist()], ""


@pytest.fixture
def walk(monkeypatch):
    """Read by the walk."""

    def read_by_walk(path: Path, **how: object) -> tuple[list[dict[str, object]], str]:
        with monkeypatch.context() as patched:
            patched.setattr(BatchWalker, "straight_span", lambda self, last_offset: None)
            return read(path, **how)

    return read_by_walk


def assert_same(got: tuple[list[dict[str, object]], str], expected: tuple[list[dict[str, object]], str]) -> None:
    assert got[1] == expected[1]
    assert len(got[0]) == len(expected[0])
    assert got[0] == expected[0]


@pytest.mark.parametrize("seed", range(counts(20)))
def test_rows_are_those_of_the_walk(seed, tmp_path, walk):
    random_ = random.Random(seed)
    path = random_log(tmp_path, random_)
    end = kseg.open_log(path).end_offset
    for columns in random_.sample(COLUMNS, 3):
        start = random_.choice([None, random_.randrange(end)])
        how = {
            "columns": columns,
            "start": start,
            "end": random_.choice([None, random_.randrange(start or 0, end + 1)]),
            "batch_bytes": random_.choice([1, 5000, 100_000, 4 << 20]),
            "isolation": random_.choice(["read_uncommitted", "read_committed"]),
        }
        assert_same(read(path, **how), walk(path, **how))


@pytest.mark.parametrize("seed", range(counts(20)))
def test_damage_is_told_as_by_the_walk(seed, tmp_path, walk):
    random_ = random.Random(seed)
    path = random_log(tmp_path, random_)
    log = random_.choice([file for file in sorted(path.glob("*.log")) if file.stat().st_size])
    data = bytearray(log.read_bytes())
    if random_.random() < 0.2:
        del data[random_.randrange(len(data)) :]
    else:
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    log.write_bytes(data)
    for columns in (None, PLAIN):
        batch_bytes = random_.choice([1, 5000, 4 << 20])
        assert_same(read(path, columns=columns, batch_bytes=batch_bytes), walk(path, columns=columns))


@pytest.mark.parametrize("byte", range(61, 110))
def test_records_that_are_broken_under_a_fitting_checksum_are_told_as_by_the_walk(byte, tmp_path, walk):
    builder = LogBuilder(tmp_path).batch(builder_records(3)).batch(builder_records(9, first=3))
    path = builder.corrupt(byte, repair=True).batch(builder_records(2, first=builder.next_offset)).write()
    for batch_bytes in (1, 4 << 20):
        assert_same(read(path, columns=PLAIN, batch_bytes=batch_bytes), walk(path, columns=PLAIN))


def builder_records(count: int, first: int = 0) -> list[Record]:
    return [Record(first + i, 1_700_000_000_000 + i, b"k%d" % i, b"v" * (600 * i)) for i in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [100_000, 250_000, 400_000, 2_500_000, 5_000_000])
def test_batches_of_any_size(codec, size, tmp_path, walk):
    """Parts of a step, a step and a bit, larger than the buffer, larger than the arena."""
    builder = LogBuilder(tmp_path)
    for _ in range(3):
        builder.batch(builder.make(2, content=large_values(size // 2)), codec).batch(4, codec)
    path = builder.write()
    rows, problem = read(path, columns=PLAIN)
    assert not problem
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (record.offset, record.key, record.value) for record in builder.records
    ]
    assert_same((rows, problem), walk(path, columns=PLAIN))


@pytest.mark.parametrize("limit", [1000, 60_000, 1 << 20])
def test_batches_above_the_limit_are_told_as_by_the_walk(limit, tmp_path, walk):
    builder = LogBuilder(tmp_path).batch(5)
    builder.batch(builder.make(2, content=large_values(80_000)), "zstd").batch(5)
    path = builder.write()
    assert_same(read(path, max_batch_bytes=limit), walk(path, max_batch_bytes=limit))


def test_small_batches_of_many_steps_are_read_by_the_kernel(tmp_path, monkeypatch):
    builder = LogBuilder(tmp_path)
    for _ in range(3000):
        builder.batch(builder.make(3, content=lambda offset: (b"%d" % offset, b"v" * 80, ())))
    path = builder.write()
    assert sum(file.stat().st_size for file in path.glob("*.log")) > 3 * STEP_BYTES
    monkeypatch.setattr(RecordDecoder, "decode", lambda *args: pytest.fail("left to the walk"))
    rows, problem = read(path)
    assert not problem
    assert [row["value"] for row in rows] == [record.value for record in builder.records]


@pytest.mark.parametrize("most", [0, 100_000, 300_000])
def test_a_call_that_pauses_goes_on_where_it_was(most, tmp_path, monkeypatch, walk):
    monkeypatch.setattr(straight, "CALL_BYTES", most)
    builder = LogBuilder(tmp_path)
    for _ in range(12):
        builder.batch(builder.make(3, content=large_values(30_000)))
        builder.transaction(3, producer_id=5).control("abort", producer_id=5)
    path = builder.write()
    for how in ({"columns": PLAIN}, {"columns": PLAIN, "start": 70}, {"isolation": "read_committed"}):
        assert_same(read(path, **how), walk(path, **how))


def test_the_last_offset_is_handed_on(tmp_path):
    """A batch that repeats offsets behind one that only the walk takes is found, though two readers share the file."""
    builder = LogBuilder(tmp_path).batch(20).batch(builder_records(1, first=20) * 1)
    builder.batch(builder.make(1, content=large_values(straight.BUFFER_BYTES + 1000)))
    again = builder.segments[-1].entries[0].data
    path = builder.raw(again).write()
    _, problem = read(path)
    assert "do not follow 21" in problem
