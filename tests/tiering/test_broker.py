"""A real broker with LocalTieredStorage on directories that kseg offloaded: it serves what only the tier has."""

from __future__ import annotations

import shutil
import time

import pytest

import kseg
from kseg.compaction.remote import RemoteOptions
from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.cli.calls import call
from tests.log.written import bases
from tests.reference.record import Record
from tests.reference.rows import table_of
from tests.tiering.tiered_broker import await_metadata_topic, await_remote_metadata, make_tiered_topic, tier_settings

HOUR_MS = 3_600_000
COUNT = 50
SEGMENTS = 6
TOPICS = {"moved": 2, "moved-tx": 1, "moved-keys": 1}


def records(first, now, name=b"%d".__mod__):
    return [Record(o, now - HOUR_MS + o, name(o), b"x" * 200, ()) for o in range(first, first + COUNT)]


def fill_plain(directory, now, name=b"%d".__mod__):
    made = []
    with kseg.append_to(directory) as writer:
        for number in range(SEGMENTS):
            made += (rows := records(writer.next_offset, now, name))
            writer.append(table_of(rows), batch_records=10)
            if number < SEGMENTS - 1:
                writer.roll()
    return made, made


def fill_few_keys(directory, now):
    """Most records are superseded."""
    return fill_plain(directory, now, lambda offset: b"k%d" % (offset % 70))


def fill_transactions(directory, now):
    """Every second transaction is aborted; each has a segment of its own."""
    made, committed = [], []
    with kseg.append_to(directory) as writer:
        for number in range(SEGMENTS):
            rows = records(writer.next_offset, now)
            writer.append(table_of(rows), batch_records=10, producer_id=7, transactional=True)
            writer.append_marker(7, commit=number % 2 == 0)
            made += rows
            committed += rows if number % 2 == 0 else []
            if number < SEGMENTS - 1:
                writer.roll()
    return made, committed


@pytest.fixture(scope="module")
def offloaded(broker_factory, tmp_path_factory):
    """A stopped broker whose sealed segments kseg has moved to the tier, what was written, and the report."""
    remote = tmp_path_factory.mktemp("remote")
    broker = broker_factory(**tier_settings(remote))
    with broker:
        await_metadata_topic(broker)
        for topic, partitions in TOPICS.items():
            make_tiered_topic(broker, topic, partitions)
    now = int(time.time() * 1000)
    written = {}
    fills = {"moved-tx": fill_transactions, "moved-keys": fill_few_keys}
    for topic, partitions in TOPICS.items():
        fill = fills.get(topic, fill_plain)
        for partition in range(partitions):
            written[topic, partition] = fill(broker.partition_dir(topic, partition), now)
    report = kseg.tiering.offload(
        broker.data_dir,
        str(remote),
        layout="plain",
        delete_local=True,
        metadata=broker.data_dir,
        server_properties=broker.folder / "server.properties",
    )
    return broker, written, report


def test_everything_sealed_is_in_the_tier_alone(offloaded):
    broker, written, report = offloaded
    assert not [refusal for refusal in report.refusals if not refusal.is_usual]
    assert report.segments == report.deleted_segments == len(written) * (SEGMENTS - 1)
    starts = read_checkpoint(LocalStore(), str(broker.data_dir), CheckpointKind.LOG_START)
    for (topic, partition), (rows, _) in written.items():
        assert bases(broker.partition_dir(topic, partition)) == [rows[-COUNT].offset]
        assert starts[TopicPartition(topic, partition)] == 0
        assert not (broker.partition_dir(topic, partition) / ".kseg").exists()
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_a_broker_serves_it_from_the_first_offset_on(offloaded):
    broker, written, _ = offloaded
    with broker:
        for (topic, partition), (rows, committed) in written.items():
            broker.produce(topic, [{"value": b"new", "key": b"new"}], partition)  # waits until it has its leader
            for isolation, expected in ((False, rows), (True, committed)):
                served = broker.consume(topic, partition, committed=isolation, start=0)
                assert [(row.offset, row.key, row.value) for row in served[:-1]] == [
                    (row.offset, row.key, row.value) for row in expected
                ]
                assert served[-1].value == b"new"


def test_a_metadata_topic_that_was_lost_is_rebuilt_from_the_tier(offloaded):
    """Its directories are gone; a broker that started so would move the log starts up, and delete from the tier."""
    broker, written, report = offloaded
    for place in broker.data_dir.glob("__remote_log_metadata-*"):
        shutil.rmtree(place)
    given = ("fsck", report.remote, "--metadata", broker.data_dir, "--rebuild-metadata")
    answer = call(*given, "--yes", "--json")
    assert (answer.status, answer.objects[-1]["summary"]["refusals"]) == (0, [])
    # the broker itself may have copied more meanwhile: what was active when kseg offloaded
    assert answer.objects[-1]["summary"]["segments"] >= report.segments
    assert call(*given, "--yes", "--json").objects[-1]["summary"]["segments"] == 0
    with broker:
        for (topic, partition), (rows, committed) in written.items():
            broker.produce(topic, [{"value": b"newer", "key": b"newer"}], partition)
            for isolation, expected in ((False, rows), (True, committed)):
                served = broker.consume(topic, partition, committed=isolation, start=0)
                assert [(row.offset, row.key, row.value) for row in served[: len(expected)]] == [
                    (row.offset, row.key, row.value) for row in expected
                ]
                assert served[-1].value == b"newer"
    found = kseg.tiering.fsck(report.remote, metadata=broker.data_dir, deep=True)
    assert found.findings == ()


def test_a_broker_serves_what_an_erasure_has_left(offloaded):
    broker, written, report = offloaded
    keys = [b"3", b"51", b"52", b"160"]
    erased = kseg.compaction.erase(broker.data_dir, remote=report.remote, keys=keys, metadata=broker.data_dir)
    assert (erased.failed, erased.refusals, erased.left) == ((), (), 0)
    assert erased.records == sum(row.key in keys for rows, _ in written.values() for row in rows)
    assert len(erased.lingering) == 3 * (len(written) - 1)
    log_size = broker.log_file.stat().st_size
    with broker:
        await_remote_metadata(broker, len(written), since=log_size)
        for (topic, partition), (rows, committed) in written.items():
            broker.produce(topic, [{"value": b"newer", "key": b"newer"}], partition)
            for isolation, expected in ((False, rows), (True, committed)):
                served = broker.consume(topic, partition, committed=isolation, start=0)
                assert [(row.offset, row.key, row.value) for row in served if not row.key.startswith(b"new")] == [
                    (row.offset, row.key, row.value) for row in expected if row.key not in keys
                ]
                assert served[-1].value == b"newer"


def test_a_live_cluster_is_told_of_an_erasure_and_of_compaction(offloaded, tmp_path):
    """From a backup, while the broker runs: it deletes by itself what was replaced, and serves what replaces it."""
    broker, written, report = offloaded
    gone = [b"3", b"51", b"52", b"160", b"7", b"110"]
    for topic, partition in written:
        shutil.copytree(broker.partition_dir(topic, partition), tmp_path / f"{topic}-{partition}")
    active = max(bases(tmp_path / "moved-keys-0"))
    log_size = broker.log_file.stat().st_size
    with broker:
        await_remote_metadata(broker, len(written), since=log_size)
        for topic, partition in written:
            broker.produce(topic, [{"value": b"newest", "key": b"newest"}], partition)
        live = RemoteOptions(bootstrap_server=broker.address)
        where = {"remote": report.remote, "remote_options": live}
        erased = kseg.compaction.erase(tmp_path, keys=gone, topics=["moved", "moved-tx"], **where)
        assert (erased.failed, erased.refusals, erased.left) == ((), (), 0)
        assert erased.records == 2 * 3
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0, "min.compaction.lag.ms": 0}
        (compacted,) = kseg.compaction.compact(tmp_path, topics=["moved-keys"], settings=settings, **where).partitions
        assert (compacted.error, compacted.skipped) == (None, None)
        assert compacted.retired
        for (topic, partition), (rows, committed) in written.items():
            for isolation, expected in ((False, rows), (True, committed)):
                served = broker.consume(topic, partition, committed=isolation, start=0)
                latest = {row.key: row.offset for row in expected if row.offset < active}
                wanted = [row for row in expected if row.key not in gone]
                if topic == "moved-keys":
                    wanted = [row for row in wanted if row.offset >= active or latest[row.key] == row.offset]
                assert [(row.offset, row.key, row.value) for row in served if not row.key.startswith(b"new")] == [
                    (row.offset, row.key, row.value) for row in wanted
                ]
                assert served[-1].value == b"newest"


def test_records_are_written_to_a_live_cluster(broker_factory, tmp_path):
    """From a backup, while the cluster runs; the cluster itself must not copy meanwhile."""
    remote = tmp_path / "remote"
    remote.mkdir()
    broker = broker_factory(**tier_settings(remote))
    config = {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "retention.ms": -1}
    with broker:
        await_metadata_topic(broker)
        broker.create_topic("live", config=config)
    rows, _ = fill_plain(broker.partition_dir("live"), int(time.time() * 1000))
    backup = tmp_path / "backup"
    shutil.copytree(broker.partition_dir("live"), backup / "live-0")
    options = {"layout": "plain", "topics": ["live"], "settings": {"remote.storage.enable": True}}
    with broker:
        options["bootstrap_server"] = broker.address
        report = kseg.tiering.offload(backup, str(remote), **options)
        assert (report.segments, report.refusals) == (SEGMENTS - 1, ())
        assert kseg.tiering.offload(backup, str(remote), **options).segments == 0  # as the topic says
        broker.produce("live", [{"value": b"new"}])
        assert len(broker.consume("live", start=0)) == len(rows) + 1
    found = kseg.tiering.fsck(str(remote), metadata=broker.data_dir, deep=True)
    assert (found.segments, found.findings) == (SEGMENTS - 1, ())
