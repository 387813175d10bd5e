"""The options of a read: what passes, what it becomes, and what is refused with which words."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import OptionError
from kseg.option_values import format_offsets, parse_assignment, parse_offsets, parse_size, parse_timestamps
from kseg.options import (
    ALL_EARLIEST,
    ALL_LATEST,
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    SourceOptions,
    compile_topic_pattern,
    parse_source_options,
)
from kseg.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
BATCH, STREAM = False, True

PASSING = [
    ({}, BATCH, {"starting": ALL_EARLIEST, "ending": ALL_LATEST, "fail_on_data_loss": True, "include_headers": False}),
    ({}, STREAM, {"starting": ALL_LATEST, "max_trigger_delay_ms": 900_000}),
    ({"subscribe": " a, b ,,"}, BATCH, {"subscribe": ("a", "b"), "subscribe_pattern": None, "assign": None}),
    ({"subscribePattern": " t.* "}, BATCH, {"subscribe_pattern": "t.*"}),
    ({"assign": '{"a":[0,1,0]}'}, BATCH, {"assign": frozenset({A0, A1})}),
    ({"STARTINGOFFSETS": " Earliest "}, BATCH, {"starting": ALL_EARLIEST}),
    ({"startingoffsets": "LATEST"}, STREAM, {"starting": ALL_LATEST}),
    ({"startingOffsets": '{"a":{"0":23,"1":-2}}'}, BATCH, {"starting": AtOffsets({A0: 23, A1: -2})}),
    ({"startingOffsets": '{"a":{"0":-1}}'}, STREAM, {"starting": AtOffsets({A0: -1})}),
    ({"endingOffsets": '{"a":{"0":-1}}'}, BATCH, {"ending": AtOffsets({A0: -1})}),
    ({"endingOffsets": "latest"}, BATCH, {"ending": ALL_LATEST}),
    ({"startingOffsets": "group:my group"}, BATCH, {"starting": AtGroup("my group"), "auto_offset_reset": "none"}),
    ({"startingOffsets": "group:g", "auto.offset.reset": "latest"}, STREAM, {"auto_offset_reset": "latest"}),
    ({"startingTimestamp": " 1000 "}, BATCH, {"starting": AtTime(1000)}),
    (
        {"startingTimestamp": "1", "startingOffsetsByTimestamp": "?", "startingOffsets": "?"},
        BATCH,
        {"starting": AtTime(1)},
    ),
    ({"startingTimestamp": "1", "startingOffsets": "group:g"}, BATCH, {"starting": AtTime(1)}),
    (
        {"startingOffsetsByTimestamp": '{"a":{"0":5}}', "startingOffsets": "latest", "endingTimestamp": "9"},
        BATCH,
        {"starting": AtTimes({A0: 5}), "ending": AtTime(9)},
    ),
    ({"endingOffsetsByTimestamp": '{"a":{"0":5}}', "endingOffsets": "earliest"}, BATCH, {"ending": AtTimes({A0: 5})}),
    ({"startingOffsetsByTimestampStrategy": "LATEST"}, BATCH, {"starting_no_match": "latest"}),
    (
        {"failOnDataLoss": "FALSE", "includeHeaders": "True"},
        BATCH,
        {"fail_on_data_loss": False, "include_headers": True},
    ),
    ({"minPartitions": "+7", "maxRecordsPerPartition": "5000000000"}, BATCH, {"min_partitions": 7}),
    (
        {"minOffsetsPerTrigger": "0", "maxOffsetsPerTrigger": "10", "maxTriggerDelay": "90s"},
        STREAM,
        {"min_offsets_per_trigger": 0, "max_offsets_per_trigger": 10, "max_trigger_delay_ms": 90_000},
    ),
    ({"maxOffsetsPerTrigger": "10"}, BATCH, {"max_offsets_per_trigger": None}),
    ({"maxOffsetsPerTrigger": "0"}, STREAM, {"max_offsets_per_trigger": 0}),
    ({"kafka.isolation.level": "read_committed"}, BATCH, {"isolation": "read_committed"}),
    ({"columns": "offset, key"}, BATCH, {"columns": ("offset", "key")}),
    ({"corrupt": "skip", "view": "Batches"}, BATCH, {"corrupt": "skip", "view": "batches"}),
    ({"maxBytesPerTask": "64MiB", "maxReadBytesPerSecond": "5"}, BATCH, {"max_bytes_per_task": 64 << 20}),
    ({"readPastHighWatermark": "true"}, BATCH, {"read_past_high_watermark": True}),
    ({"path": "data"}, BATCH, {"paths": ("data",)}),
    ({"paths": '["one","s3://two"]'}, BATCH, {"paths": ("one", "s3://two")}),
    (
        {"kafka.bootstrap.servers": "h:1", "groupidprefix": "x"},
        BATCH,
        {"ignored": ("kafka.bootstrap.servers", "groupidprefix")},
    ),
    ({"mergeSchema": "true", "auto.offset.reset": "none"}, BATCH, {"ignored": ("mergeSchema", "auto.offset.reset")}),
]

REFUSED = [
    ({"subscribe": "a", "assign": '{"a":[0]}'}, BATCH, "subscribe and assign are both set"),
    ({"subscribe": " , "}, BATCH, "option subscribe is ' , '; it must name at least one"),
    ({"subscribePattern": " "}, BATCH, "must be a regular expression"),
    ({"subscribePattern": "a("}, BATCH, "option subscribePattern is 'a\\('"),
    ({"subscribePattern": r"\p{Alpha}+"}, BATCH, "Java and Python read alike"),
    ({"subscribePattern": "[a-z&&[^b]]"}, BATCH, "Java and Python read alike"),
    ({"subscribePattern": "(?<name>a)"}, BATCH, "Java and Python read alike"),
    ({"assign": "a"}, BATCH, "option assign is 'a'; it must be JSON such as"),
    ({"assign": "{}"}, BATCH, "names no partition"),
    ({"assign": '{"a":0}'}, BATCH, "option assign"),
    ({"assign": '{"a":[true]}'}, BATCH, "option assign"),
    ({"assign": '{"a":[-1]}'}, BATCH, "option assign"),
    ({"startingOffsets": "latest"}, BATCH, "option startingOffsets is 'latest'; a batch query cannot start at latest"),
    ({"startingOffsets": '{"a":{"0":-1,"1":0}}'}, BATCH, r"cannot start at -1 \(latest\): a-0"),
    ({"endingOffsets": "earliest"}, BATCH, "option endingOffsets is 'earliest'; a query cannot end at earliest"),
    ({"endingOffsets": '{"a":{"1":-2}}'}, BATCH, r"cannot end at -2 \(earliest\): a-1"),
    ({"startingOffsets": "group:"}, BATCH, "the name of a consumer group"),
    ({"endingOffsets": "group:g"}, BATCH, "valid values are earliest, latest and JSON"),
    ({"startingOffsets": "newest"}, STREAM, "valid values are earliest, latest, group:NAME and JSON"),
    ({"startingOffsets": "[1]"}, STREAM, "option startingOffsets is '\\[1\\]'"),
    ({"startingOffsets": '{"a":{"0":-3}}'}, BATCH, "-2 for earliest, -1 for latest"),
    ({"startingOffsets": '{"a":{"0":"5"}}'}, BATCH, "option startingOffsets"),
    ({"startingOffsets": '{"a":{"x":5}}'}, BATCH, "option startingOffsets"),
    ({"startingOffsets": '{"a":{"0":5,"0":6}}'}, BATCH, "given twice"),
    ({"startingOffsets": '{"a":{"0":5,"00":6}}'}, BATCH, "option startingOffsets"),
    ({"startingOffsets": '{"a":[5]}'}, BATCH, "option startingOffsets"),
    ({"startingOffsets": "{"}, BATCH, "option startingOffsets"),
    ({"startingOffsets": '{"a":' + "[" * 100_000}, BATCH, "option startingOffsets"),
    ({"startingOffsets": '{"a":{"0":9223372036854775808}}'}, BATCH, "option startingOffsets"),
    ({"startingTimestamp": "1.5"}, BATCH, "option startingTimestamp is '1.5'; it must be a whole number"),
    ({"startingTimestamp": "-1"}, BATCH, "option startingTimestamp"),
    ({"startingOffsetsByTimestamp": '{"a":{"0":-2}}'}, BATCH, "in milliseconds since the epoch"),
    ({"startingOffsetsByTimestampStrategy": "none"}, BATCH, "valid values are error, latest"),
    ({"endingOffsets": "latest"}, STREAM, "option endingOffsets is 'latest'; a streaming query has no end"),
    ({"endingTimestamp": "5"}, STREAM, "a streaming query has no end"),
    ({"endingOffsetsByTimestamp": "{}"}, STREAM, "a streaming query has no end"),
    (
        {"startingOffsets": '{"a":{"0":1}}', "endingOffsets": '{"a":{"1":2}}'},
        BATCH,
        r"\[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET\] .* start: a-0; end: a-1",
    ),
    (
        {"startingOffsets": '{"a":{"0":3}}', "endingOffsets": '{"a":{"0":2}}'},
        BATCH,
        r"\[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\] the start offset 3 of a-0",
    ),
    (
        {"startingOffsetsByTimestamp": '{"a":{"0":3}}', "endingOffsetsByTimestamp": '{"a":{"0":2}}'},
        BATCH,
        r"\[UNRESOLVED_START_TIMESTAMP_GREATER_THAN_END_TIMESTAMP\]",
    ),
    ({"failOnDataLoss": "yes"}, BATCH, "option failOnDataLoss is 'yes'; it must be true or false"),
    ({"includeHeaders": " true"}, BATCH, "it must be true or false"),
    ({"minPartitions": "0"}, BATCH, "option minPartitions is '0'; it must be a whole number from 1"),
    ({"minPartitions": "2147483648"}, BATCH, "to 2147483647"),
    ({"minPartitions": "1_0"}, BATCH, "option minPartitions"),
    ({"maxRecordsPerPartition": "-1"}, BATCH, "option maxRecordsPerPartition"),
    ({"maxOffsetsPerTrigger": "-1"}, STREAM, "option maxOffsetsPerTrigger is '-1'; it must be a whole number from 0"),
    ({"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}, BATCH, "must not be above maxOffsetsPerTrigger, 10"),
    ({"maxTriggerDelay": "soon"}, STREAM, "option maxTriggerDelay is 'soon'; it must be a time span"),
    ({"kafka.isolation.level": "serializable"}, BATCH, "valid values are read_uncommitted, read_committed"),
    ({"auto.offset.reset": "error"}, BATCH, "option auto.offset.reset is 'error'"),
    ({"columns": "key,key"}, BATCH, "names a column twice"),
    ({"corrupt": "ignore"}, BATCH, "valid values are fail, skip, column"),
    ({"view": "rows"}, BATCH, "valid values are records, batches"),
    ({"maxBytesPerTask": "64 bananas"}, BATCH, "must be a size above 0 such as"),
    ({"maxReadBytesPerSecond": "0"}, BATCH, "must be a size above 0"),
    ({"remote": " "}, BATCH, "option remote is empty"),
    ({"remoteKeys": "key"}, BATCH, "option remoteKeys must be id=private-key-file"),
    ({"remoteKeys": "k=-----BEGIN PRIVATE KEY-----"}, BATCH, "files, never keys themselves"),
    ({"remoteKeys": "k=a.pem,k=b.pem"}, BATCH, "option remoteKeys names key 'k' twice"),
    ({"paths": '"a"'}, BATCH, "must be a JSON list"),
    ({"paths": "a,b"}, BATCH, "must be a JSON list"),
    ({"path": " "}, BATCH, "option path is empty"),
    ({"kafka.auto.offset.reset": "earliest"}, BATCH, "not supported: set startingOffsets instead"),
    ({"kafka.enable.auto.commit": "true"}, STREAM, "not supported"),
    ({"startingOffset": "earliest"}, BATCH, "unknown option 'startingOffset'; did you mean 'startingOffsets'"),
    ({"maxbytespertsak": "1"}, BATCH, "did you mean 'maxBytesPerTask'"),
    ({"isolation.level": "read_committed"}, BATCH, "did you mean 'kafka.isolation.level'"),
    ({"topics": "orders"}, BATCH, "unknown option 'topics'; did you mean 'subscribe'"),
    ({"kafka.isolation.levle": "read_committed"}, BATCH, "did you mean 'kafka.isolation.level'"),
    ({"path": "a", "PATH": "b"}, BATCH, "given twice"),
    ({"minPartitions": 5}, BATCH, "options are texts"),
]


@pytest.mark.parametrize(("options", "streaming", "wanted"), PASSING)
def test_options_that_pass(options, streaming, wanted):
    parsed = parse_source_options(options, streaming=streaming)
    assert {name: getattr(parsed, name) for name in wanted} == wanted
    assert pickle.loads(pickle.dumps(parsed)) == parsed


@pytest.mark.parametrize(("options", "streaming", "message"), REFUSED)
def test_options_that_are_refused(options, streaming, message):
    with pytest.raises(OptionError, match=message) as caught:
        parse_source_options(options, streaming=streaming)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 800


def test_no_options_are_the_defaults():
    assert parse_source_options({}) == SourceOptions()


def test_a_tier_alone_is_the_path():
    found = parse_source_options({"remote": "s3://b/p", "remoteKeys": "k2=b.pem, k1=a.pem", "allowSharedKeys": "true"})
    assert (found.paths, found.remote) == (("s3://b/p",), "s3://b/p")
    assert (found.remote_keys, found.allow_shared_keys) == ((("k1", "a.pem"), ("k2", "b.pem")), True)
    assert parse_source_options({"path": "data", "remote": "s3://b/p"}).paths == ("data",)


def test_what_is_ignored_is_said_in_one_sentence_each():
    parsed = parse_source_options(
        {"kafka.b": "1", "kafka.a": "2", "maxTriggerDelay": "1m", "fetchOffset.numRetries": "3"}
    )
    assert parsed.notes == (
        "these options do nothing here and are ignored: fetchOffset.numRetries, kafka.a, kafka.b",
        "these options are for streaming queries and are ignored: maxTriggerDelay",
    )
    assert parse_source_options({"subscribe": "a"}).notes == ()
    waiting = parse_source_options({"maxOffsetsPerTrigger": "0"}, streaming=True)
    assert waiting.notes == ("option maxOffsetsPerTrigger is 0: the query reads nothing",)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64MiB", 64 << 20), ("64mb", 64 << 20), ("2 g", 2 << 30), ("7B", 7), ("1KiB", 1024), ("3T", 3 << 40)],
)
def test_sizes(text, size):
    assert parse_size("x", text) == size


def test_patterns_are_found_anywhere_in_a_name():
    pattern = compile_topic_pattern("or.er")
    assert pattern.search("new-orders")
    assert not compile_topic_pattern("^orders$").search("new-orders")


topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))


@given(st.dictionaries(partitions, st.integers(-2, 2**63 - 1), max_size=6))
def test_offsets_survive_their_json(offsets):
    text = format_offsets(offsets)
    assert parse_offsets("x", text) == offsets
    assert json.loads(text) == {
        topic: {str(tp.partition): offset for tp, offset in offsets.items() if tp.topic == topic}
        for topic in {tp.topic for tp in offsets}
    }
    assert list(json.loads(text)) == sorted({tp.topic for tp in offsets})


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=6))
def test_timestamps_survive_their_json(timestamps):
    assert parse_timestamps("x", format_offsets(timestamps)) == timestamps


@given(st.sets(partitions, min_size=1, max_size=6))
def test_assignments_survive_their_json(wanted):
    by_topic: dict[str, list[int]] = {}
    for tp in wanted:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    assert parse_assignment("x", json.dumps(by_topic)) == wanted


@given(
    st.sampled_from(["startingOffsets", "startingOffsetsByTimestamp", "assign", "paths", "columns", "view"]), st.text()
)
def test_any_text_is_parsed_or_refused(name, text):
    try:
        parse_source_options({name: text}, streaming=True)
    except OptionError as error:
        assert name.removesuffix("s") in str(error)
