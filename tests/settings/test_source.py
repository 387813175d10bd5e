"""Whose settings hold for a topic: the order of the sources, and refusals where one is missing."""

from __future__ import annotations

import pytest

import kseg
from kseg.errors import OptionError
from kseg.log.metadata import MetaProperties, PartitionMetadata, write_meta_properties, write_partition_metadata
from kseg.settings.source import SettingsSource, named_topic
from kseg.settings.values import Origin, Refusal
from kseg.types import TopicPartition
from tests.views.support import TOPIC_IDS, config, partition, topic, write

METADATA = "__cluster_metadata"
ORDERS = TopicPartition("orders", 0)


def metadata_dir(tmp_path, *records, cluster="C"):
    root = write(tmp_path / "metadata", METADATA, [topic("orders"), partition("orders"), *records])
    write_meta_properties(str(root), MetaProperties(node_id=9, cluster_id=cluster))
    return root


def properties(tmp_path, **settings):
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()))
    return file


def broker_log(tmp_path, name="broker", *, node_id=1, cluster="C", topic_id=TOPIC_IDS["orders"]):
    directory = tmp_path / name / "orders-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").touch()
    if topic_id is not None:
        write_partition_metadata(str(directory), PartitionMetadata(topic_id))
    if node_id is not None:
        write_meta_properties(str(tmp_path / name), MetaProperties(node_id=node_id, cluster_id=cluster))
    return kseg.open_log(directory)


def resolved(source, name="retention.ms", **options):
    found = source.resolve("orders", [name], **options)
    return str(found) if isinstance(found, Refusal) else (found[name], found.origins[name])


ALL_LEVELS = [
    ("given", 1, Origin.GIVEN),
    ("topic", 2, Origin.TOPIC),
    ("broker", 3, Origin.BROKER),
    ("cluster", 4, Origin.CLUSTER),
    ("file", 5, Origin.FILE),
    ("none", 604_800_000, Origin.DEFAULT),
]


@pytest.mark.parametrize("strongest", range(len(ALL_LEVELS)))
def test_the_strongest_source_wins(tmp_path, strongest):
    levels = [name for name, _, _ in ALL_LEVELS[strongest:]]
    records = [
        *([config("topic", "orders", "retention.ms", "2")] if "topic" in levels else []),
        *([config("broker", "1", "log.retention.ms", "3")] if "broker" in levels else []),
        *([config("broker", "", "log.retention.ms", "4")] if "cluster" in levels else []),
        config("broker", "2", "log.retention.ms", "77"),
    ]
    source = SettingsSource(
        metadata=metadata_dir(tmp_path, *records),
        server_properties=properties(tmp_path, **({"log_retention_ms": 5} if "file" in levels else {})),
        overrides={"retention.ms": 1} if "given" in levels else {},
        topics=["orders"],
    )
    _, value, origin = ALL_LEVELS[strongest]
    assert resolved(source, node_id=1) == (value, origin)


def test_a_stronger_level_beats_a_finer_unit(tmp_path):
    records = [config("broker", "", "log.roll.hours", "2")]
    source = SettingsSource(
        metadata=metadata_dir(tmp_path, *records), server_properties=properties(tmp_path, log_roll_ms=5)
    )
    assert resolved(source, "segment.ms") == (7_200_000, Origin.CLUSTER)


def test_finer_units_of_one_level_win(tmp_path):
    file = properties(tmp_path, log_retention_hours=1, log_retention_minutes=3)
    source = SettingsSource(metadata=metadata_dir(tmp_path), server_properties=file)
    assert resolved(source) == (180_000, Origin.FILE)


def test_without_metadata_the_topics_own_settings_are_unknown(tmp_path):
    source = SettingsSource(server_properties=properties(tmp_path, log_retention_ms=5))
    assert "give the metadata log, or --retention-ms" in resolved(source)
    assert resolved(source, "producer.id.expiration.ms") == (86_400_000, Origin.DEFAULT)


def test_without_the_brokers_file_its_defaults_are_unknown(tmp_path):
    source = SettingsSource(metadata=metadata_dir(tmp_path, config("topic", "orders", "retention.bytes", "7")))
    assert "server.properties, or --retention-ms" in resolved(source)
    assert resolved(source, "retention.bytes") == (7, Origin.TOPIC)
    assert resolved(source, "remote.storage.enable") == (False, Origin.DEFAULT)  # no broker has a say in it


def test_optional_settings_are_assumed_where_unknown(tmp_path):
    source = SettingsSource(overrides={"retention.ms": 9}, topics=["orders"])
    found = source.resolve("orders", ["retention.ms"], optional=["index.interval.bytes"])
    assert dict(found) == {"retention.ms": 9, "index.interval.bytes": 4096}
    assert found.origins["index.interval.bytes"] is Origin.ASSUMED


def test_settings_of_single_brokers_need_the_broker(tmp_path):
    source = SettingsSource(metadata=metadata_dir(tmp_path, config("broker", "1", "log.retention.ms", "3")))
    assert "no meta.properties tells which one this is" in resolved(source)
    assert resolved(source, node_id=1) == (3, Origin.BROKER)


def test_topics_that_the_metadata_does_not_know(tmp_path):
    source = SettingsSource(metadata=metadata_dir(tmp_path), server_properties=properties(tmp_path))
    assert str(source.resolve("other", ["retention.ms"])) == "other: the metadata log knows no such topic"


def test_a_value_that_is_none_is_a_refusal(tmp_path):
    source = SettingsSource(metadata=metadata_dir(tmp_path, config("topic", "orders", "retention.ms", "soon")))
    assert "'soon'" in resolved(source)
    source = SettingsSource(
        metadata=tmp_path / "metadata", server_properties=properties(tmp_path, log_segment_bytes="${x}")
    )
    assert "log.segment.bytes" in resolved(source, "segment.bytes")


def test_internal_segment_bytes_counts_first(tmp_path):
    records = [
        config("topic", "orders", name, size)
        for name, size in [("segment.bytes", "9999"), ("internal.segment.bytes", "99")]
    ]
    assert resolved(SettingsSource(metadata=metadata_dir(tmp_path, *records)), "segment.bytes") == (99, Origin.TOPIC)


def test_values_are_for_named_topics_only():
    with pytest.raises(OptionError, match=r"retention\.ms was given for no topic"):
        SettingsSource(overrides={"retention.ms": 1})


@pytest.mark.parametrize(
    ("name", "topics", "reason"),
    [
        ("orders", None, None),
        ("orders", ["orders"], None),
        ("orders", ["bills"], "not asked for"),
        ("__consumer_offsets", None, "only where it is named"),
        ("__consumer_offsets", ["__consumer_offsets"], None),
        (METADATA, None, "raft"),
        (METADATA, [METADATA], "raft"),
    ],
)
def test_which_topics_are_touched(name, topics, reason):
    refusal = SettingsSource(topics=topics).refuse_topic(name)
    assert (refusal is None) if reason is None else (reason in refusal.reason)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({}, None),
        ({"node_id": None}, None),
        ({"topic_id": None}, None),
        ({"cluster": "D"}, "belongs to cluster D"),
        ({"topic_id": TOPIC_IDS["bills"]}, "its id is"),
        ({"node_id": 2}, "server.properties is of 1"),
    ],
)
def test_directories_of_someone_else(tmp_path, place, reason):
    source = SettingsSource(metadata=metadata_dir(tmp_path), server_properties=properties(tmp_path, node_id=1))
    found = source.resolve_log(broker_log(tmp_path, **place), ["retention.ms"])
    assert (found["retention.ms"] == 604_800_000) if reason is None else (reason in found.reason)


def test_replicas(tmp_path):
    source = SettingsSource(metadata=metadata_dir(tmp_path))
    assert source.replicas_of(ORDERS) == (1, 2, 3)
    assert source.replicas_of(TopicPartition("orders", 1)) is None
    one = broker_log(tmp_path, "one", node_id=1)
    others = [broker_log(tmp_path, "two", node_id=2), broker_log(tmp_path, "three", node_id=None)]
    assert source.replicas_not_among(ORDERS, [one]) == (2, 3)
    assert "brokers 2, 3 hold it too" in str(source.check_replicas(ORDERS, [one], this_replica_only=False))
    assert source.check_replicas(ORDERS, [one], this_replica_only=True) is None
    assert source.check_replicas(ORDERS, [one, *others], this_replica_only=False) is None
    assert SettingsSource().check_replicas(ORDERS, [one], this_replica_only=False) is None


def test_a_path_may_name_its_topic(tmp_path):
    log = broker_log(tmp_path)
    assert named_topic(kseg.open_dir(log.directory)) == "orders"
    assert named_topic(kseg.open_dir(tmp_path / "broker")) is None


def test_metadata_that_is_not_there(tmp_path):
    with pytest.raises(OptionError, match=f"no {METADATA}"):
        SettingsSource(metadata=tmp_path)


def test_golden_metadata_of_a_real_broker(golden):
    source = SettingsSource(metadata=golden / "before")
    found = source.resolve_log(kseg.open_log(golden / "before/compact-plain-0"), ["cleanup.policy"])
    assert (found.policy, found.origins) == ({"compact"}, {"cleanup.policy": Origin.TOPIC})
    assert source.replicas_of(TopicPartition("plain", 1)) == (1,)
