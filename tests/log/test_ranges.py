"""From options to offsets: every kind of limit, what must match, and what is gone."""

from __future__ import annotations

import json
import pickle

import pytest

from kseg.errors import DataLossError, LogError, OptionError, UnsupportedError
from kseg.internal import consumer_offsets
from kseg.log.group_offsets import committed_offsets
from kseg.log.names import PARTITION_METADATA_FILE
from kseg.log.partition import open_log
from kseg.log.ranges import describe_withheld, resolve_ranges, resolve_starts, visible_end
from kseg.log.select import select_logs
from kseg.options import parse_source_options
from kseg.types import TopicPartition
from tests.builders import START_TIME, LogBuilder

PLAIN = {"subscribe": "plain"}
PLAIN_0, PLAIN_1 = (0, 1482), (0, 1518)
RETAINED = {"subscribe": "retained"}
OFFSETS = '{"plain":{"0":%d,"1":%d}}'


def resolve(path, **options):
    parsed = parse_source_options(
        {"path": str(path), **{key.replace("__", "."): text for key, text in options.items()}}
    )
    return resolve_ranges(parsed, select_logs(parsed.paths, parsed))


def spans(resolved):
    return [(part.start, part.end) for part in resolved]


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (PLAIN, [PLAIN_0, PLAIN_1]),
        (RETAINED, [(2921, 6000)]),
        (PLAIN | {"startingOffsets": "earliest", "endingOffsets": "latest"}, [PLAIN_0, PLAIN_1]),
        (PLAIN | {"startingOffsets": OFFSETS % (23, -2)}, [(23, 1482), PLAIN_1]),
        (PLAIN | {"endingOffsets": OFFSETS % (5, -1)}, [(0, 5), PLAIN_1]),
        (PLAIN | {"startingOffsets": OFFSETS % (5, 6), "endingOffsets": OFFSETS % (7, 6)}, [(5, 7)]),
        (PLAIN | {"startingOffsets": OFFSETS % (1482, -2)}, [PLAIN_1]),
        (PLAIN | {"startingOffsets": OFFSETS % (1482, 1518)}, []),
        ({"assign": '{"plain":[1]}', "startingOffsets": '{"plain":{"1":10}}'}, [(10, 1518)]),
        ({"subscribePattern": "no such topic"}, []),
    ],
)
def test_offsets(golden, options, wanted):
    resolved = resolve(golden / "before", **options)
    assert spans(resolved) == wanted
    assert resolved.losses == ()


def test_empty_ranges_are_counted(golden):
    resolved = resolve(golden / "before", startingOffsets=OFFSETS % (1482, 3), **PLAIN)
    assert (len(resolved), resolved.empty) == (1, 1)
    assert resolved.ranges[0].topic_partition == TopicPartition("plain", 1)
    assert resolved.ranges[0].log.partition == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffsets": '{"plain":{"0":1}}'},
            r"\[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED\] option startingOffsets",
        ),
        (
            {"endingOffsets": '{"plain":{"0":1}}'},
            r"\[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED\] option endingOffsets",
        ),
        (
            {"startingOffsets": '{"plain":{"0":1,"1":1},"tx":{"0":1}}'},
            "named: plain-0, plain-1, tx-0; read: plain-0, plain-1",
        ),
        ({"startingOffsets": "{}"}, "named: none; read: plain-0, plain-1"),
        (
            {"startingOffsetsByTimestamp": '{"plain":{"1":1}}'},
            r"\[KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED\] option startingOffsetsByTimestamp",
        ),
        (
            {"endingOffsetsByTimestamp": '{"plain":{"1":1}}'},
            r"\[KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED\] option endingOffsetsByTimestamp",
        ),
        (
            {"startingOffsets": OFFSETS % (9, 9), "endingTimestamp": "0"},
            r"\[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\] plain-0 starts at offset 9, .* its end offset 0",
        ),
    ],
)
def test_options_that_do_not_fit_the_partitions(golden, options, message):
    with pytest.raises(OptionError, match=message):
        resolve(golden / "before", **PLAIN, **options)


# --- what is visible --------------------------------------------------------------------------------------------------


@pytest.fixture
def undecided(tmp_path):
    """Offsets 0 to 9, of which the last three belong to a transaction that is still open."""
    LogBuilder(tmp_path).batch(7).transaction(3, producer_id=5).write()
    return tmp_path


def test_the_end_is_what_an_isolation_level_shows(undecided):
    assert spans(resolve(undecided)) == [(0, 10)]
    assert spans(resolve(undecided, kafka__isolation__level="read_committed")) == [(0, 7)]


@pytest.fixture
def replicated(tmp_path):
    """Offsets 0 to 9, of which the checkpoint says that the first six were replicated."""
    LogBuilder(tmp_path).batch(5).batch(5).write()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    return tmp_path


def test_the_high_watermark_is_the_end_unless_told(replicated):
    assert spans(resolve(replicated)) == [(0, 6)]
    assert spans(resolve(replicated, readPastHighWatermark="true")) == [(0, 10)]
    parsed = parse_source_options({"kafka.isolation.level": "read_committed", "readPastHighWatermark": "true"})
    assert visible_end(open_log(replicated / "orders-0"), parsed) == 10  # as Log.read with the same settings


def test_what_is_withheld_behind_the_high_watermark_is_counted(replicated):
    logs = [open_log(replicated / "orders-0")]
    told = describe_withheld(logs, parse_source_options({}))
    assert told.startswith("4 offsets behind the high watermark are not read, in 1 partitions: orders-0;")
    assert describe_withheld(logs, parse_source_options({"readPastHighWatermark": "true"})) is None
    assert describe_withheld([], parse_source_options({})) is None


def test_a_start_that_is_there_but_not_visible_yet_is_no_loss(replicated):
    resolved = resolve(replicated, startingOffsets='{"orders":{"0":8}}')
    assert (spans(resolved), resolved.losses, resolved.empty) == ([], (), 1)


def test_an_end_that_is_not_visible_yet_is_told(replicated):
    with pytest.raises(
        DataLossError, match=r"orders-0: offsets \[6, 8\) cannot be read: the log is replicated up to 6"
    ):
        resolve(replicated, endingOffsets='{"orders":{"0":8}}')


# --- data loss --------------------------------------------------------------------------------------------------------

LOSSES = [
    (2000, -1, (2921, 6000), [(2000, 2921)], "are gone: the log starts at 2921"),
    (10, 20, None, [(10, 20)], "are gone: the log starts at 2921"),
    (-2, 7000, (2921, 6000), [(6000, 7000)], "cannot be read: the log ends at 6000"),
    (6500, 7000, None, [(6500, 7000)], "cannot be read: the log ends at 6000"),
    (0, 7000, (2921, 6000), [(0, 2921), (6000, 7000)], "are gone"),
]


@pytest.mark.parametrize(("start", "end", "wanted", "lost", "reason"), LOSSES)
def test_offsets_that_are_not_there_are_data_loss(golden, start, end, wanted, lost, reason):
    options = RETAINED | {
        "startingOffsets": json.dumps({"retained": {"0": start}}),
        "endingOffsets": json.dumps({"retained": {"0": end}}),
    }
    first, last = lost[0]
    with pytest.raises(DataLossError, match=rf"retained-0: offsets \[{first}, {last}\) {reason}") as caught:
        resolve(golden / "before", **options)
    assert "failOnDataLoss" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    resolved = resolve(golden / "before", failOnDataLoss="false", **options)
    assert spans(resolved) == ([] if wanted is None else [wanted])
    assert [(loss.start, loss.end) for loss in resolved.losses] == lost
    assert {loss.topic_partition for loss in resolved.losses} == {TopicPartition("retained", 0)}


def test_a_start_behind_the_end_is_an_error_whatever_data_loss_does(golden):
    """As with Spark's Kafka source, which was tried beside it: a batch read without data loss went on without it."""
    options = RETAINED | {"startingOffsets": '{"retained":{"0":9000}}'}
    with pytest.raises(DataLossError, match=r"retained-0: offsets \[6000, 9000\) cannot be read: the log ends at 6000"):
        resolve(golden / "before", **options)
    with pytest.raises(OptionError, match=r"RESOLVED_START_OFFSET.*retained-0 starts at offset 9000, .* offset 6000"):
        resolve(golden / "before", failOnDataLoss="false", **options)


def test_offsets_of_partitions_where_none_are_read_do_not_fit(golden):
    """As with Spark's Kafka source: a pattern that found nothing let any offsets pass."""
    for name in ("startingOffsets", "startingOffsetsByTimestamp", "endingOffsets"):
        with pytest.raises(OptionError, match=rf"{name} must name exactly.*named: plain-0; read: none"):
            resolve(golden / "before", subscribePattern="nosuch", **{name: '{"plain":{"0":1}}'})
    assert not resolve(golden / "before", subscribePattern="nosuch")


def test_an_end_in_an_undecided_transaction_is_told(undecided):
    with pytest.raises(DataLossError, match=r"offsets \[7, 9\) cannot be read: a transaction that began at 7 is not"):
        resolve(undecided, endingOffsets='{"orders":{"0":9}}', kafka__isolation__level="read_committed")


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(tmp_path):
    """Ten records in each of two partitions, the second an hour later; `(path, times)`."""
    builders = [LogBuilder(tmp_path, "orders", number) for number in (0, 1)]
    builders[1].clock += 3_600_000
    for builder in builders:
        builder.batch(5).batch(5).write()
    return tmp_path, [[record.timestamp for record in builder.records] for builder in builders]


def test_times_are_the_first_record_at_or_after(timed):
    path, times = timed
    first = [next(i for i, stamp in enumerate(stamps) if stamp >= times[0][3]) for stamps in times]
    resolved = resolve(path, startingTimestamp=str(times[0][3]))
    assert spans(resolved) == [(first[0], 10), (0, 10)]
    resolved = resolve(path, endingTimestamp=str(times[0][3]))
    assert (spans(resolved), resolved.empty) == ([(0, first[0])], 1)
    both = {"orders": {"0": times[0][1], "1": times[1][6]}}
    resolved = resolve(path, startingOffsetsByTimestamp=json.dumps(both), endingOffsetsByTimestamp=json.dumps(both))
    assert (len(resolved), resolved.empty) == (0, 2)
    assert spans(resolve(path, startingOffsetsByTimestamp=json.dumps(both))) == [(1, 10), (6, 10)]


def test_no_record_is_that_new(timed):
    path, _ = timed
    late = str(START_TIME + 1_800_000)  # between the two partitions
    with pytest.raises(OptionError, match=rf"no offset of orders-0 matches the starting timestamp {late}"):
        resolve(path, startingTimestamp=late)
    resolved = resolve(path, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert (spans(resolved), resolved.empty) == ([(0, 10)], 1)
    assert spans(resolve(path, endingTimestamp=str(2**62))) == [(0, 10), (0, 10)]


def test_a_record_that_is_not_visible_matches_no_time(replicated):
    hidden = [record.timestamp for record in LogBuilder(replicated).batch(5).batch(5).records][9]
    with pytest.raises(OptionError, match="no record is that new"):
        resolve(replicated, startingTimestamp=str(hidden))
    assert spans(resolve(replicated, endingTimestamp=str(hidden))) == [(0, 6)]


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["before", "before/rd-zstd-0"])
def test_a_group_stands_where_it_committed(golden, path):
    assert spans(resolve(golden / path, assign='{"rd-zstd":[0]}', startingOffsets="group:g-new")) == [(335, 1500)]


@pytest.mark.parametrize(("reset", "wanted"), [("earliest", [PLAIN_0, (546, 1518)]), ("latest", [(546, 1518)])])
def test_partitions_that_a_group_never_committed_start_as_told(golden, reset, wanted):
    options = PLAIN | {"startingOffsets": "group:g-classic", "auto__offset__reset": reset}
    assert spans(resolve(golden / "before", **options)) == wanted


@pytest.mark.parametrize(("group", "missing"), [("g-classic", "plain-0"), ("nobody", "plain-0, plain-1")])
def test_without_a_reset_they_are_an_error(golden, group, missing):
    with pytest.raises(OptionError, match=f"group {group} has committed no offset of {missing}; set auto.offset.reset"):
        resolve(golden / "before", startingOffsets=f"group:{group}", **PLAIN)


def test_a_group_needs_the_offsets_topic(tmp_path):
    LogBuilder(tmp_path).batch(5).write()
    with pytest.raises(LogError, match="there is no __consumer_offsets beside the logs"):
        resolve(tmp_path, startingOffsets="group:g")


def commit(offset, *, group="g", partition=0, kind=1, **value):
    decoded = {"type": "OffsetCommit", "typeId": kind, "version": 4, "key": {"group": group, "topic": "orders"}}
    decoded["key"]["partition"] = partition
    decoded["value"] = None if offset is None else {"offset": offset, "metadata": "", "commitTimestamp": 0, **value}
    return consumer_offsets.encode(decoded)


def stands(tmp_path):
    log = open_log(tmp_path / "__consumer_offsets-0")
    return {found.partition: found.offset for found in committed_offsets([log], group="g")}


def test_the_last_commit_counts_and_a_deleted_one_does_not(tmp_path):
    builder = LogBuilder(tmp_path, "__consumer_offsets", 0)
    for record in (
        commit(1),
        commit(9, group="gg"),
        commit(5, partition=1),
        commit(2),
        commit(7, partition=2, kind=0),
        commit(8, partition=2),
        commit(None, partition=1),
        commit(4, partition=3),
        commit(6, partition=3, kind=0),
    ):
        builder.record(*record)
    builder.write()
    assert stands(tmp_path) == {0: 2, 2: 8, 3: 6}


def test_commits_of_transactions_count_when_these_are_committed(tmp_path):
    builder = LogBuilder(tmp_path, "__consumer_offsets", 0).record(*commit(1)).record(*commit(1, partition=1))
    for producer, partition, marker in ((7, 0, "abort"), (8, 1, "commit")):
        builder.record(
            *commit(5, partition=partition), producer_id=producer, producer_epoch=0, base_sequence=0, flags=16
        )
        builder.control(marker, producer_id=producer)
    builder.write()
    assert stands(tmp_path) == {0: 1, 1: 5}


def test_a_commit_that_is_not_understood_is_not_passed_over(tmp_path):
    key, value = commit(1)
    LogBuilder(tmp_path, "__consumer_offsets", 0).record(key, b"\x00\x63" + value[2:]).write()
    with pytest.raises(UnsupportedError, match="version 99"):
        stands(tmp_path)


def test_a_commit_to_an_earlier_topic_of_the_same_name_does_not_count(tmp_path):
    builder = LogBuilder(tmp_path, "__consumer_offsets", 0)
    builder.record(*commit(3, topicId="AAAAAAAAAAAAAAAAAAAAAQ")).write()
    path = LogBuilder(tmp_path).batch(5).write()
    assert spans(resolve(tmp_path, startingOffsets="group:g")) == [(3, 5)]
    (path / PARTITION_METADATA_FILE).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    with pytest.raises(OptionError, match="has committed no offset of orders-0"):
        resolve(tmp_path, startingOffsets="group:g")


def test_a_commit_behind_the_end_is_data_loss(tmp_path):
    LogBuilder(tmp_path, "__consumer_offsets", 0).record(*commit(9)).write()
    LogBuilder(tmp_path).batch(5).write()
    with pytest.raises(DataLossError, match=r"orders-0: offsets \[5, 9\)"):
        resolve(tmp_path, startingOffsets="group:g")


# --- streaming --------------------------------------------------------------------------------------------------------


def test_starts_of_a_stream(golden):
    logs = select_logs([golden / "before"], parse_source_options(PLAIN))
    for text, wanted in [("earliest", [0, 0]), ("latest", [1482, 1518]), (OFFSETS % (-1, 7), [1482, 7])]:
        options = parse_source_options(PLAIN | {"startingOffsets": text}, streaming=True)
        assert list(resolve_starts(options, logs).values()) == wanted


# --- reads that go on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "first", "wanted"),
    [
        ({}, 700, [(700, 1482), PLAIN_1]),
        ({}, 1482, [PLAIN_1]),
        ({"startingOffsets": OFFSETS % (3, 9)}, 700, [(700, 1482), (9, 1518)]),
        ({"startingOffsets": '{"plain":{"1":9}}'}, 700, [(700, 1482), (9, 1518)]),
        ({"startingOffsetsByTimestamp": OFFSETS % (2**50, 1)}, 700, [(700, 1482), PLAIN_1]),
        ({"endingOffsets": OFFSETS % (600, 5)}, 700, [(0, 5)]),
        ({"endingOffsets": OFFSETS % (800, 5)}, 700, [(700, 800), (0, 5)]),
    ],
)
def test_a_partition_that_was_read_before_goes_on_there(golden, options, first, wanted):
    parsed = parse_source_options({"path": str(golden / "before"), **PLAIN, **options})
    logs = select_logs(parsed.paths, parsed)
    resolved = resolve_ranges(parsed, logs, resume={TopicPartition("plain", 0): first, TopicPartition("gone", 0): 3})
    assert spans(resolved) == wanted
    assert resolved.empty == 2 - len(wanted)


@pytest.mark.parametrize(
    ("topic", "first", "message"),
    [
        ("plain", 2000, r"plain-0: offsets \[1482, 2000\) cannot be read: the log ends at 1482"),
        ("retained", 2000, r"retained-0: offsets \[2000, 2921\) are gone: the log starts at 2921"),
    ],
)
def test_what_comes_next_and_is_gone_is_data_loss(golden, topic, first, message):
    parsed = parse_source_options({"path": str(golden / "before"), "subscribe": topic})
    with pytest.raises(DataLossError, match=message):
        resolve_ranges(parsed, select_logs(parsed.paths, parsed), resume={TopicPartition(topic, 0): first})
