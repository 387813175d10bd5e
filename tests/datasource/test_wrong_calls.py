"""Calls that are wrong, without a session: each ends in one line that says what, and what to do."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

import kseg
from kseg.datasource.planning import plan_read
from kseg.datasource.source import KsegDataSource
from kseg.options import option_map, parse_source_options
from kseg.storage import LocalStore, RateLimiter
from tests.builders import LogBuilder
from tests.views.support import TOPIC_IDS, commit, partition, topic, write, write_metadata_log


def read_view(path, view, schema=None, **options):
    source = KsegDataSource({"path": str(path), "view": view, **options})
    found = source.schema() if schema is None else StructType().add(*schema)
    return source.reader(found).partitions()


@pytest.mark.parametrize(
    ("view", "schema", "message"),
    [
        ("batches", ("colour", StringType()), "unknown column 'colour'; valid values are topic, partition"),
        ("batches", ("topic", LongType()), "column 'topic' of the view batches is string, not bigint"),
        (
            "topics",
            ("replicas", ArrayType(StringType())),
            "column 'replicas' of the view topics is array<int>, not array<string>",
        ),
    ],
)
def test_a_schema_that_a_view_does_not_have(golden, view, schema, message):
    with pytest.raises(kseg.OptionError, match=message):
        read_view(golden / "before", view, schema)


@pytest.mark.parametrize("view", ["offsets", "groups", "topics", "transactions"])
def test_a_view_of_an_empty_directory(tmp_path, view):
    with pytest.raises(kseg.LogError, match="no partitions to read here; 'kseg ls' lists"):
        read_view(tmp_path, view)


@pytest.mark.parametrize("view", ["offsets", "groups", "transactions", "topics"])
def test_views_of_two_incarnations_ask_the_metadata_log_too(tmp_path, view):
    """Replicas were chosen before the view itself chose, without the metadata log that was there."""
    for name, topic_id, count in ("one", "AAAAAAAAAAAAAAAAAAAAbA", 9), ("two", TOPIC_IDS["orders"], 5):
        with kseg.create_log(tmp_path / name / "orders-0", topic_id=topic_id) as writer:
            writer.append(pa.table({"value": [b"v"] * count}))
    write(tmp_path / "one", "__consumer_offsets", [commit("g", "orders", 0, 2)])
    options = {"columns": "group,lag"} if view == "offsets" else {}
    with pytest.raises(kseg.LogError, match=r"2 incarnations|needs __cluster_metadata"):
        read_view(tmp_path, view)
    write_metadata_log(tmp_path / "one", [topic("orders"), partition("orders")])
    source = KsegDataSource({"path": str(tmp_path), "view": view, **options})
    reader = source.reader(source.schema())
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    if view == "offsets":
        assert rows == [{"group": "g", "lag": 3}]


@pytest.mark.parametrize("view", ["offsets", "groups", "transactions", "topics"])
def test_a_directory_that_a_view_cannot_read_is_not_left_out(golden, monkeypatch, view):
    """A view of what was left had fewer groups, and said nothing."""

    class ClosedStore(LocalStore):
        def list(self, path):
            if path.endswith("__consumer_offsets-0"):
                raise kseg.StorageError("permission denied", path=path)
            return super().list(path)

    monkeypatch.setattr("kseg.tiering.reading.open_store", lambda path: (ClosedStore(), str(path)))
    with pytest.raises(kseg.StorageError, match="__consumer_offsets-0: permission denied"):
        read_view(golden / "before", view)


@pytest.mark.parametrize(
    ("view", "topic"),
    [("offsets", "__consumer_offsets"), ("groups", "__consumer_offsets"), ("topics", "__cluster_metadata")],
)
def test_a_view_without_the_topic_that_it_is_of(tmp_path, view, topic):
    LogBuilder(tmp_path).batch(5).write()
    with pytest.raises(kseg.LogError, match=f"view {view} needs {topic}, which is not here; give the log directories"):
        read_view(tmp_path, view)


def test_any_columns_of_a_view_in_any_order(golden):
    assert read_view(golden / "before", "topics", ("replicas", ArrayType(IntegerType())))
    assert read_view(golden / "before", "offsets", columns="lag,group")


@pytest.mark.parametrize("name", ["topik", "by", "target"])
def test_a_keyword_that_is_no_option_is_refused(tmp_path, name):
    with pytest.raises(kseg.OptionError, match=f"unknown option '{name}'; docs/spark.md lists"):
        kseg.scan(None, tmp_path, **{name: "x"})


def test_a_keyword_that_is_nearly_an_option_is_told(tmp_path):
    with pytest.raises(kseg.OptionError, match="did you mean 'startingOffsets'"):
        kseg.scan(None, tmp_path, startingOfsets="earliest")


def test_keywords_of_the_kafka_source_are_taken(tmp_path):
    given = option_map(tmp_path, None, None, {"kafka_bootstrap_servers": "x:1", "groupIdPrefix": "a"})
    assert parse_source_options(given).notes


def test_columns_may_be_a_text_as_topics_may():
    assert parse_source_options(option_map("data", "a,b", "offset, key", {})).columns == ("offset", "key")


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"startingOffsets": {"orders": {0: 5, 1: -2}}}, {"startingOffsets": '{"orders": {"0": 5, "1": -2}}'}),
        ({"assign": {"orders": [0, 1]}}, {"assign": '{"orders": [0, 1]}'}),
        ({"subscribe": ["a", "b"], "minPartitions": 3}, {"subscribe": "a,b", "minPartitions": "3"}),
        ({"remoteKeys": {"k1": "one.pem", "k2": "two.pem"}}, {"remoteKeys": "k1=one.pem,k2=two.pem"}),
        ({"failOnDataLoss": False, "startingOffsets": None}, {"failOnDataLoss": "false"}),
    ],
)
def test_keywords_take_values_of_python(options, given):
    """A dict was written out in Python's way, and refused as no JSON."""
    assert option_map("data", None, None, options) == {"paths": '["data"]', **given}
    parse_source_options(option_map("data", None, None, options))


@pytest.mark.parametrize(
    ("topics", "options", "message"),
    [
        ("a", {"subscribe": "b"}, "option subscribe is an argument of the call already"),
        (None, {"path": "elsewhere"}, "option path is an argument of the call already"),
        (None, {"assign": {"a": {1, 2}}}, "option assign is no JSON"),
    ],
)
def test_keywords_that_say_a_thing_twice_or_nothing(topics, options, message):
    """`subscribe` took the place of `topics`, and `path` that of the path, without a word."""
    with pytest.raises(kseg.OptionError, match=message):
        option_map("data", topics, None, options)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("offset long, offset long", "none twice: offset, offset"),
        ("", "at least one column"),
        ("value binary not null", "column 'value' can be null: leave NOT NULL out"),
        ("headers array<struct<key:string,value:binary>> not null", "column 'headers' can be null"),
    ],
)
def test_a_schema_that_spark_would_fail_on_in_the_tasks(golden, schema, message):
    """Twice the same column was a ValueError of pyarrow, a null in a column that has none a NullPointerException."""
    source = KsegDataSource({"path": str(golden / "before"), "subscribe": "plain"})
    fields = [part.split(" ", 2) for part in schema.split(", ") if part]
    wanted = StructType([StructField(f[0], _parse(f[1]), len(f) == 2) for f in fields])
    with pytest.raises(kseg.OptionError, match=message):
        source.reader(wanted)


def _parse(name):
    headers = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
    return {"long": LongType(), "binary": BinaryType()}.get(name, headers)


def test_columns_that_are_never_null_may_be_said_to_be_so(golden):
    source = KsegDataSource({"path": str(golden / "before"), "subscribe": "plain"})
    assert source.reader(StructType().add("offset", LongType(), nullable=False)).partitions()


def test_ranges_of_so_many_records_are_cut_by_bytes_too(golden):
    """A limit on records must not undo minPartitions nor maxBytesPerTask: it made a task of each range."""
    for given, least in ({"minPartitions": "10"}, 10), ({"maxBytesPerTask": "40k"}, 12):
        options = {"path": str(golden / "before"), "subscribe": "plain", "maxRecordsPerPartition": "700", **given}
        tasks = plan_read(parse_source_options(options))
        assert len(tasks) >= least
        assert max(max(split.end for split in task) - min(split.start for split in task) for task in tasks) <= 700


@pytest.mark.parametrize("corrupt", ["fail", "skip"])
def test_a_rate_holds_for_all_that_a_task_reads(tmp_path, monkeypatch, corrupt):
    """Each split had a limit of its own, with its first bytes for nothing: a task of many small ones had none."""
    for number in range(8):
        LogBuilder(tmp_path / "logs", "orders", number).batch(20).write()
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    taken = Counter()
    monkeypatch.setattr(RateLimiter, "take", lambda limiter, count: taken.update({limiter: count}))
    options = {"maxReadBytesPerSecond": "1k", "corrupt": corrupt}
    reader = KsegDataSource({"path": str(tmp_path / "logs"), **options}).reader(StructType().add("value", BinaryType()))
    (task,) = reader.partitions()
    taken.clear()  # what planning reads
    assert sum(batch.num_rows for batch in reader.read(task)) == 160
    assert [(limiter._rate, count) for limiter, count in taken.items()] == [(1024, size)]
    taken.clear()
    assert kseg.export(None, tmp_path / "logs", tmp_path / "lake", **options).rows == 160
    assert [(limiter._rate, count) for limiter, count in taken.items()] == [(1024, size)] * 2  # who plans, who reads


@pytest.mark.parametrize("way", ["batch", "view", "stream", "export"])
def test_options_for_brokers_are_told_in_one_warning(tmp_path, way):
    LogBuilder(tmp_path).batch(5).write()
    given = {"kafka.bootstrap.servers": "here:9092", "groupIdPrefix": "g"}
    source = KsegDataSource({"path": str(tmp_path), **given})
    with pytest.warns(UserWarning, match="are ignored: groupIdPrefix, kafka.bootstrap.servers$") as seen:
        if way == "batch":
            source.reader(source.schema()).partitions()
        elif way == "view":
            read_view(tmp_path, "batches", **given)
        elif way == "stream":
            reader = source.streamReader(source.schema())
            for _ in range(2):
                reader.latestOffset({"orders": {"0": 0}}, reader.getDefaultReadLimit())
        else:
            kseg.export(None, tmp_path, tmp_path.parent / "lake", dry_run=True, **given)
    assert len(seen) == 1
