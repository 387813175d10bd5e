"""Logs that kseg wrote, opened by Kafka's own classes, and batches that it encoded, decoded by aiokafka."""

from __future__ import annotations

import base64
import random
import shutil

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

import kseg
from kseg.format.builder import BatchOptions, encode_batches
from kseg.index.offset import OffsetIndex
from kseg.index.time import TimeIndex
from kseg.types import Codec
from tests.log.rows import plain_rows
from tests.reference.record import Record
from tests.reference.rows import table_of
from tests.scale import counts

START = 1_700_000_000_000
NOW = START + 600_000  # the oracle's clock
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
KINDS = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def random_records(rng, first, count, hole):
    """Records of all kinds, from offset `first` on, out of order in time."""
    made, offset = [], first
    for _ in range(count):
        offset += rng.randrange(1, 50) if rng.random() < hole else 0
        key = rng.choice([None, b"", b"key-%d" % rng.randrange(50)])
        value = rng.choice([None, b"", rng.randbytes(rng.randrange(1, 300)), b"z" * rng.randrange(2000)])
        headers = tuple((f"h{i}".encode(), rng.choice([None, b"", b"v"])) for i in range(rng.choice([0, 0, 1, 3])))
        made.append(Record(offset, START + rng.randrange(300_000), key, value, headers))
        offset += 1
    return made


def write_random(path, seed, config):
    """A log of many appends: plain, idempotent and transactional, with rolls, reopens and rising epochs."""
    rng = random.Random(seed)
    writer = kseg.create_log(path, config=config, start_offset=rng.choice([0, 1000]), clock=lambda: NOW / 1000)
    epoch, open_producers = 0, set()
    for _ in range(60):
        epoch += rng.random() < 0.05
        if rng.random() < 0.15:
            writer.close()
            writer = kseg.append_to(path, config=config, clock=lambda: NOW / 1000)
        if open_producers and rng.random() < 0.4:
            producer = rng.choice(sorted(open_producers))
            open_producers.discard(producer)
            stamp = START + rng.randrange(300_000)
            writer.append_marker(
                producer, commit=rng.random() < 0.5, coordinator_epoch=3, leader_epoch=epoch, timestamp_ms=stamp
            )
            continue
        who = {}
        if rng.random() < 0.5:
            producer = rng.randrange(6)
            who = {"producer_id": producer, "transactional": producer > 1}
            open_producers |= {producer} if producer > 1 else set()
        records = random_records(rng, writer.next_offset, rng.randrange(1, 60), 0.1)
        batch_records = rng.choice([None, 1, 10])
        writer.append(
            table_of(records), codec=rng.choice(CODECS), batch_records=batch_records, leader_epoch=epoch, **who
        )
    writer.close()


CONFIGS = [
    kseg.LogConfig(segment_bytes=40_000, index_interval_bytes=256),
    kseg.LogConfig(segment_bytes=1 << 20, index_interval_bytes=4096),
    kseg.LogConfig(segment_ms=100_000, index_interval_bytes=0, message_timestamp_type="LogAppendTime"),
    kseg.LogConfig(segment_ms=100_000, segment_index_bytes=120, index_interval_bytes=500),
]


def settings_of(config):
    """The same settings for Kafka's classes."""
    return {
        "internal.segment.bytes": config.segment_bytes,
        "segment.ms": config.segment_ms,
        "segment.index.bytes": config.segment_index_bytes,
        "index.interval.bytes": config.index_interval_bytes,
        "lat": int(config.message_timestamp_type == "LogAppendTime"),
    }


def _bytes(text):
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
@pytest.mark.parametrize("seed", range(counts(3)))
def test_kafka_loads_what_kseg_wrote(oracle, tmp_path, seed, config):
    path = tmp_path / "log" / "written-0"
    write_random(path, seed, config)
    log = kseg.open_log(path)
    expected = {
        "logStart": log.start_offset,
        "logEnd": log.end_offset,
        "lastStable": log.last_stable_offset,
        "segments": [[segment.base_offset, segment.size] for segment in log.segments],
        "producers": [
            [
                p.producer_id,
                p.epoch,
                p.last_sequence,
                p.last_offset,
                p.timestamp,
                p.coordinator_epoch,
                p.txn_first_offset,
            ]
            for p in log.producers()
        ],
        "epochs": [list(entry) for entry in log.leader_epochs()],
    }
    for clean in (True, False):  # with the files as they are, and with everything rebuilt
        copy = tmp_path / f"clean-{clean}" / "written-0"
        shutil.copytree(path, copy)
        assert oracle.load(copy, clean=clean, **settings_of(config)) == expected
        assert_same_lookups(path, copy, log)
        assert {file.name for file in copy.glob("*.snapshot")} >= {file.name for file in path.glob("*.snapshot")}
    dumped = [
        (record[0], record[1], KINDS[batch["tsType"]], _bytes(record[2]), _bytes(record[3]),
         [(name, _bytes(value)) for name, value in record[4]])
        for batch in oracle.dump(path)
        for record in batch["records"]
        if not batch["control"]
    ]  # fmt: skip
    assert plain_rows(log.read()) == dumped


def assert_same_lookups(ours, kafkas, log):
    """Both directories' indexes answer every lookup alike; Kafka has rebuilt its own, or taken ours as they are."""
    rng = random.Random(7)
    for segment in log.segments:
        name = f"{segment.base_offset:020d}"
        offset_indexes, time_indexes = (
            [kind.parse((folder / (name + suffix)).read_bytes(), segment.base_offset) for folder in (ours, kafkas)]
            for kind, suffix in ((OffsetIndex, ".index"), (TimeIndex, ".timeindex"))
        )
        for _ in range(200):
            offset = rng.randrange(segment.base_offset, segment.next_offset + 2)
            assert offset_indexes[0].lookup(offset) == offset_indexes[1].lookup(offset)
            stamp = START + rng.randrange(-10, 310_000)
            assert time_indexes[0].lookup(stamp) == time_indexes[1].lookup(stamp)
        txn = [folder / f"{name}.txnindex" for folder in (ours, kafkas)]
        assert len({path.read_bytes() if path.exists() else b"" for path in txn}) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_reads_large_and_small_batches_of_every_codec(oracle, tmp_path, codec):
    rng = random.Random(codec)
    words = [rng.randbytes(rng.randrange(1, 9)) for _ in range(300)]
    values = [b"".join(rng.choices(words, k=rng.randrange(1, 400))) for _ in range(200)]
    values += [rng.randbytes(100_000), bytes(100_000), b"x"]
    path = tmp_path / "log" / "written-0"
    with kseg.create_log(path, clock=lambda: NOW / 1000) as writer:
        writer.append(pa.table({"value": values}), codec=codec, batch_bytes=1 << 20)
        writer.append(pa.table({"value": values}), codec=codec, batch_records=1)
    batches = oracle.dump(path)
    assert len(batches) == 1 + len(values)
    assert [_bytes(record[3]) for batch in batches for record in batch["records"]] == values * 2


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("config", [CONFIGS[1], CONFIGS[2]], ids=["CreateTime", "LogAppendTime"])
def test_markers_are_those_of_a_broker_byte_for_byte(oracle, tmp_path, config, commit):
    ours, kafkas = tmp_path / "ours" / "marked-0", tmp_path / "kafkas" / "marked-0"
    with kseg.create_log(ours, config=config, clock=lambda: NOW / 1000) as writer:
        writer.append(pa.table({"value": [b"x"]}), producer_id=5, transactional=True)
    shutil.copytree(ours, kafkas)
    decided = NOW - 7000
    oracle.mark(kafkas, 5, 0, decided, commit=commit, now=NOW, **settings_of(config))
    with kseg.append_to(ours, config=config, clock=lambda: NOW / 1000) as writer:
        writer.append_marker(5, commit=commit, timestamp_ms=decided)
    name = f"{0:020d}.log"
    assert (ours / name).read_bytes() == (kafkas / name).read_bytes()


def test_kafka_answers_times_as_kseg_does(oracle, tmp_path):
    path = tmp_path / "log" / "written-0"
    write_random(path, 5, CONFIGS[0])
    log = kseg.open_log(path)
    targets = random.Random(1).sample(range(START - 1000, START + 301_000), 100)
    shutil.copytree(path, tmp_path / "copy" / "written-0")
    found = oracle.times(tmp_path / "copy" / "written-0", targets, **settings_of(CONFIGS[0]))
    assert [log.offset_for_time(target) for target in targets] == [answer and tuple(answer) for answer in found]


def test_kafka_recovers_what_a_dead_writer_left(oracle, tmp_path):
    config = CONFIGS[0]
    rng = random.Random(3)
    with kseg.create_log(tmp_path / "log" / "died-0", config=config, clock=lambda: NOW / 1000) as writer:
        for _ in range(8):
            writer.append(table_of(random_records(rng, writer.next_offset, 50, 0.1)), batch_records=5)
        writer.append(table_of(random_records(rng, writer.next_offset, 5, 0)), producer_id=3, transactional=True)
        writer.append_marker(3, commit=False)
        shutil.copytree(writer.path, tmp_path / "crash" / "died-0")
        end = writer.next_offset
    for clean in (True, False):  # a missing .index makes Kafka rebuild the segment, whatever the marker says
        copy = tmp_path / f"clean-{clean}" / "died-0"
        shutil.copytree(tmp_path / "crash" / "died-0", copy)
        assert oracle.load(copy, clean=clean, **settings_of(config))["logEnd"] == end
        assert_same_lookups(tmp_path / "log" / "died-0", copy, kseg.open_log(tmp_path / "log" / "died-0"))


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_decodes_what_kseg_encodes(codec):
    rng = random.Random(codec)
    records = random_records(rng, 40, 300, 0.1)
    options = BatchOptions(
        codec=Codec.parse(codec), batch_records=50, leader_epoch=3, producer_id=8, producer_epoch=2, base_sequence=5,
        is_transactional=True,
    )  # fmt: skip
    encoded = encode_batches(table_of(records), first_offset=0, options=options, now_ms=0)
    decoded, position = [], 0
    raw = encoded.data.tobytes()
    while position < len(raw):
        size = int.from_bytes(raw[position + 8 : position + 12], "big") + 12
        batch = DefaultRecordBatch(raw[position : position + size])
        assert batch.validate_crc()
        assert (batch.producer_id, batch.producer_epoch, batch.is_transactional) == (8, 2, True)
        decoded += [
            Record(r.offset, r.timestamp, r.key, r.value, tuple((k.encode(), v) for k, v in r.headers)) for r in batch
        ]
        position += size
    assert decoded == records


def test_aiokafka_decodes_a_written_log(tmp_path):
    with kseg.create_log(tmp_path / "a-0", clock=lambda: NOW / 1000) as writer:
        writer.append(pa.table({"value": ["x", None], "key": [None, "k"]}), codec="zstd")
    batch = DefaultRecordBatch((tmp_path / "a-0" / f"{0:020d}.log").read_bytes())
    assert [(r.offset, r.timestamp, r.key, r.value) for r in batch] == [(0, NOW, None, b"x"), (1, NOW, b"k", None)]
