"""`kseg.retain`: what it refuses, what it leaves on disk, and what it tells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import kseg
from kseg import durable
from kseg.errors import JobError, LockedError, OptionError, StorageError
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, write_checkpoint
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.log.written import START, bases, clock, names, numbered
from tests.reference.rows import records_of
from tests.views.support import TOPIC_IDS, config, partition, topic, write

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("bills", 3)
DELETE = {"cleanup.policy": "delete", "retention.ms": 0}
MARKER = ".kafka_cleanshutdown"


def make_log(root, name="orders-0", *, segments=4, **options):
    """A log of so many segments, ten records each."""
    with kseg.create_log(root / name, clock=clock, topic_id=TOPIC_IDS.get(name[:-2]), **options) as writer:
        for number in range(segments):
            if number:
                writer.roll()
            writer.append(numbered(10, start=10 * number), leader_epoch=number, producer_id=5)
    return root / name


def log_starts(root):
    return read_checkpoint(LocalStore(), str(root), CheckpointKind.LOG_START)


def test_what_is_deleted_and_what_is_left(tmp_path):
    directory = make_log(tmp_path)
    (tmp_path / MARKER).write_bytes(b"clean")
    write_checkpoint(str(tmp_path), CheckpointKind.LOG_START, {OTHER: 7, TP: 3})
    rows = records_of(kseg.open_log(directory).read(20))
    report = kseg.retain(directory, settings=DELETE | {"retention.ms": 10}, now_ms=START + 30)
    (done,) = report.partitions
    assert [(s.base_offset, s.next_offset, s.rule, s.largest_timestamp - START) for s in done.deleted] == [
        (0, 10, "time", 9),
        (10, 20, "time", 19),
    ]
    assert (done.start_offset_before, done.start_offset, done.rolled_to) == (3, 20, None)
    assert bases(directory) == [20, 30]
    assert names(directory, "*.snapshot") == [f"{offset:020d}.snapshot" for offset in (20, 30, 40)]
    assert names(directory, "*.index") == [f"{offset:020d}.index" for offset in (20, 30)]
    log = kseg.open_log(directory)
    assert records_of(log.read()) == rows
    assert [tuple(entry) for entry in log.leader_epochs()] == [(2, 20), (3, 30)]
    assert log_starts(tmp_path) == {OTHER: 7}  # the first segment's name says where the log starts
    assert (tmp_path / MARKER).read_bytes() == b"clean"


def test_bytes_that_are_told_are_those_that_are_freed(tmp_path):
    directory = make_log(tmp_path)
    before = {name: (directory / name).stat().st_size for name in names(directory)}
    report = kseg.retain(directory, settings=DELETE | {"retention.ms": 10}, now_ms=START + 30)
    gone = {name: size for name, size in before.items() if name not in names(directory)}
    assert report.freed_bytes == sum(gone.values())
    assert report.log_bytes == sum(size for name, size in gone.items() if name.endswith(".log"))
    assert report.segments == 2


def test_a_log_start_inside_a_segment_stays_in_the_checkpoint(tmp_path):
    directory = make_log(tmp_path)
    write_checkpoint(str(tmp_path), CheckpointKind.LOG_START, {TP: 25})
    report = kseg.retain(directory, settings={"cleanup.policy": "compact"})
    assert [segment.rule for segment in report.partitions[0].deleted] == ["start", "start"]
    assert log_starts(tmp_path) == {TP: 25}
    log = kseg.open_log(directory)
    assert (log.start_offset, bases(directory)) == (25, [20, 30])
    assert [tuple(entry) for entry in log.leader_epochs()] == [(2, 25), (3, 30)]


def test_a_log_that_has_expired_as_a_whole_goes_on_at_its_end(tmp_path):
    directory = make_log(tmp_path)
    report = kseg.retain(directory, settings=DELETE)
    assert report.partitions[0].rolled_to == 40
    assert names(directory) == [
        f"{40:020d}.index",
        f"{40:020d}.log",
        f"{40:020d}.snapshot",
        f"{40:020d}.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    with kseg.append_to(directory, clock=clock) as writer:
        assert writer.append(numbered(1)).start == 40


def test_a_dry_run_says_the_same_and_changes_nothing(tmp_path):
    directory = make_log(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    planned = kseg.retain(directory, settings=DELETE, dry_run=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    done = kseg.retain(directory, settings=DELETE, now_ms=planned.now_ms)
    assert planned.partitions == done.partitions
    assert "4 segments would go in 1 partition" in str(planned)
    assert "4 segments deleted in 1 partition" in str(done)
    assert all(len(line) <= 80 for line in str(done).splitlines())


def test_a_second_run_finds_nothing(tmp_path):
    directory = make_log(tmp_path)
    kseg.retain(directory, settings=DELETE)
    assert kseg.retain(directory, settings=DELETE).segments == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"retention.ms": 0}, "cleanup.policy is not known"),
        ({"cleanup.policy": "delete"}, "retention.ms is not known"),
        (DELETE | {"remote.storage.enable": True}, "it is tiered"),
    ],
)
def test_what_is_not_known_is_refused(tmp_path, settings, reason):
    directory = make_log(tmp_path)
    report = kseg.retain(directory, settings=settings)
    assert (report.segments, report.partitions) == (0, ())
    assert [reason in refusal.reason for refusal in report.refusals] == [True]
    assert bases(directory) == [0, 10, 20, 30]


def test_one_limit_that_is_given_is_enough(tmp_path):
    report = kseg.retain(make_log(tmp_path), settings=DELETE)
    (done,) = report.partitions
    assert done.settings == {"cleanup.policy": "delete", "retention.ms": 0, "retention.bytes": None}
    assert done.origins == {"cleanup.policy": "given", "retention.ms": "given", "retention.bytes": "unknown"}


def test_settings_of_a_whole_directory_by_metadata_and_the_brokers_file(tmp_path):
    root = tmp_path / "data"
    for name in ("orders-0", "bills-0", "__consumer_offsets-0"):
        make_log(root, name)
    records = [topic("orders"), partition("orders"), topic("bills"), partition("bills")]
    records += [config("topic", "bills", "cleanup.policy", "compact")]
    write(root, "__cluster_metadata", records)
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hours=1\n")
    report = kseg.retain(root, metadata=root, server_properties=file, now_ms=START + 3_600_015)
    assert {done.topic: len(done.deleted) for done in report.partitions} == {"bills": 0, "orders": 1}
    assert {refusal.subject for refusal in report.refusals} == {"__cluster_metadata", "__consumer_offsets"}
    assert bases(root / "orders-0") == [10, 20, 30]
    assert bases(root / "__consumer_offsets-0") == bases(root / "bills-0") == [0, 10, 20, 30]


def test_internal_topics_by_name(tmp_path):
    make_log(tmp_path, "__consumer_offsets-0")
    report = kseg.retain(tmp_path, topics=["__consumer_offsets"], settings=DELETE)
    assert report.segments == 4


def test_arguments_that_are_wrong(tmp_path):
    make_log(tmp_path)
    with pytest.raises(OptionError, match="given for no topic"):
        kseg.retain(tmp_path, settings=DELETE)
    with pytest.raises(OptionError, match="no topic nowhere"):
        kseg.retain(tmp_path, topics=["orders", "nowhere"], settings=DELETE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match="no partitions"):
        kseg.retain(tmp_path / "empty")


def test_a_directory_that_a_broker_holds_is_refused(tmp_path):
    directory = make_log(tmp_path)
    holder = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path / ".lock")], **pipes) as broker:
        broker.stdout.readline()
        with pytest.raises(LockedError):
            kseg.retain(directory, settings=DELETE)
        assert kseg.retain(directory, settings=DELETE, dry_run=True).segments == 4
        broker.stdin.close()
    assert bases(directory) == [0, 10, 20, 30]


@pytest.mark.parametrize("suffix", [".cleaned", ".swap"])
def test_an_interrupted_replacement_is_left_alone(tmp_path, suffix):
    directory = make_log(tmp_path)
    shutil.copy(directory / f"{10:020d}.log", directory / f"{10:020d}.log{suffix}")
    (refusal,) = kseg.retain(directory, settings=DELETE).refusals
    assert "interrupted" in refusal.reason


def test_a_torn_tail_is_not_rolled_over(tmp_path):
    directory = make_log(tmp_path)
    with (directory / f"{30:020d}.log").open("ab") as file:
        file.write(b"\0" * 7 + b"\1" * 40)
    (refusal,) = kseg.retain(directory, settings=DELETE).refusals
    assert "no batch" in refusal.reason
    assert bases(directory) == [0, 10, 20, 30]
    assert kseg.retain(directory, settings=DELETE | {"retention.ms": 5}, now_ms=START + 40).segments == 3


def test_zeros_behind_the_last_record_do_not_count_as_log(tmp_path):
    """A crash leaves them, many where files are preallocated. A broker cuts them off first."""
    directory = make_log(tmp_path)
    size = sum(path.stat().st_size for path in directory.glob("*.log"))
    by_size = {"cleanup.policy": "delete", "retention.bytes": size}
    with (directory / f"{30:020d}.log").open("ab") as file:
        file.write(b"\0" * size)
    assert kseg.retain(directory, settings=by_size).segments == 0
    assert kseg.retain(directory, settings=by_size | {"retention.bytes": size // 2}).segments == 2
    assert bases(directory) == [20, 30]


def test_a_last_segment_of_zeros_alone_is_an_empty_one(tmp_path):
    directory = make_log(tmp_path, segments=3)
    with kseg.append_to(directory, clock=clock) as writer:
        writer.roll()
    assert bases(directory) == [0, 10, 20, 30]
    (directory / f"{30:020d}.log").write_bytes(b"\0" * 5000)
    os.utime(directory / f"{30:020d}.log", (START / 1000, START / 1000))
    report = kseg.retain(directory, settings=DELETE, now_ms=START + 10**9)
    assert (report.segments, report.refusals, bases(directory)) == (3, (), [30])


def test_damage_is_told_and_the_others_go_on(tmp_path):
    make_log(tmp_path, "bills-0")
    directory = make_log(tmp_path)
    with kseg.append_to(directory, clock=clock) as writer:
        writer.append(numbered(10, start=40))
    log = directory / f"{30:020d}.log"
    data = bytearray(log.read_bytes())
    data[16] = 9  # the magic of the first of two batches
    log.write_bytes(data)
    report = kseg.retain(tmp_path, topics=["orders", "bills"], settings=DELETE)
    assert [(refusal.subject, refusal.is_damage) for refusal in report.refusals] == [("orders-0", True)]
    assert [(done.topic, len(done.deleted)) for done in report.partitions] == [("bills", 4)]
    assert bases(directory) == [0, 10, 20, 30]


def test_mtime_counts_where_no_record_has_a_timestamp(tmp_path, golden):
    source = golden / "legacy"
    directory = next(
        path.parent
        for path in sorted(source.rglob("*.log"))
        if kseg.open_log(path.parent).segments[0].max_timestamp < 0
    )
    copy = tmp_path / "orders-0"
    shutil.copytree(directory, copy)
    (log,) = copy.glob("*.log")
    os.utime(log, (START / 1000, START / 1000))
    limits = DELETE | {"retention.ms": 1000}
    assert kseg.retain(copy, settings=limits, now_ms=START + 1000).segments == 0
    assert kseg.retain(copy, settings=limits, now_ms=START + 1001).segments == 1


@pytest.mark.parametrize(
    "name",
    ["log-start-offset-checkpoint", "replication-offset-checkpoint", "orders-0/leader-epoch-checkpoint"],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_checkpoint_that_cannot_be_read_stops_it(tmp_path, name, dry_run):
    directory = make_log(tmp_path)
    (tmp_path / name).write_text("0\n1\nwhat\n")
    (refusal,) = kseg.retain(directory, settings=DELETE, dry_run=dry_run).refusals
    assert refusal.is_damage
    assert name.rpartition("/")[2] in refusal.reason
    assert bases(directory) == [0, 10, 20, 30]


def test_a_failure_is_told_with_what_was_done_before(tmp_path, monkeypatch):
    make_log(tmp_path, "bills-0")
    directory = make_log(tmp_path)
    (tmp_path / MARKER).write_bytes(b"clean")
    unlink = durable.unlink

    def fail(path, **options):
        if str(path).endswith(".deleted") and "orders" in str(path):
            raise StorageError("the disk is gone", path=str(path))
        unlink(path, **options)

    monkeypatch.setattr(durable, "unlink", fail)
    with pytest.raises(JobError, match="the disk is gone") as caught:
        kseg.retain(tmp_path, topics=["orders", "bills"], settings=DELETE)
    assert [(done.topic, len(done.deleted)) for done in caught.value.report.partitions] == [("bills", 4)]
    assert not (tmp_path / MARKER).exists()  # a broker has to look
    monkeypatch.undo()
    left = sum(path.stat().st_size for path in directory.glob("*.deleted"))
    report = kseg.retain(directory, settings=DELETE, dry_run=True)
    assert (report.segments, report.freed_bytes, report.partitions[0].leftover_bytes) == (0, left, left)
    assert kseg.retain(directory, settings=DELETE).freed_bytes == left
    assert names(directory, "*.deleted") == []
    assert bases(directory) == [40]


def test_leftovers_without_a_byte_go_too(tmp_path):
    directory = make_log(tmp_path)
    (directory / f"{0:020d}.index.deleted").touch()
    kseg.retain(directory, settings={"cleanup.policy": "compact"})
    assert names(directory, "*.deleted") == []
    assert bases(directory) == [0, 10, 20, 30]
    assert log_starts(tmp_path) is None
