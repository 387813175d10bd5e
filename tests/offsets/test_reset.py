"""Offsets of consumer groups: exported, and committed to a stopped cluster by its files."""

from __future__ import annotations

import json
import os
import shutil

import pytest

import kseg
from kseg.errors import LockedError, OptionError
from kseg.internal.decode import coordinator_partition, decode_record
from kseg.log.checkpoints import CheckpointKind, write_checkpoint
from kseg.log.lock import DirLock
from kseg.log.metadata import MetaProperties
from kseg.offsets import OffsetEntry
from kseg.settings import replicas
from kseg.types import TopicPartition
from tests.cli.calls import call
from tests.faults.disk import each_fault
from tests.views.support import NOW, commit, coordinator_record, create, record_table, write

TOPIC = "__consumer_offsets"
ORDERS = "AAAAAAAAAAAAAAAAAAAAbQ"
BILLS = "AAAAAAAAAAAAAAAAAAAAcg"
COMMITS = "AAAAAAAAAAAAAAAAAAAAdA"
PARTITIONS = 3
MARKER = ".kafka_cleanshutdown"


def fill(root, *, records=(), partitions=PARTITIONS):
    """A stopped broker's directory: `orders` of offsets 5 to 30, epoch 1 from 20 on, and `__consumer_offsets`."""
    with create(root, "orders-0", topic_id=ORDERS, start_offset=5) as writer:
        writer.append(record_table("orders", [(b"k", b"v")] * 15))
        writer.append(record_table("orders", [(b"k", b"v")] * 10), leader_epoch=1)
    for number in range(partitions):
        mine = [r for r in records if coordinator_partition(next(iter(r["key"].values())), partitions) == number]
        with create(root, f"{TOPIC}-{number}", topic_id=COMMITS) as writer:
            writer.append(record_table(TOPIC, mine))
    (root / MARKER).write_bytes(b"clean")
    return root


@pytest.fixture
def folder(tmp_path):
    return fill(tmp_path / "data", records=[commit("g", "orders", 0, 7, version=4, topicId=ORDERS)])


def reset(folder, *args, **options):
    return kseg.offsets.reset(folder, *args, **{"offsets_partitions": PARTITIONS, "now_ms": NOW + 5, **options})


def standing(folder):
    return {found.entry.place: found.entry for found in kseg.offsets.read(folder).offsets}


def test_an_export_is_what_a_reset_takes(folder, tmp_path):
    report = kseg.offsets.export(folder, tmp_path / "groups.jsonl")
    (line,) = (tmp_path / "groups.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "group": "g",
        "topic": "orders",
        "partition": 0,
        "offset": 7,
        "leaderEpoch": None,
        "metadata": "",
        "commitTimestamp": NOW,
        "topicId": ORDERS,
    }
    assert [(found.end_offset, found.lag, found.state) for found in report.offsets] == [(30, 23, "Empty")]
    target = fill(tmp_path / "other")
    done = reset(target, tmp_path / "groups.jsonl")
    assert [(found.before, found.entry.offset, found.note) for found in done.offsets] == [(None, 7, None)]
    entry = standing(target)["g", "orders", 0]
    assert (entry.offset, entry.commit_timestamp_ms) == (7, NOW + 5)  # else brokers would let it expire
    assert (target / MARKER).read_bytes() == b"clean"


@pytest.mark.parametrize("group", ["g", "a group", "grüße", "\U0001f600", "polygenelubricants"])
def test_a_commit_is_where_its_coordinator_looks(tmp_path, group):
    folder = fill(tmp_path)
    reset(folder, [OffsetEntry(group, "orders", 0, 9)])
    number = coordinator_partition(group, PARTITIONS)
    for other in range(PARTITIONS):
        assert kseg.open_log(folder / f"{TOPIC}-{other}").end_offset == (1 if other == number else 0)
    if group == "polygenelubricants":  # its hash is the smallest int, of which there is no absolute value
        assert number == 0


@pytest.mark.parametrize("version", [3, 4])
def test_records_are_of_a_version_that_the_cluster_reads(tmp_path, version):
    """Topic ids came with version 4, which brokers before 4.1 do not read."""
    known = commit("h", "orders", 0, 7, version=version, **({"topicId": ORDERS} if version == 4 else {}))
    folder = fill(tmp_path, records=[known])
    reset(folder, [OffsetEntry("g", "orders", 0, 9, 0, "note")])
    log = kseg.open_log(folder / f"{TOPIC}-{coordinator_partition('g', PARTITIONS)}")
    *_, row = [row for batch in log.read(columns=["key", "value", "timestamp"]) for row in batch.to_pylist()]
    decoded = decode_record(TOPIC, row["key"], row["value"])
    assert (decoded["typeId"], decoded["version"]) == (1, version)
    expected = {"offset": 9, "leaderEpoch": 0, "metadata": "note", "commitTimestamp": NOW + 5}
    assert decoded["value"] == expected | ({"topicId": ORDERS} if version == 4 else {})


@pytest.mark.parametrize(
    ("asked", "written", "note"),
    [
        (4, 5, "the log's start: 4 is before it"),
        (5, 5, None),
        (30, 30, None),
        (31, 30, "the log's end: 31 is behind it"),
    ],
)
def test_offsets_outside_the_log(folder, asked, written, note):
    (found,) = reset(folder, [OffsetEntry("g", "orders", 0, asked, 1)]).offsets
    assert (found.asked, found.before, found.entry.offset, found.note) == (asked, 7, written, note)
    assert standing(folder)["g", "orders", 0].offset == written


def test_what_may_be_in_a_tier_is_not_before_the_start(folder):
    write(folder, "__remote_log_metadata", [(None, b"\x01\x63\x00")])
    write_checkpoint(str(folder), CheckpointKind.LOG_START, {TopicPartition("orders", 0): 2})
    assert [found.entry.offset for found in reset(folder, [OffsetEntry("g", "orders", 0, 3)]).offsets] == [3]
    assert [f.entry.offset for f in reset(folder, group="g", topics=["orders"], to="earliest").offsets] == [2]


@pytest.mark.parametrize(
    ("offset", "epoch", "kept"), [(20, 0, 0), (21, 0, None), (30, 1, 1), (25, 2, None), (9, None, None)]
)
def test_an_epoch_that_contradicts_the_log_is_dropped(folder, offset, epoch, kept):
    """A consumer with it would believe that the log was truncated."""
    reset(folder, [OffsetEntry("g", "orders", 0, offset, epoch)])
    assert standing(folder)["g", "orders", 0].leader_epoch == kept


def test_another_topic_of_that_name(folder):
    wish = OffsetEntry("g", "orders", 0, 9, topic_id=BILLS)
    report = reset(folder, [wish])
    assert (report.offsets, len(report.refusals)) == ((), 1)
    assert "is for the topic of id" in str(report.refusals[0])
    reset(folder, [wish], any_topic_id=True)
    assert standing(folder)["g", "orders", 0].topic_id == ORDERS  # else brokers would pass over it


def test_a_partition_that_is_not_here_is_not_checked(folder):
    (found,) = reset(folder, [OffsetEntry("g", "away", 3, 1_000, 2)]).offsets
    assert (found.entry.offset, found.entry.leader_epoch, found.note) == (1_000, 2, "its log is not here: not checked")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"to": "earliest"}, 5),
        ({"to": "latest"}, 30),
        ({"to": 12}, 12),
        ({"to_time_ms": NOW - 1}, 5),
        ({"to_time_ms": NOW + 1}, 30),
    ],
)
def test_targets(folder, target, expected):
    reset(folder, group="new", topics=["orders"], **target)
    assert standing(folder)["new", "orders", 0].offset == expected


def test_groups_with_members_are_refused(tmp_path):
    member = {
        "memberId": "m",
        "groupInstanceId": None,
        "clientId": "c",
        "clientHost": "/h",
        "rebalanceTimeout": 1,
        "sessionTimeout": 1,
        "subscription": "",
        "assignment": "",
    }
    value = {
        "protocolType": "x",
        "generation": 1,
        "protocol": "p",
        "leader": "m",
        "currentStateTimestamp": NOW,
        "members": [member],
    }
    group = coordinator_record("GroupMetadata", {"group": "busy"}, value, 3)
    share = coordinator_record("ShareGroupMetadata", {"groupId": "shared"}, {"epoch": 1, "metadataHash": 0})
    folder = fill(tmp_path, records=[group, share])
    wishes = [OffsetEntry(name, "orders", 0, 9) for name in ("busy", "free", "shared")]
    report = reset(folder, wishes)
    assert [found.entry.group for found in report.offsets] == ["free"]
    assert [refusal.subject for refusal in report.refusals] == ["group busy", "group shared"]
    assert [found.entry.group for found in reset(folder, wishes, active_groups=True).offsets] == ["busy", "free"]


def test_all_replicas_or_none(folder, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(folder, twin)
    for node, place in enumerate((folder, twin), 1):
        (place / "meta.properties").write_bytes(MetaProperties(node_id=node, cluster_id="c").to_bytes())
    reset([folder, twin], [OffsetEntry("g", "orders", 0, 9)])
    assert standing(folder)["g", "orders", 0].offset == standing(twin)["g", "orders", 0].offset == 9
    reset(folder, [OffsetEntry("g", "orders", 0, 10)])  # no metadata tells of the other
    report = reset([folder, twin], [OffsetEntry("g", "orders", 0, 11)])
    assert (report.offsets, "differ" in str(report.refusals[0])) == ((), True)


def test_a_reset_that_died_between_replicas_is_completed_by_the_next(folder, tmp_path, monkeypatch):
    twin = tmp_path / "twin"
    shutil.copytree(folder, twin)
    for node, place in enumerate((folder, twin), 1):
        (place / "meta.properties").write_bytes(MetaProperties(node_id=node, cluster_id="c").to_bytes())
    append_to, opened = replicas.append_to, []

    def dies(directory, **options):
        opened.append(directory)
        if len(opened) == 2:
            raise KeyboardInterrupt
        return append_to(directory, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(replicas, "append_to", dies)
        reset([folder, twin], [OffsetEntry("g", "orders", 0, 9)])
    assert standing(folder)["g", "orders", 0] != standing(twin).get(("g", "orders", 0))
    report = reset([folder, twin], [OffsetEntry("another", "orders", 0, 6)])
    assert report.refusals == ()
    assert standing(folder) == standing(twin)
    assert [standing(twin)[group, "orders", 0].offset for group in ("g", "another")] == [9, 6]
    assert not list(tmp_path.rglob(".kseg"))


def test_a_live_broker_is_refused(folder, monkeypatch):
    def locked(self):
        raise LockedError("the log directory is in use", path=str(self.path))

    monkeypatch.setattr(DirLock, "acquire", locked)
    with pytest.raises(LockedError):
        reset(folder, [OffsetEntry("g", "orders", 0, 9)])
    assert call("offsets", folder, "--reset", "--to-latest", "--group", "g", "--topic", "orders",
                "--offsets-partitions", PARTITIONS, "--yes").status == 3  # fmt: skip
    assert len(reset(folder, [OffsetEntry("g", "orders", 0, 9)], dry_run=True).offsets) == 1
    assert standing(folder)["g", "orders", 0].offset == 7


def test_without_the_number_of_partitions_nothing_is_written(folder):
    with pytest.raises(OptionError, match="how many partitions"):
        kseg.offsets.reset(folder, [OffsetEntry("g", "orders", 0, 9)])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: no JSON"),
        ("[]", "line 2: no JSON object"),
        ('{"group":"g"}', "line 2: no topic, partition, offset"),
        ('{"group":"g","topic":"t","partition":0,"offset":-1}', "offset must be a number"),
        ('{"group":"g","topic":"t","partition":0,"offset":true}', "offset must be a number"),
        ('{"group":"g","topic":"a/b","partition":0,"offset":1}', "cannot be a topic"),
        ('{"group":1,"topic":"t","partition":0,"offset":1}', "must be strings"),
        ('{"group":"g","topic":"t","partition":0,"offset":1,"topicId":"x"}', "topicId must be a uuid"),
        ('{"group":"g","topic":"orders","partition":0,"offset":2}', "orders-0 twice"),
    ],
)
def test_a_bad_file_changes_nothing(folder, tmp_path, line, message):
    file = tmp_path / "groups.jsonl"
    file.write_text('{"group":"g","topic":"orders","partition":0,"offset":1}\n' + line)
    with pytest.raises(OptionError, match=message):
        reset(folder, file)
    assert standing(folder)["g", "orders", 0].offset == 7


def test_the_command_line(folder, tmp_path):
    file = tmp_path / "groups.jsonl"
    assert call("offsets", folder).lines[0].split()[:4] == ["GROUP", "TOPIC", "PART", "OFFSET"]
    file.write_bytes(call("offsets", folder, "--json").data)  # it is such a file, too
    flags = ("--offsets-partitions", PARTITIONS)
    assert call("offsets", folder, "--reset", file, *flags).status == 2  # nobody to ask
    answer = call("offsets", folder, "--reset", file, *flags, "--dry-run", "--json")
    assert (answer.status, answer.objects[0]["entry"]["offset"], answer.objects[0]["before"]) == (0, 7, 7)
    answer = call("offsets", folder, "--reset", *flags, "--group", "g", "--topic", "orders", "--to-offset", 9, "--yes")
    assert (answer.status, answer.lines[-1]) == (0, "1 offset of 1 group written")
    assert call("offsets", folder, "--export", file, "--group", "g").lines == [f"1 offset of 1 group written to {file}"]
    assert json.loads(file.read_text())["offset"] == 9
    assert call("offsets", folder, "--to-latest").status == 2


def test_every_operation_can_fail(tmp_path, monkeypatch):
    """What was committed before, or what is committed now, counts; a second run writes it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    start = tmp_path / "start"
    fill(start / "data", records=[commit("g", "orders", 0, 7)], partitions=1)

    def job(folder, promise):
        reset(folder / "data", [OffsetEntry("g", "orders", 0, 9)], offsets_partitions=1)
        promise("written")

    def check(folder, end):
        assert standing(folder / "data")["g", "orders", 0].offset in ((9,) if end.promised else (7, 9))
        job(folder, lambda _: None)
        assert standing(folder / "data")["g", "orders", 0].offset == 9

    assert each_fault(start, job, check, folder=tmp_path) > 10
