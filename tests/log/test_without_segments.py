"""Partition directories in which no live segment is left: an empty log, as for a broker that starts there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kseg
from kseg.compaction import CleanerConfig
from kseg.compaction.policy import find_cleanable
from kseg.datasource.planning import plan_read
from kseg.options import parse_source_options
from kseg.storage import LocalStore
from tests.builders import LogBuilder
from tests.cli.calls import call
from tests.compaction.rounds import START_MS

LEFT = ("log.deleted", "log.cleaned", "log.cleaned, log.swap", "log.deleted, index", "a directory", "index", "nothing")


def leave(directory: Path, what: str) -> Path:
    """Make a partition directory with a log that is there no more."""
    made = LogBuilder(directory.parent / "made").segment().batch(records=5).write()
    directory.mkdir(parents=True)
    for kind in what.split(", ") if what not in ("a directory", "nothing") else ():
        shutil.copy(next(made.glob("*.log")), directory / f"{0:020d}.{kind}")
    if what == "a directory":
        (directory / f"{0:020d}.log").mkdir()
    shutil.rmtree(made.parent)
    return directory


@pytest.fixture
def healthy(tmp_path) -> Path:
    """A log directory with a sound partition of three segments, and room for another beside it."""
    builder = LogBuilder(tmp_path / "data", "t", 1)
    for _ in range(3):
        builder.segment().batch(records=4)
    return builder.write().parent


@pytest.mark.parametrize("start", [0, 7])
@pytest.mark.parametrize("what", LEFT)
def test_a_partition_without_a_live_segment_is_the_empty_log_that_kafka_loads(oracle, tmp_path, what, start):
    directory = leave(tmp_path / "data" / "t-0", what)
    if start:
        (directory.parent / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    log = kseg.open_log(directory)
    ours = log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset
    assert (log.segments, log.producers(), log.open_transactions(), log.offset_for_time(0)) == ([], [], [], None)
    assert list(log.read()) == list(log.read(isolation="read_committed")) == list(log.batches()) == []
    if (what, start) == ("a directory", 0):  # Kafka cannot make its first segment there, and does not start
        assert ours == (0, 0, 0, 0)
        return
    loaded = oracle.load(shutil.copytree(directory, tmp_path / "kafkas" / "t-0"), logStart=start)
    assert ours == (loaded["logStart"], loaded["logEnd"], loaded["logEnd"], loaded["lastStable"])
    assert (loaded["segments"], loaded["producers"]) == ([[start, 0]], [])


@pytest.mark.parametrize("checkpoint", [None, 0, 3])
def test_nothing_is_cleanable_where_no_segment_is(oracle, tmp_path, checkpoint):
    log = kseg.open_log(leave(tmp_path / "data" / "t-0", "log.deleted"))
    found = find_cleanable(log, checkpoint, CleanerConfig(), START_MS)
    answer = oracle.cleanable(shutil.copytree(log.directory, tmp_path / "kafkas" / "t-0"), checkpoint, START_MS)
    assert (found.first_dirty, found.first_uncleanable) == (answer["firstDirty"], answer["firstUncleanable"])
    assert found.cleanable_bytes == answer["cleanableBytes"] == 0
    assert found.must_compact_now == answer["mustCompactNow"]


COMMANDS = {
    "ls": ("ls", "{data}"),
    "ls --segments": ("ls", "{data}", "--segments"),
    "cat": ("cat", "{data}"),
    "verify": ("verify", "{data}"),
    "verify --against": ("verify", "{data}", "--against", "{data}"),
    "recover": ("recover", "{data}", "--all", "--dry-run"),
    "compact": ("compact", "{data}", "--topics", "t", "--cleanup-policy", "compact"),
    "compact --estimate": ("compact", "{data}", "--topics", "t", "--cleanup-policy", "compact", "--estimate"),
    "repack": ("repack", "{data}", "--codec", "lz4"),
    "retain": ("retain", "{data}", "--yes", "--topics", "t", "--cleanup-policy", "delete", "--retention-ms", "1",
               "--retention-bytes", "1"),
    "offload": ("offload", "{data}", "{tmp}/tier", "--archive", "--dry-run", "--topics", "t",
                "--remote-storage-enable", "true", "--cleanup-policy", "delete"),
    "export": ("export", "{data}", "{tmp}/exported"),
    "erase": ("erase", "{data}", "--keys", "{tmp}/keys", "--yes"),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_partition_without_a_live_segment_ended_the_work_on_the_others(healthy, tmp_path, command, what):
    leave(healthy / "t-0", what)
    (tmp_path / "keys").write_text("key-1\n")
    for partition, topic_id in (("t-0", "HIrGFHuGT-6Py5E8IkMkIg"), ("t-1", "HIrGFHuGT-6Py5E8IkMkIg")):
        (healthy / partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    answer = call(*(word.format(data=healthy, tmp=tmp_path) for word in COMMANDS[command]))
    is_refused = command == "retain" and "cleaned" in what  # as any log in which a replacement was interrupted
    assert answer.status == (2 if is_refused else 0), (answer.text, answer.messages)
    told = {"ls": "t         1     3", "cat": "t-1  11  ", "verify": "2 partitions, 3 segments", "erase": "2 direct"}
    assert told.get(command, "") in answer.text
    assert answer.messages == ""


@pytest.mark.parametrize("what", LEFT)
def test_spark_plans_the_others_where_a_partition_has_no_live_segment(healthy, what):
    leave(healthy / "t-0", what)
    tasks = plan_read(parse_source_options({"path": str(healthy)}))
    assert {split.partition for task in tasks for split in task} == {1}
    assert plan_read(parse_source_options({"path": str(healthy / "t-0")})) == []


def test_a_directory_without_files_was_left_out_of_listings(healthy):
    """A broker that starts makes an empty log of it."""
    (healthy / "t-0").mkdir()
    logs = [(log.partition, log.start_offset, log.end_offset) for log in kseg.open_dir(healthy)]
    assert logs == [(0, 0, 0), (1, 0, 12)]
    row = {"topic": "t", "partition": 0, "segments": 0, "startOffset": 0, "endOffset": 0}
    for path in (healthy, healthy / "t-0"):
        answer = call("ls", path, "--json")
        assert (answer.status, answer.messages) == (0, "")
        assert answer.objects[0].items() >= row.items()


@pytest.mark.parametrize("file", ["meta.properties", "recovery-point-offset-checkpoint", "t-0/partition.metadata"])
def test_the_first_partition_of_a_log_directory_may_be_empty(tmp_path, file):
    (tmp_path / "t-0").mkdir()
    (tmp_path / file).write_text("")
    assert [log.topic for log in kseg.open_dir(tmp_path)] == ["t"]


def test_a_place_where_no_disk_is_mounted_is_no_partition(tmp_path):
    LogBuilder(tmp_path / "kafka-1").segment().batch().write()
    (tmp_path / "kafka-2").mkdir()
    assert [log.topic for log in kseg.open_dir(tmp_path)] == ["orders"]
    with pytest.raises(kseg.LogError, match="no segments here"):
        kseg.open_log(tmp_path / "kafka-1")
    assert call("ls", tmp_path / "kafka-2").messages == f"kseg: no partitions in {tmp_path}/kafka-2\n"


def test_verify_tells_that_replicated_records_are_gone_with_the_last_segment(healthy):
    leave(healthy / "t-0", "log.deleted")
    (healthy / "replication-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    found = [finding for finding in kseg.verify(healthy).findings if finding.partition == 0]
    assert [(finding.code, finding.offset) for finding in found] == [("KS701", None), ("KS603", 5)]


def test_segments_that_all_vanish_under_a_reader_are_a_loss_and_no_end(healthy, monkeypatch):
    log = kseg.open_log(healthy / "t-1")
    records = log.read(batch_bytes=1)
    next(records)
    for path in (healthy / "t-1").glob("*.log"):
        path.rename(f"{path}.deleted")
    with pytest.raises(kseg.errors.DataLossError, match="all segments were taken away while they were read"):
        list(records)


def test_a_log_that_is_open_stays_open_when_its_last_file_goes(tmp_path):
    log = kseg.open_log(leave(tmp_path / "t-0", "log.deleted"))
    next(Path(log.directory).iterdir()).unlink()
    log.refresh()
    assert (log.start_offset, log.end_offset) == (0, 0)
    assert LocalStore().list(log.directory) == []


TIERED = {
    "ls": ("ls", "{data}", "--remote", "{tier}", "--topic", "tiered"),
    "offload": ("offload", "{data}", "{tier}", "--metadata", "{data}", "--topics", "tiered", "--dry-run"),
    "retain": ("retain", "{data}", "--remote", "{tier}", "--metadata", "{data}", "--topics", "tiered", "--dry-run",
               "--this-replica-only", "--cleanup-policy", "delete", "--remote-storage-enable", "true",
               "--retention-ms", "-1", "--retention-bytes", "-1", "--local-retention-ms", "-1",
               "--local-retention-bytes", "-1"),
}  # fmt: skip


@pytest.mark.parametrize("command", TIERED)
@pytest.mark.parametrize("is_listed", [True, False])
def test_what_is_in_a_tier_stays_where_the_last_local_segment_is_gone(golden, tmp_path, command, is_listed):
    data = shutil.copytree(golden / "aiven" / "compressed" / "local", tmp_path / "data")
    for path in (data / "tiered-0").glob("*.log"):
        path.rename(f"{path}.deleted")
    if not is_listed:
        (data / "log-start-offset-checkpoint").unlink()
    tier = shutil.copytree(golden / "aiven" / "compressed" / "remote", tmp_path / "tier")
    answer = call(*(word.format(data=data, tier=tier) for word in TIERED[command]))
    assert (answer.status, answer.messages) == (0, ""), answer.text
    told = {"ls": "8151  8151    8151", "offload": "0 segments of 1 partition", "retain": "0 remote segments of 1 part"}
    assert told[command] in answer.text
