"""Logs that kseg wrote, under a real broker: served to a real consumer, and appended to."""

from __future__ import annotations

import subprocess
import time

import pytest

import kseg
from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.kafka.jars import class_path, java, kafka_libs
from tests.log.rows import plain_rows
from tests.reference.record import Record
from tests.reference.rows import table_of

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PAST = 3_600_000


def sample_records(first, count, *, step=1):
    """Records with nulls, empties and headers; timestamps out of order, an hour old, so that nothing expires."""
    start = int(time.time() * 1000) - PAST
    return [
        Record(
            first + i * step,
            start + i - (500 if i % 9 == 8 else 0),
            None if i % 5 == 0 else b"" if i % 11 == 0 else b"key-%d" % i,
            None if i % 7 == 0 else b"" if i % 13 == 0 else b"value %d " % i * (i % 40),
            ((b"h", b"%d" % i), (b"h", None), (b"", b"")) if i % 3 == 0 else (),
        )
        for i in range(count)
    ]


def rows(records):
    """As `plain_rows` and a consumer give them."""
    return [
        (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, [(key.decode(), value) for key, value in r.headers])
        for r in records
    ]


def dump_problems(files, *flags):
    """What DumpLogSegments complains of: on stderr, with status 0; holes between offsets are none here."""
    command = [java(), "-cp", class_path(kafka_libs()), "org.apache.kafka.tools.DumpLogSegments", *flags]
    names = ",".join(str(file) for file in files)
    answer = subprocess.run([*command, "--files", names], capture_output=True, text=True, timeout=120, check=True)
    assert answer.stdout.count("Dumping") == len(files)
    assert "isvalid: false" not in answer.stdout
    assert "invalid bytes" not in answer.stdout
    lines = [line for line in answer.stderr.splitlines() if not line.startswith("SLF4J")]
    holes = next((i for i, line in enumerate(lines) if line.startswith("Non-consecutive")), len(lines))
    return lines[:holes]


def assert_dump_finds_nothing(directory):
    """Every file of a partition, deep, and its indexes against its logs."""
    logs, indexes = sorted(directory.glob("*.log")), sorted(directory.glob("*index"))
    others = [file for file in (*indexes, *directory.glob("*.snapshot")) if file.suffix in (".txnindex", ".snapshot")]
    indexes = [file for file in indexes if file not in others]
    assert dump_problems([*logs, *others], "--deep-iteration") == []
    assert dump_problems(indexes, "--verify-index-only") == []
    assert dump_problems(indexes, "--index-sanity-check") == []


@pytest.fixture(scope="module")
def stopped(broker_factory):
    """A broker with two empty topics, shut down cleanly."""
    broker = broker_factory()
    config = {"retention.ms": -1, "index.interval.bytes": 1000}
    with broker:
        for topic in ("placed", "crashed"):
            broker.create_topic(topic, config=config)
        with pytest.raises(kseg.LockedError, match="in use"):
            kseg.append_to(broker.partition_dir("placed"))
        with pytest.raises(kseg.LockedError, match="in use"):
            kseg.create_log(broker.partition_dir("new"))
    return broker


@pytest.mark.usefixtures("stopped")
def test_the_dump_tool_finds_wrong_indexes(tmp_path):
    with kseg.create_log(tmp_path / "a-0", config=kseg.LogConfig(index_interval_bytes=100)) as writer:
        writer.append(table_of(sample_records(0, 100)), batch_records=2)
    files = [tmp_path / "a-0" / f"{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    for file, byte in zip(files, (3, 7), strict=True):
        data = bytearray(file.read_bytes())
        data[byte] ^= 1
        file.write_bytes(data)
    found = dump_problems(files, "--verify-index-only")
    assert [line.partition(" in :")[0] for line in found if " in :" in line] == [
        "Mismatches",
        "Found timestamp mismatch",
    ]


def test_a_broker_serves_what_kseg_wrote_and_goes_on(stopped):
    broker, directory = stopped, stopped.partition_dir("placed")
    marker = (broker.data_dir / ".kafka_cleanshutdown").read_bytes()
    config = kseg.LogConfig(segment_bytes=200_000, index_interval_bytes=1000)
    visible, aborted = [], []
    with kseg.append_to(directory, config=config) as writer:
        assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
        for codec in CODECS:
            made = sample_records(writer.next_offset + 3, 2000, step=2)  # holes before and between
            writer.append(table_of(made), codec=codec, batch_records=70)
            visible += made
        for producer, commit in ((700_001, True), (700_002, False), (700_001, False), (700_002, True)):
            made = sample_records(writer.next_offset, 150)
            writer.append(table_of(made), codec="lz4", batch_records=40, producer_id=producer, transactional=True)
            late = sample_records(writer.next_offset, 20)
            writer.append(table_of(late))
            writer.roll()
            writer.append_marker(producer, commit=commit, producer_epoch=0)
            (visible if commit else aborted).extend(made)
            visible += late
    visible.sort(key=lambda record: record.offset)
    everything = sorted(visible + aborted, key=lambda record: record.offset)
    assert (broker.data_dir / ".kafka_cleanshutdown").read_bytes() == marker
    assert len(kseg.open_log(directory).segments) > 6
    assert_dump_finds_nothing(directory)
    end = writer.next_offset
    recovery = read_checkpoint(LocalStore(), str(broker.data_dir), CheckpointKind.RECOVERY_POINT)
    assert recovery[TopicPartition("placed", 0)] == end

    with broker:
        assert [tuple(row) for row in broker.consume("placed")] == rows(everything)
        assert [tuple(row) for row in broker.consume("placed", committed=True)] == rows(visible)
        middle = everything[len(everything) // 2].offset
        assert broker.consume("placed", start=middle)[0].offset == middle
        broker.produce("placed", [{"key": b"%d" % i, "value": b"by the broker"} for i in range(500)])
        producer = broker.producer(**{"transactional.id": "writer-test"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("placed", b"aborted by the broker", partition=0)
        producer.flush()
        producer.abort_transaction()
        added = broker.consume("placed", start=end)
        assert [row.offset for row in added] == list(range(end, end + 501))

    with kseg.append_to(directory, config=config) as writer:
        assert (writer.next_offset, writer.truncated_bytes) == (end + 502, 0)
        last = sample_records(writer.next_offset, 300)
        writer.append(table_of(last), codec="zstd")
    log = kseg.open_log(directory)
    assert plain_rows(log.read())[-300:] == rows(last)
    assert len(log.aborted_transactions(0, log.end_offset)) == 3
    epochs = [entry.epoch for entry in log.leader_epochs()]
    assert epochs == sorted(set(epochs))
    assert_dump_finds_nothing(directory)
    with broker:
        served = [tuple(row) for row in broker.consume("placed", committed=True)]
        assert served == rows(visible) + [tuple(row) for row in added[:500]] + rows(last)


def test_a_log_is_written_on_after_the_broker_died(stopped):
    broker, directory = stopped, stopped.partition_dir("crashed")
    broker.start()
    broker.produce("crashed", [{"value": b"%d" % i} for i in range(100)])
    broker.kill()
    assert (directory / f"{0:020d}.index").stat().st_size > 1 << 20  # padded, as the dead broker left it
    with (directory / f"{0:020d}.log").open("ab") as file:
        file.write(bytes(range(50)))
    with kseg.append_to(directory) as writer:
        assert (writer.next_offset, writer.truncated_bytes) == (100, 50)
        writer.append(table_of(sample_records(100, 50)), codec="gzip")
    assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert_dump_finds_nothing(directory)
    with broker:
        assert [row.offset for row in broker.consume("crashed")] == list(range(150))
        broker.produce("crashed", [{"value": b"on"}])
        assert broker.consume("crashed", start=150)[0].value == b"on"
