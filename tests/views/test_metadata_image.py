"""Replay of the metadata log: each record that changes the image, transactions, snapshots."""

from __future__ import annotations

import logging

import pytest

import kseg
from kseg.errors import CorruptRecordError, LogError
from kseg.log.metadata_image import MetadataImage
from kseg.views.metadata_log import find_image, read_image
from tests.views.support import (
    TOPIC_IDS,
    change,
    config,
    metadata,
    partition,
    topic,
    write,
    write_metadata_log,
    write_snapshot,
)

TOPIC = "__cluster_metadata"
BEGIN = metadata("BeginTransactionRecord", name="t")
END, ABORT = metadata("EndTransactionRecord"), metadata("AbortTransactionRecord", reason="r")


def replayed(*records):
    image = MetadataImage()
    for offset, record in enumerate(records):
        image.replay(record, offset)
    return image


def broker(number, *, epoch=7, version=4, **fields):
    value = {
        "brokerId": number,
        "isMigratingZkBroker": False,
        "incarnationId": "AAAAAAAAAAAAAAAAAAAAAQ",
        "brokerEpoch": epoch,
        "endPoints": [{"name": "PLAINTEXT", "host": "h", "port": 9092, "securityProtocol": 0}],
        "features": [],
        "rack": "r1",
        "fenced": True,
        "inControlledShutdown": False,
    }
    return metadata("RegisterBrokerRecord", version=version, **(value | fields))


def test_partition_changes():
    image = replayed(topic("orders"), partition("orders"), change("orders", isr=[1]))
    found = image.topics["orders"].partitions[0]
    assert (found.isr, found.leader, found.leader_epoch, found.partition_epoch) == ((1,), 1, 0, 1)
    image.replay(change("orders", leader=1))  # the same leader, in a new term
    image.replay(change("orders", leader=-1, isr=[], eligibleLeaderReplicas=[1], lastKnownElr=[2]))
    found = image.topics["orders"].partitions[0]
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (-1, 2, 3)
    assert (found.isr, found.elr, found.last_known_elr, found.replicas) == ((), (1,), (2,), (1, 2, 3))
    image.replay(change("orders", eligibleLeaderReplicas=[], leaderRecoveryState=1))
    found = image.topics["orders"].partitions[0]
    assert (found.elr, found.last_known_elr, found.leader_recovery_state) == ((), (2,), 1)


def test_reassignment_is_not_under_replication():
    image = replayed(topic("orders"), partition("orders"))
    image.replay(change("orders", replicas=[1, 2, 3, 4], addingReplicas=[4], removingReplicas=[1]))
    found = image.topics["orders"].partitions[0]
    assert (found.adding, found.removing, found.is_under_replicated) == ((4,), (1,), False)
    image.replay(change("orders", isr=[1, 2]))
    assert image.topics["orders"].partitions[0].is_under_replicated


def test_clear_elr_of_one_topic_and_of_all():
    records = [topic("orders"), topic("bills")]
    records += [partition(name, eligibleLeaderReplicas=[2], lastKnownElr=[3]) for name in ("orders", "bills")]
    image = replayed(*records, metadata("ClearElrRecord", topicName="bills"))
    assert image.topics["bills"].partitions[0].elr == ()
    assert image.topics["orders"].partitions[0].elr == (2,)
    image.replay(metadata("ClearElrRecord", topicName=""))
    found = image.topics["orders"].partitions[0]
    assert (found.elr, found.last_known_elr, found.partition_epoch) == ((), (), 0)


def test_a_removed_topic_takes_its_settings_along():
    image = replayed(topic("orders"), partition("orders"), config("topic", "orders", "retention.ms", "1"))
    assert image.topic_by_id(TOPIC_IDS["orders"]) is image.topics["orders"]
    image.replay(metadata("RemoveTopicRecord", topicId=TOPIC_IDS["orders"]))
    assert (image.topics, image.configs, image.topic_by_id(TOPIC_IDS["orders"])) == ({}, {}, None)


def test_settings():
    image = replayed(
        config("topic", "orders", "retention.ms", "1"),
        config("broker", "", "retention.ms", "2"),
        config("broker", "", "min.insync.replicas", "2"),
        config("broker", "3", "min.insync.replicas", "9"),
    )
    assert image.setting("orders", "retention.ms") == "1"
    assert image.setting("bills", "retention.ms") == "2"
    assert image.setting("bills", "cleanup.policy") is None
    assert (image.min_isr("orders"), MetadataImage().min_isr("orders")) == (2, None)
    image.replay(config("topic", "orders", "retention.ms", None))
    assert image.topic_configs("orders") == {}
    assert image.configs["broker", "3"] == {"min.insync.replicas": "9"}


def test_brokers_and_features():
    image = replayed(broker(1), broker(2, fenced=False, logDirs=["AAAAAAAAAAAAAAAAAAAAAg"]))
    image.replay(metadata("BrokerRegistrationChangeRecord", 3, brokerId=1, brokerEpoch=7, fenced=-1))
    image.replay(metadata("BrokerRegistrationChangeRecord", 3, brokerId=2, brokerEpoch=7, inControlledShutdown=1))
    assert [image.brokers[number].fenced for number in (1, 2)] == [False, False]
    assert image.brokers[2].in_controlled_shutdown
    assert image.brokers[2].log_dirs == ("AAAAAAAAAAAAAAAAAAAAAg",)
    image.replay(metadata("FenceBrokerRecord", id=1, epoch=7))
    assert image.brokers[1].fenced
    image.replay(metadata("UnfenceBrokerRecord", id=1, epoch=7))
    assert not image.brokers[1].fenced
    image.replay(metadata("UnregisterBrokerRecord", brokerId=1, brokerEpoch=7))
    assert set(image.brokers) == {2}
    image.replay(metadata("FeatureLevelRecord", name="metadata.version", featureLevel=30))
    image.replay(metadata("FeatureLevelRecord", name="group.version", featureLevel=1))
    image.replay(metadata("FeatureLevelRecord", name="group.version", featureLevel=0))
    assert image.features == {"metadata.version": 30}


@pytest.mark.parametrize(("end", "names"), [([END], {"orders", "bills"}), ([ABORT], {"orders"}), ([], {"orders"})])
def test_metadata_transactions(tmp_path, end, names):
    write(tmp_path, TOPIC, [topic("orders"), BEGIN, topic("bills"), partition("bills"), *end])
    image = find_image(kseg.open_dir(tmp_path))
    assert set(image.topics) == names
    assert image.end_offset == 4 + len(end)


@pytest.mark.parametrize(
    "records",
    [
        [partition("orders")],
        [topic("orders"), change("orders")],
        [metadata("RemoveTopicRecord", topicId=TOPIC_IDS["bills"])],
        [metadata("ClearElrRecord", topicName="bills")],
        [metadata("FenceBrokerRecord", id=1, epoch=1)],
        [BEGIN, BEGIN],
        [END],
        [ABORT],
    ],
)
def test_contradictions_name_the_place(tmp_path, records):
    write(tmp_path, TOPIC, [metadata("NoOpRecord"), *records])
    with pytest.raises(CorruptRecordError) as caught:
        find_image(kseg.open_dir(tmp_path))
    assert caught.value.offset == len(records)
    assert caught.value.path == str(tmp_path / f"{TOPIC}-0")


def test_unknown_records_are_kept(tmp_path, caplog):
    write(tmp_path, TOPIC, [(None, b"\x01\x7f\x00?"), topic("orders"), (None, b"\x01\x02\x63?")])
    with caplog.at_level(logging.WARNING):
        image = find_image(kseg.open_dir(tmp_path))
    assert [record["reason"] for record in image.unknown] == ["api key 127", "version 99 of TopicRecord"]
    assert set(image.topics) == {"orders"}
    assert "2 metadata records are not known" in caplog.text


def metadata_log(root, *, start, count):
    """A log from `start` on, of records that say nothing, and one that makes a topic at the end."""
    records = [*([metadata("NoOpRecord")] * (count - 1)), topic("bills")]
    return write_metadata_log(root, records, start=start)


def test_the_newest_snapshot_and_the_log_behind_it(tmp_path):
    directory = metadata_log(tmp_path, start=10, count=10)
    write_snapshot(directory, 10, [topic("orders"), metadata("FeatureLevelRecord", name="old", featureLevel=1)])
    write_snapshot(directory, 15, [topic("orders"), partition("orders")])
    image = read_image(kseg.open_log(directory))
    assert set(image.topics) == {"orders", "bills"}
    assert (image.features, image.end_offset) == ({}, 20)
    assert 0 in image.topics["orders"].partitions


@pytest.mark.parametrize("damage", ["no footer", "cut", "part"])
def test_an_incomplete_snapshot_is_passed_over(tmp_path, damage):
    directory = metadata_log(tmp_path, start=10, count=10)
    write_snapshot(directory, 12, [topic("orders")])
    write_snapshot(directory, 15, [metadata("NoOpRecord")], footer=damage != "no footer")
    newest = directory / "00000000000000000015-0000000001.checkpoint"
    if damage == "cut":
        newest.write_bytes(newest.read_bytes()[:-5])
    elif damage == "part":
        newest.rename(f"{newest}.part")
    assert set(read_image(kseg.open_log(directory)).topics) == {"orders", "bills"}


def test_a_snapshot_ahead_of_the_log_is_enough(tmp_path):
    directory = metadata_log(tmp_path, start=10, count=2)
    write_snapshot(directory, 30, [topic("orders")])
    image = read_image(kseg.open_log(directory))
    assert (set(image.topics), image.end_offset) == ({"orders"}, 30)


def test_a_gap_is_an_error(tmp_path):
    directory = metadata_log(tmp_path, start=10, count=2)
    write_snapshot(directory, 8, [topic("orders")])
    with pytest.raises(LogError, match="offsets 8 to 9 is missing"):
        read_image(kseg.open_log(directory))


def test_golden_image(golden):
    image = find_image(kseg.open_dir(golden / "before"))
    assert image.end_offset == 304
    assert image.features["metadata.version"] == 30
    (known,) = image.brokers.values()
    assert (known.broker_id, known.epoch, len(known.log_dirs)) == (1, 12, 1)
    assert image.unknown == []
    assert image.setting("plain", "retention.ms") == "-1"
