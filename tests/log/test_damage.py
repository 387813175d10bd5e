"""Readers that pass over damage: what is sound is given, what is missing is told, wherever splits cut the file."""

from __future__ import annotations

import gzip
import random
import shutil
from dataclasses import replace

import pyarrow as pa
import pytest

import kseg
from kseg.datasource.planning import plan_read
from kseg.log.partition import Log
from kseg.log.plan import plan_splits, read_split, read_splits
from kseg.log.walk import ReadOptions
from kseg.options import parse_source_options
from kseg.schema import CORRUPT_COLUMN, RECORD_SCHEMA, with_corrupt_column
from kseg.storage import open_store
from tests.builders import LogBuilder
from tests.log.rows import plain_rows
from tests.reference import batch as v2
from tests.reference import legacy
from tests.reference.record import Record
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
@pytest.mark.parametrize("seed", range(counts(1)))
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
@pytest.mark.parametrize("seed", range(counts(1)))
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


# --- built logs: one kind of damage each ------------------------------------------------------------------------------


def offsets(reader):
    return [offset for batch in reader for offset in batch.column("offset").to_pylist()]


def skipped(path, **how):
    reader = kseg.open_log(path).read(on_corrupt="skip", **how)
    found = offsets(reader)
    return found, [(damage.position, damage.start, damage.end) for damage in reader.damages]


def size_of(builder, count):
    return sum(len(entry.data) for entry in builder.batches[:count])


def test_records_that_cannot_be_decoded_are_damage_though_the_checksum_fits(tmp_path):
    for codec in ("none", "lz4", "zstd", "gzip"):
        builder = LogBuilder(tmp_path, codec).batch(5).batch(5, codec).corrupt(61, xor=0x55, repair=True).batch(5)
        path = builder.write()
        assert skipped(path) == ([*range(5), *range(10, 15)], [(size_of(builder, 1), 5, 10)])


def test_a_timestamp_that_no_column_can_hold_is_damage(tmp_path):
    builder = LogBuilder(tmp_path).batch(5).batch(5).batch(5)
    builder.batch([Record(15, 2**62, b"k", b"v")]).batch(5)
    store, path = open_store(builder.write())
    log = Log(store, path, options=SKIP)
    micros = pa.schema([pa.field("offset", pa.int64()), pa.field("timestamp", pa.timestamp("us", tz="UTC"))])
    seen = []
    splits = plan_splits(log, 0, log.end_offset)
    found = offsets(batch for split in splits for batch in read_split(split, micros, SKIP, seen))
    assert found == [*range(15), *range(16, 21)]
    assert [(damage.start, damage.end) for damage in seen] == [(15, 16)]


@pytest.mark.parametrize("rubbish", [bytes(100), b"\xff" * 37, bytes(range(256)) * 8], ids=["zeros", "ones", "all"])
def test_rubbish_between_batches_loses_nothing_and_is_told(tmp_path, rubbish):
    builder = LogBuilder(tmp_path).batch(5).raw(rubbish).batch(5).segment().batch(5)
    path = builder.write()
    assert skipped(path) == ([*range(15)], [(size_of(builder, 1), 5, 5)])


def test_a_torn_middle_loses_what_was_cut_off(tmp_path):
    builder = LogBuilder(tmp_path).segment().batch(5).batch(5).truncate(70).segment(10).batch(5)
    path = builder.write()
    assert skipped(path) == ([*range(5), *range(10, 15)], [(size_of(builder, 1), 5, 10)])


def test_a_torn_tail_still_ends_the_log_quietly(tmp_path):
    for number, tail in enumerate((b"\0" * 50, LogBuilder(tmp_path).skip(10).batch(5).segments[0].data[:-3])):
        path = LogBuilder(tmp_path, f"t{number}").batch(5).batch(5).torn(tail).write()
        assert skipped(path) == ([*range(10)], [])


def test_damage_behind_the_last_sound_batch_is_told(tmp_path):
    builder = LogBuilder(tmp_path).batch(5).batch(5).corrupt(80)
    assert skipped(builder.write()) == ([*range(5)], [(size_of(builder, 1), 5, 10)])
    told = pa.Table.from_batches(kseg.open_log(builder.path).read(5, on_corrupt="column")).to_pylist()
    assert [(row["offset"], row["_corrupt"]["endOffset"]) for row in told] == [(5, 10)]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_inside_a_torn_wrapper_are_no_batches(tmp_path, magic):
    rng = random.Random(magic)
    made = [Record(offset, 5, rng.randbytes(9), rng.randbytes(40)) for offset in range(12)]
    first = b"".join(legacy.encode_set([one], magic) for one in made[:3])
    relative = 3 if magic == 1 else 0
    inner = [legacy.encode_message(replace(one, offset=one.offset - relative), magic) for one in made[3:]]
    stored = gzip.compress(b"".join(inner), 0)  # what a codec leaves as it is
    wrapper = legacy.encode_message(Record(11, 5, None, stored), magic, 1)
    assert [one.offset for one in legacy.read_entry(wrapper)] == list(range(3, 12))
    for cut in (1, 30, len(wrapper) // 2, len(wrapper) - 20):
        directory = tmp_path / f"cut{cut}-0"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(first + wrapper[:-cut])
        assert [row[0] for row in plain_rows(kseg.open_log(directory).read())] == [0, 1, 2]
        skipped = kseg.open_log(directory).read(on_corrupt="skip")
        assert [row[0] for row in plain_rows(skipped)] == [0, 1, 2]
        assert not skipped.damages
        codes = {finding.code for finding in kseg.verify(directory).findings}
        assert codes == {"KS104", "KS204"}  # a torn tail, and no indexes
        with kseg.append_to(directory) as log:
            log.append(pa.table({"key": ["k"], "value": ["v"]}))
        assert [row[0] for row in plain_rows(kseg.open_log(directory).read())] == [0, 1, 2, 3]


def test_a_length_that_runs_past_the_end_of_the_log_is_no_torn_tail(tmp_path):
    """It was taken for one: the sound batches behind it were lost without a word."""
    path = LogBuilder(tmp_path).batch(5).batch(5).corrupt(8, xor=0x40).batch(5).write()
    with pytest.raises(kseg.TruncatedError):
        offsets(kseg.open_log(path).read())
    assert skipped(path)[0] == [*range(5), *range(10, 15)]


def test_a_batch_inside_a_value_is_not_taken_for_one_of_the_log(tmp_path):
    inner = LogBuilder(tmp_path).skip(7).batch(3).segments[0].data
    builder = LogBuilder(tmp_path).batch(5).record(b"k", b"xx" + inner + b"yy").corrupt(9).batch(5)
    assert skipped(builder.write()) == ([*range(5), *range(6, 11)], [(size_of(builder, 1), 5, 6)])


def test_legacy_messages_and_wrappers(tmp_path):
    builder = LogBuilder(tmp_path).legacy(3).legacy(4, codec="gzip").corrupt(40).legacy(3, codec="gzip").batch(2)
    assert skipped(builder.write())[0] == [0, 1, 2, *range(7, 12)]


def test_a_damaged_place_hides_no_transaction_that_an_index_knows(golden, tmp_path):
    directory = shutil.copytree(golden / "before" / "tx-0", tmp_path / "tx-0")
    before = offsets(kseg.open_log(directory).read(isolation="read_committed"))
    with_marker = [b for b in batches_of(directory) if b[0].read_bytes()[b[1] + 22] & 0x20]
    file, position, _, base, _ = with_marker[0]
    flip(file, position + 65)
    found, damages = skipped(directory, isolation="read_committed")
    assert set(found) <= set(before)
    assert [start for _, start, _ in damages] == [base]
    for index in directory.glob("*index"):
        index.unlink()
    with pytest.raises(kseg.CorruptRecordError, match="may hide how a transaction ended"):
        skipped(directory, isolation="read_committed")


def test_an_index_that_names_a_batch_inside_a_value_fails_the_read(golden, tmp_path):
    """Rows of that batch must not be given, and who starts there cannot know."""
    inner = LogBuilder(tmp_path, "inner").skip(40).batch(3).segments[0].data
    builder = LogBuilder(tmp_path).batch(5).record(b"k", b"xx" + inner + b"yy").batch(5)
    path = builder.write()
    place = (path / f"{0:020d}.log").read_bytes().index(inner)
    (path / f"{0:020d}.index").write_bytes((40).to_bytes(4, "big") + place.to_bytes(4, "big"))
    for options in (ReadOptions(), SKIP):
        store, directory = open_store(path)
        log = Log(store, directory, options=options)
        splits = plan_splits(log, 0, 11, target_bytes=1)
        assert len(splits) == 2
        with pytest.raises(kseg.CorruptRecordError, match="no batch begins where the index says"):
            list(read_split(splits[0], RECORD_SCHEMA, options))
    assert offsets(kseg.open_log(path).read()) == [*range(11)]


def test_an_index_whose_offsets_lie_costs_no_rows(golden, tmp_path):
    """A split ended where the index said that the range ends."""
    directory = shutil.copytree(golden / "before" / "multi-segment-0", tmp_path / "multi-segment-0")
    for index in directory.glob("*.index"):
        data = bytearray(index.read_bytes())
        for at in range(0, len(data), 8):
            relative = int.from_bytes(data[at : at + 4], "big")
            data[at : at + 4] = (relative + (400 if relative else 0)).to_bytes(4, "big")
        index.write_bytes(data)
    for options in (ReadOptions(), SKIP):
        store, path = open_store(directory)
        log = Log(store, path, options=options)
        for start, end in ((0, 1000), (500, 2500), (2300, 2400)):
            splits = plan_splits(log, start, end, target_bytes=20_000)
            found = offsets(batch for split in splits for batch in read_split(split, RECORD_SCHEMA, options))
            assert found == [*range(start, end)]


def test_what_was_passed_over_is_said_once(tmp_path, caplog):
    path = LogBuilder(tmp_path).batch(5).corrupt(70).batch(5).batch(5).corrupt(70).batch(5).write()
    reader = kseg.open_log(path).read(on_corrupt="skip")
    assert offsets(reader) == [*range(5, 10), *range(15, 20)]
    assert len(reader.damages) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "2 damaged places" in caplog.text and "10 offsets" in caplog.text
    assert all(str(damage.path) in str(damage) and damage.to_dict()["reason"] for damage in reader.damages)


def test_an_unknown_policy_is_refused(tmp_path):
    path = LogBuilder(tmp_path).batch(5).write()
    with pytest.raises(kseg.OptionError, match="valid values are raise, skip, column"):
        kseg.open_log(path).read(on_corrupt="ignore")


def test_batches_and_listings_look_again_for_a_segment_that_vanished(golden, tmp_path):
    directory = shutil.copytree(golden / "before" / "multi-segment-0", tmp_path / "multi-segment-0")
    log = kseg.open_log(directory)
    headers = log.batches()
    assert next(headers).base_offset == 0 and len(log.segments) > 3
    gone = log.segments[2]
    for file in directory.glob(f"{gone.base_offset:020d}.*"):
        file.unlink()
    with pytest.raises(kseg.DataLossError, match="taken away"):
        list(headers)
    for file in directory.glob(f"{log.segments[0].base_offset:020d}.*"):
        file.unlink()
    bases = [segment.base_offset for segment in log.segments]
    fresh = kseg.open_log(directory)
    assert fresh.relisting(lambda: [s.max_timestamp for s in fresh.segments]) and fresh.start_offset == bases[1]
    stale = log.relisting(lambda: [s.max_timestamp for s in log.segments])
    assert len(stale) == len(bases) - 2


def whole_last_segment(log):
    return log.batch(5).segment().batch(5).corrupt(byte=80)


def whole_log(log):
    return log.batch(5).corrupt(byte=80)


@pytest.mark.parametrize(("damaged", "sound"), [(whole_last_segment, 5), (whole_log, 0)])
@pytest.mark.parametrize("most", [None, 3])
def test_a_last_segment_with_nothing_sound_is_told(tmp_path, damaged, sound, most):
    damaged(LogBuilder(tmp_path)).write()
    directory = tmp_path / "orders-0"
    with pytest.raises(kseg.ChecksumError):
        list(kseg.open_log(directory).read())
    reader = kseg.open_log(directory).read(on_corrupt="skip")
    assert len(plain_rows(reader)) == sound
    assert [(damage.start, damage.end) for damage in reader.damages] == [(sound, sound + 5)]
    given = {"path": str(tmp_path), **({} if most is None else {"maxRecordsPerPartition": str(most)})}
    tasks = plan_read(parse_source_options(given))
    with pytest.raises(kseg.ChecksumError):
        [batch for task in tasks for batch in read_splits(task, RECORD_SCHEMA)]
    seen = []
    splits = [split for task in plan_read(parse_source_options({**given, "corrupt": "skip"})) for split in task]
    assert len(plain_rows(b for split in splits for b in read_split(split, RECORD_SCHEMA, SKIP, seen))) == sound
    assert seen == reader.damages
