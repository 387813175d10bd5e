"""Which logs a reader gets: by path, by topic, and once for each partition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.errors import LogError, OptionError, StorageError
from kseg.internal.cluster_metadata import RECORDS
from kseg.log.metadata_log import read_image
from kseg.log.names import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, snapshot_file_name
from kseg.log.partition import Log, open_log
from kseg.log.select import choose_replicas, find_internal_logs, select_logs
from kseg.options import parse_source_options
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.builders import LogBuilder
from tests.reference.record import Record

OLD, NEW, OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"
TOPIC, REMOVE, BEGIN, END, ABORT = 2, 9, 23, 24, 25


def select(*paths, **options):
    """Names of the partitions found, and in which directory when there is a choice."""
    return [f"{log.topic}-{log.partition}" for log in select_logs(paths, parse_source_options(options))]


def make(root: Path, topic="orders", partition=0, *, records=5, topic_id=None, epoch=None) -> Path:
    path = LogBuilder(root, topic, partition).batch(records).write()
    if topic_id is not None:
        (path / PARTITION_METADATA_FILE).write_text(f"version: 0\ntopic_id: {topic_id}")
    if epoch is not None:
        (path / LEADER_EPOCH_FILE).write_text(f"0\n1\n{epoch} 0\n")
    return path


def metadata_log(root: Path, *frames, base=0) -> Path:
    """A metadata log of records, each an api key and its fields."""
    builder = LogBuilder(root, "__cluster_metadata", 0).segment(base)
    for key, fields in frames:
        builder.record(None, RECORDS.encode_value(key, 0, fields))
    return builder.write()


def topic_record(name, topic_id):
    return TOPIC, {"name": name, "topicId": topic_id}


# --- by path ----------------------------------------------------------------------------------------------------------


def test_a_log_directory_gives_every_topic_but_the_internal_ones(golden):
    found = select(golden / "before")
    assert found == sorted(found)
    assert {"plain-0", "plain-1", "tx-1", "retained-0"} <= set(found)
    assert not [name for name in found if name.startswith("__")]
    assert len(found) == 20


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}"])
def test_a_partition_a_topic_and_a_tree_are_paths_too(tmp_path, form):
    make(tmp_path / "tree/broker/orders", partition=0)
    make(tmp_path / "tree/broker/orders", partition=1)
    make(tmp_path / "tree/other", "returns")
    for below, wanted in [
        ("tree/broker/orders/orders-1", ["orders-1"]),
        ("tree/broker/orders", ["orders-0", "orders-1"]),
        ("tree", ["orders-0", "orders-1", "returns-0"]),
    ]:
        assert select(form.format(tmp_path / below)) == wanted


def test_a_partition_of_an_internal_topic_is_read_when_it_is_the_path(golden):
    assert select(golden / "before/__consumer_offsets-0") == ["__consumer_offsets-0"]


def test_a_partition_may_have_a_name_of_its_own(tmp_path):
    shutil.move(make(tmp_path), tmp_path / "backup")
    assert select(tmp_path / "backup") == ["backup-0"]


def test_paths_that_hold_nothing_are_errors(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/server.log").write_text("no segment")
    with pytest.raises(LogError, match="no partitions to read here"):
        select(tmp_path / "empty")
    with pytest.raises(StorageError, match="missing"):
        select(tmp_path / "missing")
    with pytest.raises(OptionError, match="no path is given"):
        select()
    with pytest.raises(OptionError, match="paths is a list"):
        select_logs(str(tmp_path), parse_source_options({}))


def test_what_a_broker_set_aside_is_not_read(tmp_path):
    make(tmp_path)
    shutil.move(make(tmp_path, "gone"), tmp_path / "gone-0.0123456789abcdef0123456789abcdef-delete")
    assert select(tmp_path) == ["orders-0"]


class ClosedStore(LocalStore):
    """Plain paths, of which one may not be read."""

    def list(self, path):
        if path.endswith("returns-0"):
            raise StorageError("permission denied", path=path)
        return super().list(path)


def test_a_directory_that_cannot_be_read_is_an_error_where_it_is_wanted(tmp_path, monkeypatch):
    make(tmp_path)
    make(tmp_path, "returns")
    monkeypatch.setattr("kseg.log.select.open_store", lambda path: (ClosedStore(), str(path)))
    assert select(tmp_path, subscribe="orders") == ["orders-0"]
    for options in ({}, {"subscribe": "orders,returns"}, {"subscribePattern": "."}):
        with pytest.raises(StorageError, match="returns-0: permission denied"):
            select(tmp_path, **options)


# --- by topic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subscribe": "plain"}, ["plain-0", "plain-1"]),
        ({"subscribe": "tx, plain"}, ["plain-0", "plain-1", "tx-0", "tx-1"]),
        ({"subscribe": "__transaction_state"}, ["__transaction_state-0", "__transaction_state-1"]),
        ({"subscribePattern": "^rd-"}, ["rd-gzip-0", "rd-lz4-0", "rd-snappy-0", "rd-zstd-0"]),
        ({"subscribePattern": "z4"}, ["java-lz4-0", "rd-lz4-0"]),
        ({"subscribePattern": "offsets|state|metadata"}, []),
        ({"assign": '{"plain":[1],"tx":[0]}'}, ["plain-1", "tx-0"]),
    ],
)
def test_topics_by_name_pattern_and_partition(golden, options, wanted):
    assert select(golden / "before", **options) == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "plain,nope,nada"}, "subscribed topics that are not here: nada, nope"),
        ({"assign": '{"plain":[0,7]}'}, "assigned partitions that are not here: plain-7"),
    ],
)
def test_topics_and_partitions_that_are_not_there_are_named(golden, options, message):
    with pytest.raises(LogError, match=message):
        select(golden / "before", **options)


# --- once for each partition ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "winner"),
    [
        ({"epoch": 3, "records": 9}, {"epoch": 4, "records": 5}, "two"),
        ({"epoch": 4, "records": 5}, {"epoch": 4, "records": 9}, "two"),
        ({"epoch": 4, "records": 9}, {"epoch": 4, "records": 9}, "one"),
        ({"records": 5}, {"records": 9}, "two"),
        ({"topic_id": NEW, "records": 5}, {"records": 9}, "two"),
    ],
)
def test_the_replica_that_knows_most_is_read(tmp_path, one, two, winner):
    make(tmp_path / "one", **one)
    make(tmp_path / "two", **two)
    make(tmp_path / "two", partition=1)
    logs = select_logs([tmp_path / "one", tmp_path / "two"], parse_source_options({"subscribe": "orders"}))
    assert [log.directory for log in logs] == [str(tmp_path / winner / "orders-0"), str(tmp_path / "two/orders-1")]
    swapped = select_logs([tmp_path / "two", tmp_path / "one"], parse_source_options({"subscribe": "orders"}))
    if one != two:
        assert [log.directory for log in swapped] == [log.directory for log in logs]


def test_a_directory_that_is_reached_twice_is_one(tmp_path):
    make(tmp_path)
    logs = select_logs([tmp_path, tmp_path / "orders-0", f"file://{tmp_path}"], parse_source_options({}))
    assert [log.directory for log in logs] == [str(tmp_path / "orders-0")]


@pytest.fixture
def two_incarnations(tmp_path):
    """A longer old topic and a new one, on two disks."""
    make(tmp_path / "one", topic_id=OLD, records=9, epoch=7)
    make(tmp_path / "two", topic_id=NEW, records=5, epoch=0)
    make(tmp_path / "two", "returns", topic_id=OTHER)
    return [tmp_path / "one", tmp_path / "two"]


def test_two_incarnations_are_an_error_that_names_both(two_incarnations):
    with pytest.raises(LogError, match=f"orders is here in 2 incarnations.*one/orders-0 .{OLD}.*two/orders-0 .{NEW}"):
        select(*two_incarnations)
    assert select(*two_incarnations, subscribe="returns") == ["returns-0"]


def test_incarnations_are_of_topics_and_not_of_partitions(tmp_path):
    make(tmp_path / "one", partition=0, topic_id=OLD)
    make(tmp_path / "two", partition=1, topic_id=NEW)
    with pytest.raises(LogError, match="2 incarnations"):
        select(tmp_path / "one", tmp_path / "two")


def test_the_metadata_log_tells_which_incarnation_is_current(two_incarnations):
    metadata_log(
        two_incarnations[0], topic_record("orders", OLD), (REMOVE, {"topicId": OLD}), topic_record("orders", NEW)
    )
    logs = select_logs(two_incarnations, parse_source_options({"subscribe": "orders"}))
    assert [log.topic_id for log in logs] == [NEW]


def test_a_metadata_log_that_knows_neither_does_not_help(two_incarnations):
    metadata_log(two_incarnations[0], topic_record("orders", OTHER))
    with pytest.raises(LogError, match="2 incarnations"):
        select(*two_incarnations)


def test_a_log_without_an_id_counts_where_its_partition_has_no_other(tmp_path):
    make(tmp_path / "one", partition=0, topic_id=OLD)
    make(tmp_path / "one", partition=1, records=9)
    make(tmp_path / "two", partition=0, topic_id=NEW)
    make(tmp_path / "two", partition=2)
    make(tmp_path / "two", partition=1, topic_id=NEW)
    metadata_log(tmp_path / "one", topic_record("orders", NEW))
    logs = select_logs([tmp_path / "one", tmp_path / "two"], parse_source_options({"subscribe": "orders"}))
    assert [(Path(log.directory).parent.name, log.partition) for log in logs] == [("two", 0), ("two", 1), ("two", 2)]


# --- topic ids from the metadata log ----------------------------------------------------------------------------------


def current_ids(log):
    return {name: topic.topic_id for name, topic in read_image(log).topics.items()}


def test_topic_ids_of_a_real_metadata_log(golden):
    ids = current_ids(open_log(golden / "before/__cluster_metadata-0"))
    for log in select_logs([golden / "before"], parse_source_options({})):
        assert ids[log.topic] == log.topic_id


def test_topic_ids_come_from_the_newest_snapshot_and_what_is_behind_it(tmp_path):
    path = metadata_log(tmp_path, topic_record("c", OTHER), base=100)
    write_snapshot(path, 50, topic_record("a", OTHER), topic_record("z", OTHER))
    write_snapshot(path, 100, topic_record("a", OLD), topic_record("b", NEW))
    (path / (snapshot_file_name(200, 1) + ".part")).write_bytes(b"torn")
    assert current_ids(open_log(path)) == {"a": OLD, "b": NEW, "c": OTHER}


def write_snapshot(path: Path, end_offset: int, *frames) -> None:
    scratch = LogBuilder(path.parent)
    scratch.batch([Record(i, 0, None, RECORDS.encode_value(key, 0, fields)) for i, (key, fields) in enumerate(frames)])
    scratch.control(4, producer_id=-1)  # the footer, without which a snapshot is not complete
    (path / snapshot_file_name(end_offset, 1)).write_bytes(scratch.segments[0].data)


def test_records_of_metadata_transactions_count_when_these_end(tmp_path):
    path = metadata_log(
        tmp_path,
        (BEGIN, {}),
        topic_record("a", OLD),
        (END, {}),
        (BEGIN, {}),
        topic_record("b", OLD),
        (ABORT, {}),
        topic_record("c", NEW),
        (BEGIN, {}),
        topic_record("d", OTHER),
    )
    assert current_ids(open_log(path)) == {"a": OLD, "c": NEW}


# --- internal topics --------------------------------------------------------------------------------------------------


def test_internal_logs_are_found_in_the_paths_and_beside_the_logs(golden, tmp_path):
    def names(logs: list[Log]) -> list[str]:
        return [Path(log.directory).name for log in logs]

    before = golden / "before"
    both = ["__consumer_offsets-0", "__consumer_offsets-1"]
    assert names(find_internal_logs("__consumer_offsets", [before], [])) == both
    assert names(find_internal_logs("__consumer_offsets", [], [open_log(before / "plain-0")])) == both
    assert names(find_internal_logs("__consumer_offsets", [before], [open_log(before / "plain-0")])) == both
    assert find_internal_logs("__consumer_offsets", [], [open_log(make(tmp_path))]) == []


def test_choosing_replicas_gives_partitions_in_order(tmp_path):
    logs = [open_log(make(tmp_path, topic, number)) for topic, number in [("b", 0), ("a", 10), ("a", 2)]]
    assert [TopicPartition(log.topic, log.partition) for log in choose_replicas(logs)] == [
        TopicPartition("a", 2),
        TopicPartition("a", 10),
        TopicPartition("b", 0),
    ]
