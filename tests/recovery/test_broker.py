"""A real broker dies, its logs are damaged and recovered, and it starts on them and serves what kseg says is there."""

from __future__ import annotations

import random
import shutil

import pytest

import kseg
from tests.log.rows import plain_rows
from tests.recovery.damages import bases_of
from tests.recovery.damages import damage as random_damage
from tests.reference import batch as v2
from tests.scale import FACTOR

SEGMENT_BYTES = 1 << 20
COUNT = 3000
RANDOM = [f"random{number}" for number in range(6)]
MODES = ({}, {"all": True}, {"as_kafka": True}, {"salvage": True})


@pytest.fixture(scope="module")
def died(broker_factory):
    """A broker that was killed, with two topics of several segments each."""
    broker = broker_factory()
    broker.start()
    for topic in ("cut", "salvaged"):
        broker.create_topic(topic, config={"segment.bytes": SEGMENT_BYTES, "retention.ms": -1})
        rows = [{"key": b"%d" % i, "value": b"%d " % i * 300} for i in range(COUNT)]
        broker.produce(topic, rows, **{"batch.size": 20_000})
    for topic, codec in zip(RANDOM, ("producer", "zstd", "lz4") * 2, strict=True):
        small = {"internal.segment.bytes": 20_000, "index.interval.bytes": 256, "compression.type": codec}
        broker.create_topic(topic, config=small | {"retention.ms": -1})
        rows = [{"key": b"%d" % i, "value": b"%d " % i * 20} for i in range(600)]
        broker.produce(topic, rows, **{"batch.size": 2000})
    broker.kill()
    return broker


def damage(directory):
    """Flip a bit in the middle of the second segment, and tear the last one."""
    bases = bases_of(directory)
    assert len(bases) > 2
    path = directory / f"{bases[1]:020d}.log"
    data = bytearray(path.read_bytes())
    entries = v2.walk(bytes(data))[0]
    position, size = entries[len(entries) // 2]
    data[position + size - 1] ^= 4
    path.write_bytes(data)
    with (directory / f"{bases[-1]:020d}.log").open("ab") as file:
        file.write(b"torn" * 10)
    return bases


def damage_at_random(rng, directory):
    """Damage a log and repair it somehow; what is there then, or None where damage has a checksum that fits."""
    done = random_damage(rng, directory)
    mode = rng.choice(MODES)
    try:
        kseg.recover(directory, **mode)
    except kseg.LogError:  # a broker would not start
        kseg.recover(directory, salvage=True)
    try:
        return plain_rows(kseg.open_log(directory).read(read_past_high_watermark=True)), (done, mode)
    except kseg.CorruptRecordError:
        return None, (done, mode)


@pytest.mark.parametrize("seed", range(FACTOR))
def test_a_broker_serves_what_was_damaged_and_recovered_at_random(died, tmp_path, seed):
    shutil.copytree(died.data_dir, tmp_path / "died")
    rng = random.Random(seed)
    expected = {topic: damage_at_random(rng, died.partition_dir(topic)) for topic in RANDOM}
    assert any(rows is not None for rows, _ in expected.values())
    try:
        with died:
            for topic, (rows, done) in expected.items():
                if rows is not None:
                    assert [tuple(row) for row in died.consume(topic)] == rows, done
    finally:
        shutil.rmtree(died.data_dir)
        shutil.copytree(tmp_path / "died", died.data_dir)


def test_a_broker_serves_what_was_recovered(died):
    broker = died
    cut, salvaged = broker.partition_dir("cut"), broker.partition_dir("salvaged")
    assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
    bases = damage(cut)
    damage(salvaged)
    report = kseg.recover(cut)
    assert report.partitions[0].dropped_segments == tuple(bases[2:])
    [told] = kseg.recover(salvaged, salvage=True).partitions
    [(start, end)] = told.lost
    assert told.end_offset == COUNT
    expected = {}
    for topic, directory in (("cut", cut), ("salvaged", salvaged)):
        expected[topic] = plain_rows(kseg.open_log(directory).read(read_past_high_watermark=True))
    assert [row[0] for row in expected["salvaged"]] == [*range(start), *range(end, COUNT)]
    assert [row[0] for row in expected["cut"]] == [*range(len(expected["cut"]))]
    with broker:
        for topic, rows in expected.items():
            assert [tuple(row) for row in broker.consume(topic)] == rows
        broker.produce("cut", [{"value": b"on"}])
        assert broker.consume("cut", start=len(expected["cut"]))[0].value == b"on"
    assert (cut / ".kseg").is_dir()  # a broker leaves it alone
    with pytest.raises(kseg.LogError, match="changed after run"):
        kseg.undo_repair(cut)
    shutil.rmtree(cut / ".kseg")
