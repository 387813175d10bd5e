"""`spark.readStream.format("kseg")`: batches, limits, restarts from a checkpoint, and what is lost in between."""

from __future__ import annotations

import json
import logging
import shutil

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import kseg
from kseg.datasource.source import KsegDataSource
from kseg.datasource.spark_schema import record_schema
from kseg.datasource.stream import share_limit
from kseg.errors import ChecksumError, DataLossError, LogError, OptionError
from kseg.options import SourceOptions
from kseg.types import TopicPartition

SCHEMA = record_schema(SourceOptions(columns=("topic", "partition", "offset", "value")))
ID = "l3iqc78KThSrt73HgwZwSw"  # one for all partitions of a topic
ALL = ReadAllAvailable()
DEFAULT = ReadMaxRows(2**63 - 1)


def write(folder, name, *counts, segments=False):
    """Append a run of records for each count; with `segments` each run gets a segment of its own."""
    path = folder / name
    with kseg.append_to(path) if path.exists() else kseg.create_log(path, topic_id=ID) as writer:
        for count in counts:
            if segments and writer.next_offset:
                writer.roll()
            first = writer.next_offset
            writer.append(pa.table({"value": [f"{name}:{first + i}".encode() for i in range(count)]}), batch_records=3)


def drop_first_segment(folder, name):
    for path in (folder / name).glob(f"{0:020}.*"):
        path.unlink()


def reader_of(folder, **options):
    source = KsegDataSource({"path": str(folder), **{name: str(value) for name, value in options.items()}})
    return source.streamReader(SCHEMA)


def rows_of(reader, start, end):
    """What one batch gives: (topic-partition, offset, value)."""
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(f"{row['topic']}-{row['partition']}", row["offset"], row["value"]) for row in rows]


def records(name, start, end):
    return [(name, i, f"{name}:{i}".encode()) for i in range(start, end)]


def run(spark, folder, checkpoint, **options):
    """Run a query until what was there when it started is read; the batches by number, each with its rows in order."""
    seen = {}

    def keep(frame, batch_id):
        seen[batch_id] = sorted((f"{r.topic}-{r.partition}", r.offset, bytes(r.value)) for r in frame.collect())

    frame = spark.readStream.format("kseg").options(**options).load(str(folder))
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    running = query.trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(60)
    finally:
        running.stop()
    return seen


def joined(batches):
    return [row for batch in sorted(batches) for row in batches[batch]]


def checkpointed(checkpoint, batch):
    return json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])


# Through Spark


def test_available_now_reads_everything_once_in_several_batches(spark, tmp_path):
    write(tmp_path / "data", "t-0", 20, 10, segments=True)
    write(tmp_path / "data", "t-1", 10)
    options = {"subscribe": "t", "startingOffsets": "earliest"}
    assert joined(run(spark, tmp_path / "data", tmp_path / "c0", **options, maxOffsetsPerTrigger=0)) == []
    batches = run(spark, tmp_path / "data", tmp_path / "c", **options, maxOffsetsPerTrigger=16)
    assert [len(rows) for _, rows in sorted(batches.items())] == [16, 16, 8]
    assert sorted(joined(batches)) == records("t-0", 0, 30) + records("t-1", 0, 10)
    assert checkpointed(tmp_path / "c", 0) == {"t": {"0": 12, "1": 4}}
    text = (tmp_path / "c" / "offsets" / "2").read_text().splitlines()[-1]
    assert text.replace(" ", "") == '{"t":{"0":30,"1":10}}'


def test_a_restart_goes_on_and_repeats_what_was_not_committed(spark, tmp_path):
    data, checkpoint = tmp_path / "data", tmp_path / "c"
    write(data, "t-0", 10)
    first = run(spark, data, checkpoint, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    assert {batch: len(rows) for batch, rows in first.items()} == {0: 6, 1: 4}
    for path in (checkpoint / "commits").glob("*1*"):
        path.unlink()  # as if the query was killed before batch 1 was committed
    write(data, "t-0", 3)
    write(data, "t-1", 2)  # a new partition
    again = run(spark, data, checkpoint, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    assert again == {1: first[1], 2: records("t-0", 10, 13) + records("t-1", 0, 2)}
    assert joined(run(spark, data, checkpoint, startingOffsets="earliest")) == []


def test_the_first_batch_of_a_query_from_latest_can_be_repeated(spark, tmp_path):
    data, checkpoint = tmp_path / "data", tmp_path / "c"
    write(data, "t-0", 5)
    assert joined(run(spark, data, checkpoint, startingOffsets="latest")) == []
    assert checkpointed(checkpoint, 0) == {"t": {"0": 5}}
    for path in (checkpoint / "commits").glob("*0*"):
        path.unlink()
    write(data, "t-0", 4)  # "latest" is another place by now
    assert joined(run(spark, data, checkpoint)) == records("t-0", 5, 9)
    write(data, "t-0", 1)
    assert joined(run(spark, data, checkpoint)) == records("t-0", 9, 10)


def test_a_query_from_a_time_goes_on_behind_its_empty_first_batch(spark, tmp_path):
    data, checkpoint = tmp_path / "data", tmp_path / "c"
    write(data, "t-0", 5)
    batches = run(spark, data, checkpoint, startingTimestamp="1")
    assert joined(batches) == records("t-0", 0, 5)
    last = max(batches)
    for path in [*checkpoint.glob(f"commits/*{last}*"), *checkpoint.glob(f"offsets/*{last}*")]:
        path.unlink()  # as if the query was killed right after the first batch
    assert checkpointed(checkpoint, 0) == {"t": {"0": 0}}
    assert joined(run(spark, data, checkpoint, startingTimestamp="1")) == records("t-0", 0, 5)


def test_records_deleted_while_stopped_are_named_or_passed_over(spark, tmp_path):
    data, checkpoint = tmp_path / "data", tmp_path / "c"
    write(data, "t-0", 4)
    run(spark, data, checkpoint, startingOffsets="earliest")
    write(data, "t-0", 4)
    write(data, "t-0", 4, segments=True)
    drop_first_segment(data, "t-0")
    with pytest.raises(StreamingQueryException, match=r"t-0: offsets \[4, 8\) are gone: the log starts at 8"):
        run(spark, data, checkpoint)
    assert joined(run(spark, data, checkpoint, failOnDataLoss="false")) == records("t-0", 8, 12)


def test_a_query_that_runs_sees_what_is_appended(spark, tmp_path):
    write(tmp_path / "data", "t-0", 3)
    frame = spark.readStream.format("kseg").option("startingOffsets", "earliest").load(str(tmp_path / "data"))
    query = frame.writeStream.format("memory").queryName("tail").start()
    try:
        query.processAllAvailable()
        assert spark.table("tail").count() == 3
        write(tmp_path / "data", "t-0", 2, segments=True)
        write(tmp_path / "data", "t-1", 2)
        query.processAllAvailable()
        assert spark.table("tail").count() == 7
    finally:
        query.stop()
        spark.catalog.dropTempView("tail")


def test_what_only_a_stream_may_have_still_fails_a_batch_read(spark, tmp_path):
    write(tmp_path, "t-0", 1)
    frame = spark.read.format("kseg").option("startingOffsets", "latest")
    with pytest.raises(PySparkException, match=r"OptionError.*startingOffsets"):
        frame.load(str(tmp_path)).collect()


# The reader itself


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ("earliest", {"0": 0, "1": 0}),
        ("latest", {"0": 5, "1": 3}),
        ('{"t": {"1": -1, "0": 2}}', {"0": 2, "1": 3}),
    ],
)
def test_starting_offsets(tmp_path, starting, expected):
    write(tmp_path, "t-1", 3)
    write(tmp_path, "t-0", 5)
    offset = reader_of(tmp_path, startingOffsets=starting).initialOffset()
    assert json.dumps(offset) == json.dumps({"t": expected})


def test_a_stream_starts_at_latest_and_its_start_is_kept_before_anything_is_read(tmp_path):
    write(tmp_path, "t-0", 5)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    write(tmp_path, "t-0", 2)
    assert reader.initialOffset() == start == {"t": {"0": 5}}
    assert reader.getDefaultReadLimit() == DEFAULT
    assert reader.latestOffset(start, DEFAULT) == start
    assert reader.latestOffset(start, DEFAULT) == {"t": {"0": 7}}
    assert reader.reportLatestOffset() == {"t": {"0": 7}}
    assert reader_of(tmp_path).latestOffset(start, ALL) == {"t": {"0": 7}}


def test_nothing_new_is_equal_text_and_no_tasks(tmp_path):
    for name in ("b-10", "b-9", "a-0"):
        write(tmp_path, name, 1)
    reader = reader_of(tmp_path, startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), DEFAULT)
    assert json.dumps(reader.latestOffset(end, DEFAULT)) == json.dumps(end)
    assert json.dumps(end) == '{"a": {"0": 1}, "b": {"9": 1, "10": 1}}'
    assert reader.partitions(end, end) == []


def test_a_limit_is_shared_by_what_is_to_be_read():
    a, b, c = (TopicPartition("t", i) for i in range(3))
    assert share_limit({a: 1000, b: 500, c: 1}, 15) == {a: 9, b: 4, c: 1}
    assert share_limit({a: 4, b: 2}, 100) == {a: 4, b: 2}
    assert (share_limit({}, 5), share_limit({a: 4, b: 2}, 0)) == ({}, {a: 0, b: 0})


def test_a_batch_waits_for_enough_offsets_but_not_for_ever(tmp_path, monkeypatch):
    now = 100.0
    monkeypatch.setattr("kseg.datasource.stream.time.monotonic", lambda: now)
    write(tmp_path, "t-0", 2)
    reader = reader_of(tmp_path, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="10s")
    end = reader.latestOffset(reader.initialOffset(), DEFAULT)
    assert end == {"t": {"0": 2}}  # the first is not held back
    write(tmp_path, "t-0", 4)
    assert reader.latestOffset(end, DEFAULT) == end
    assert reader.latestOffset(end, ALL) == {"t": {"0": 6}}
    now += 10
    assert reader.latestOffset(end, DEFAULT) == {"t": {"0": 6}}
    write(tmp_path, "t-0", 5)
    assert reader.latestOffset({"t": {"0": 6}}, DEFAULT) == {"t": {"0": 11}}


def test_available_now_ends_where_it_was_settled(tmp_path):
    write(tmp_path, "t-0", 4)
    reader = reader_of(tmp_path, startingOffsets="earliest", minOffsetsPerTrigger=100)
    reader.prepareForTriggerAvailableNow()
    write(tmp_path, "t-0", 4)
    write(tmp_path, "t-1", 4)
    end = reader.latestOffset({"t": {"0": 0}}, DEFAULT)
    assert end == {"t": {"0": 4}} == reader.latestOffset(end, DEFAULT)


def test_a_new_partition_is_read_from_its_first_offset_on(tmp_path, caplog):
    write(tmp_path, "t-0", 2)
    write(tmp_path, "t-1", 3, 2, segments=True)
    start, end = {"t": {"0": 2}}, {"t": {"0": 2, "1": 5}}
    reader = reader_of(tmp_path)
    assert reader.latestOffset(start, DEFAULT) == end
    assert rows_of(reader, start, end) == records("t-1", 0, 5)
    drop_first_segment(tmp_path, "t-1")
    with pytest.raises(DataLossError, match=r"t-1: offsets \[0, 3\) are gone"):
        reader_of(tmp_path).partitions(start, end)
    with caplog.at_level(logging.WARNING):
        assert rows_of(reader_of(tmp_path, failOnDataLoss="false"), start, end) == records("t-1", 3, 5)
    assert "offsets [0, 3) are gone: the log starts at 3; 3 offsets are passed over" in caplog.text


@pytest.mark.parametrize("chosen", [{}, {"subscribe": "t,u"}, {"assign": '{"t": [0], "u": [0]}'}])
def test_a_partition_that_vanished_is_data_loss(tmp_path, caplog, chosen):
    write(tmp_path, "t-0", 4)
    start, end = {"t": {"0": 1}, "u": {"0": 7}}, {"t": {"0": 4}, "u": {"0": 9}}
    with pytest.raises(DataLossError, match="u-0: the partition is gone, and offsets from 7 on"):
        reader_of(tmp_path, **chosen).latestOffset(start, DEFAULT)
    with pytest.raises(DataLossError, match=r"u-0: offsets \[7, 9\) are gone: the partition is not there"):
        reader_of(tmp_path, **chosen).partitions(start, end)
    reader = reader_of(tmp_path, failOnDataLoss="false", **chosen)
    assert reader.latestOffset(start, DEFAULT) == {"t": {"0": 4}, "u": {"0": 7}}
    assert rows_of(reader, start, end) == records("t-0", 1, 4)
    assert "u-0: the partition is gone" in caplog.text
    if chosen:
        with pytest.raises(LogError, match="not here"):
            reader.initialOffset()


@pytest.mark.parametrize("count", [3, 9])
def test_a_topic_that_was_made_again_under_a_query_is_data_loss(tmp_path, caplog, count):
    """A new topic that is longer than what was read of the old one was taken for it."""
    write(tmp_path, "t-0", 5)
    end, readers = {"t": {"0": 5}}, [reader_of(tmp_path), reader_of(tmp_path, failOnDataLoss="false")]
    assert [reader.latestOffset({"t": {"0": 2}}, ALL) for reader in readers] == [end, end]
    shutil.rmtree(tmp_path / "t-0")
    with kseg.create_log(tmp_path / "t-0") as writer:
        writer.append(pa.table({"value": [b"new"] * count}))
    with pytest.raises(DataLossError, match="t-0: the topic was deleted and made again, and offsets from 5 on"):
        readers[0].latestOffset(end, ALL)
    assert [readers[1].latestOffset(end, ALL) for _ in range(2)] == [{"t": {"0": count}}] * 2
    assert caplog.text.count("the topic was deleted and made again") == 1


def test_a_log_that_was_cut_off_is_data_loss(tmp_path):
    write(tmp_path, "t-0", 4)
    start = {"t": {"0": 6}}
    with pytest.raises(DataLossError, match=r"t-0: offsets \[4, 6\) are gone: the log ends at 4"):
        reader_of(tmp_path).latestOffset(start, DEFAULT)
    reader = reader_of(tmp_path, failOnDataLoss="false")
    assert reader.latestOffset(start, DEFAULT) == {"t": {"0": 4}}
    assert reader.partitions(start, {"t": {"0": 4}}) == []


def test_damage_where_nothing_is_new_is_told(tmp_path, caplog):
    """No batch comes to it, so no task would: a query went on for ever beside it."""
    write(tmp_path, "t-0", 6)
    path = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    at_end, before = {"t": {"0": 3}}, {"t": {"0": 2}}
    with pytest.raises(ChecksumError, match=f"{path.name}, byte .* offset 3: checksum"):
        reader_of(tmp_path).latestOffset(at_end, DEFAULT)
    assert reader_of(tmp_path).latestOffset(before, DEFAULT) == at_end, "the batch tells it"
    reader = reader_of(tmp_path, corrupt="skip")
    assert [reader.latestOffset(at_end, DEFAULT) for _ in range(2)] == [at_end] * 2
    assert caplog.text.count("nothing behind it is read") == 1
    path.write_bytes(data[:-10])
    assert reader_of(tmp_path).latestOffset(at_end, DEFAULT) == at_end, "a batch that is being written"


def test_a_high_watermark_that_lags_holds_the_stream_and_not_a_batch_that_is_repeated(tmp_path):
    write(tmp_path, "t-0", 6)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    reader = reader_of(tmp_path, startingOffsets="earliest")
    assert reader.latestOffset(reader.initialOffset(), DEFAULT) == {"t": {"0": 3}}
    assert reader.latestOffset({"t": {"0": 5}}, DEFAULT) == {"t": {"0": 5}}
    assert rows_of(reader, {"t": {"0": 2}}, {"t": {"0": 5}}) == records("t-0", 2, 5)


def test_read_committed_ends_at_the_last_stable_offset(tmp_path):
    with kseg.create_log(tmp_path / "t-0") as writer:
        writer.append(pa.table({"value": [b"t-0:0", b"t-0:1"]}))
        writer.append(pa.table({"value": [b"open"]}), producer_id=7, transactional=True)
    committed = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    reader = reader_of(tmp_path, **committed)
    start = reader.initialOffset()
    assert reader.latestOffset(start, DEFAULT) == {"t": {"0": 2}}
    with kseg.append_to(tmp_path / "t-0") as writer:
        writer.append_marker(7, commit=False)
    end = reader.latestOffset(start, DEFAULT)
    assert end == {"t": {"0": 4}}
    assert rows_of(reader, start, end) == records("t-0", 0, 2)


@pytest.mark.parametrize("foreign", [{"logOffset": 3}, {"t": {"x": 3}}, {"t": {"0": None}}])
def test_a_checkpoint_of_another_source_is_told(tmp_path, foreign):
    write(tmp_path, "t-0", 3)
    for ask in (reader_of(tmp_path).latestOffset, lambda start, _: reader_of(tmp_path).partitions(start, start)):
        with pytest.raises(OptionError, match=r"the checkpoint holds .* no offsets of partitions; give each query"):
            ask(foreign, ALL)


def test_tasks_are_cut_by_the_options_of_a_batch_read(tmp_path):
    write(tmp_path, "t-0", 30)
    start, end = {"t": {"0": 0}}, {"t": {"0": 30}}
    assert len(reader_of(tmp_path).partitions(start, end)) == 1
    limited = reader_of(tmp_path, maxRecordsPerPartition=7)
    assert len(limited.partitions(start, end)) == 5
    assert rows_of(limited, start, end) == records("t-0", 0, 30)
    assert rows_of(reader_of(tmp_path, minPartitions=3), start, end) == records("t-0", 0, 30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"view": "batches"}, "records only"),
        ({"corrupt": "perhaps"}, "corrupt"),
        ({"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 4}, "minOffsetsPerTrigger"),
    ],
)
def test_options_that_a_stream_refuses(tmp_path, options, message):
    """The reader says so when it is asked: where `streamReader` raised, Spark's UnboundLocalError was the last line."""
    reader, place = reader_of(tmp_path, **options), {"t": {"0": 1}}
    reader.stop()
    for ask in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset(place, ALL),
        lambda: reader.partitions(place, place),
    ):
        with pytest.raises(OptionError, match=message):
            ask()


@pytest.mark.parametrize("now", [True, False])
def test_a_query_with_a_wrong_option_ends_in_one_line(spark, tmp_path, now):
    write(tmp_path, "t-0", 1)
    frame = spark.readStream.format("kseg").option("endingOffsets", "latest").load(str(tmp_path))
    writer = frame.writeStream.format("noop").trigger(
        **({"availableNow": True} if now else {"processingTime": "1 second"})
    )
    query = writer.option("checkpointLocation", str(tmp_path / ".c")).start()
    with pytest.raises(StreamingQueryException, match="a streaming query has no end") as caught:
        query.awaitTermination(60)
    assert "UnboundLocalError" not in str(caught.value)
