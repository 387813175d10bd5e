"""Offload of directories that kseg wrote: what is copied, what is refused, what is deleted and when."""

from __future__ import annotations

import base64
import shutil

import pytest

import kseg
from kseg import durable
from kseg.errors import LockedError, OptionError, StorageError
from kseg.index.epoch import EpochStart, LeaderEpochs
from kseg.internal.remote_log_metadata import decode
from kseg.log.checkpoints import CheckpointKind, read_checkpoint, update_checkpoint, write_leader_epochs
from kseg.storage import LocalFile, LocalStore
from kseg.tiering import fsck, restore
from kseg.tiering.metadata_records import COPY_FINISHED, fold_records, metadata_partition, read_segment_records
from kseg.tiering.metadata_writer import StoppedTopic
from kseg.tiering.objects import TierObjects
from kseg.types import TopicPartition
from tests.log.written import bases, clock, names, numbered
from tests.reference.murmur2 import murmur2
from tests.tiering.cluster import ENABLED, MARKER, METADATA, make_cluster, rows, run

TP = TopicPartition("a", 0)
LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])


def records_in(folder, number=0):
    return read_segment_records(kseg.open_log(folder / f"{METADATA}-{number}"))


@LAYOUTS
def test_sealed_segments_are_copied_and_announced(tmp_path, layout):
    folder = make_cluster(tmp_path / "data")
    before = {file: file.read_bytes() for file in (folder / "a-0").iterdir()}
    report = run(folder, tmp_path / "tier", layout=layout)
    assert [(s.base_offset, s.next_offset) for s in report.partitions[0].segments] == [(0, 10), (10, 20), (20, 30)]
    assert (report.segments, report.deleted_segments, report.refusals) == (3, 0, ())
    assert {file: file.read_bytes() for file in (folder / "a-0").iterdir()} == before
    told = sorted(records_in(folder).values(), key=lambda record: record.start_offset)
    assert [(r.start_offset, r.end_offset, r.state) for r in told] == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    assert [tuple(map(tuple, r.epochs)) for r in told] == [((0, 0),), ((0, 10),), ((1, 20),)]
    assert not any(record.txn_index_empty for record in told)
    assert (folder / MARKER).exists()
    found = fsck(str(tmp_path / "tier"), metadata=folder, remote_metadata_partitions=1, deep=True)
    assert (found.segments, found.findings) == (3, ())
    again = run(folder, tmp_path / "tier", layout=layout)
    assert again.segments == 0
    restore(str(tmp_path / "tier"), tmp_path / "new", metadata=folder)
    for isolation in ("read_uncommitted", "read_committed"):
        expected = [row for row in rows(folder / "a-0", isolation=isolation) if row.offset < 30]
        assert rows(tmp_path / "new" / "a-0", isolation=isolation) == expected


def test_a_dry_run_changes_nothing(tmp_path):
    folder = make_cluster(tmp_path / "data")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    report = run(folder, tmp_path / "tier", dry_run=True, delete_local=True)
    assert (report.segments, report.deleted_segments) == (3, 3)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    assert not (tmp_path / "tier").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"settings": {}}, "remote.storage.enable is not known"),
        ({"settings": {**ENABLED, "remote.storage.enable": False}}, "remote.storage.enable is false"),
        ({"settings": {**ENABLED, "cleanup.policy": "compact"}}, "compacted"),
        ({"remote_metadata_partitions": None}, "not known how many partitions"),
        ({"remote_metadata_partitions": 50}, "is in no directory that was given"),
    ],
)
def test_what_is_not_known_or_not_served_is_refused(tmp_path, options, reason):
    folder = make_cluster(tmp_path / "data")
    report = run(folder, tmp_path / "tier", **options)
    assert [reason in str(refusal) for refusal in report.refusals] == [True]
    assert report.segments == 0
    assert not (tmp_path / "tier").exists()


def test_an_undecided_transaction_holds_segments_back(tmp_path):
    folder = make_cluster(tmp_path / "data")
    with kseg.append_to(folder / "a-0") as writer:
        writer.roll()
        rows_ = kseg.open_log(folder / "a-0").read(0, 2, columns=["key", "value"])
        writer.append(list(rows_), producer_id=8, transactional=True)
        writer.roll()
        writer.append(list(kseg.open_log(folder / "a-0").read(0, 2, columns=["key", "value"])))
        writer.roll()
    report = run(folder, tmp_path / "tier")
    assert [segment.next_offset for segment in report.partitions[0].segments] == [10, 20, 30, 40]


@LAYOUTS
def test_local_files_go_once_their_copies_are_proved(tmp_path, layout):
    folder = make_cluster(tmp_path / "data")
    whole = rows(folder / "a-0")
    report = run(folder, tmp_path / "tier", layout=layout, delete_local=True)
    assert report.partitions[0].deleted == (0, 10, 20)
    assert report.partitions[0].local_start_offset == 30
    assert bases(folder / "a-0") == [30]
    assert not names(folder / "a-0", "*.deleted")
    assert read_checkpoint(LocalStore(), str(folder), CheckpointKind.LOG_START) == {TP: 0}
    assert (folder / "a-0" / "leader-epoch-checkpoint").read_text().splitlines()[1:] == ["2", "0 0", "1 20"]
    assert (folder / MARKER).read_bytes() == b"clean"
    assert {record.state for record in records_in(folder).values()} == {COPY_FINISHED}
    restore(str(tmp_path / "tier"), folder, metadata=folder)
    assert bases(folder / "a-0") == [0, 10, 20, 30]
    assert rows(folder / "a-0") == whole


def test_local_retention_keeps_what_it_shall(tmp_path):
    folder = make_cluster(tmp_path / "data")
    sizes = [segment.size for segment in kseg.open_log(folder / "a-0").segments]
    limits = {**ENABLED, "local.retention.ms": -1, "local.retention.bytes": sum(sizes[2:])}
    report = run(folder, tmp_path / "tier", delete_local=True, settings=limits)
    assert report.segments == 3
    assert bases(folder / "a-0") == [20, 30]


def test_local_files_stay_where_local_retention_is_not_known(tmp_path):
    folder = make_cluster(tmp_path / "data")
    report = run(folder, tmp_path / "tier", delete_local=True, settings={"remote.storage.enable": True})
    assert report.segments == 3
    assert "local files stay" in str(report.refusals[0])
    assert bases(folder / "a-0") == [0, 10, 20, 30]


@LAYOUTS
@pytest.mark.parametrize("harm", ["flip", "shorten", "delete"])
def test_nothing_goes_whose_copy_was_harmed_since(tmp_path, layout, harm):
    folder = make_cluster(tmp_path / "data")
    run(folder, tmp_path / "tier", layout=layout)
    (file,) = [path for path in (tmp_path / "tier").rglob("*.log") if path.name.startswith("00000000000000000010-")]
    data = file.read_bytes()
    if harm == "delete":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if harm == "shorten" else data[:80] + bytes([data[80] ^ 1]) + data[81:])
    report = run(folder, tmp_path / "tier", layout=layout, delete_local=True)
    assert bases(folder / "a-0") == [10, 20, 30]
    assert ["not proved" in str(refusal) for refusal in report.refusals] == [True]
    found = fsck(str(tmp_path / "tier"), deep=True, metadata=folder)
    assert not found.is_sound
    assert {finding.offset for finding in found.findings if finding.kind.is_damage} >= {10}


@LAYOUTS
def test_a_damaged_segment_is_not_copied(tmp_path, layout):
    folder = make_cluster(tmp_path / "data")
    path = folder / "a-0" / f"{10:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    report = run(folder, tmp_path / "tier", layout=layout, delete_local=True, workers=1)
    assert "checksum" in report.partitions[0].error
    assert [segment.base_offset for segment in report.partitions[0].segments] == [0]
    assert bases(folder / "a-0") == [10, 20, 30]
    assert not [
        file for file in (tmp_path / "tier").rglob(f"{10:020d}-*") if layout == "plain" or "manifest" in file.name
    ]


@LAYOUTS
def test_a_segment_is_read_once_and_what_makes_it_count_comes_last(tmp_path, monkeypatch, layout):
    folder = make_cluster(tmp_path / "data", segments=2, per_segment=3000)
    read, named = [], []
    read_into, rename = LocalFile.read_into, durable.rename

    def counted(self, position, view):
        got = read_into(self, position, view)
        if self.path == str(folder / "a-0" / f"{0:020d}.log"):
            read.append(got)
        return got

    def noted(source, target):
        rename(source, target)
        if str(target).startswith(str(tmp_path / "tier")):
            named.append(str(target).rpartition(".")[2])

    monkeypatch.setattr(LocalFile, "read_into", counted)
    monkeypatch.setattr(durable, "rename", noted)
    report = run(folder, tmp_path / "tier", workers=1, layout=layout)
    assert report.log_bytes <= sum(read) < 1.2 * report.log_bytes
    assert (named[0], named[-2:]) == (
        "log",
        ["timeindex", "index"] if layout == "plain" else ["indexes", "rsm-manifest"],
    )


@LAYOUTS
def test_a_good_copy_of_a_run_that_died_survives_damage_here(tmp_path, monkeypatch, layout):
    folder = make_cluster(tmp_path / "data", segments=2)
    write = StoppedTopic.write

    def dies(self, topic_id, partition, values, *, now_ms):
        if records_in(folder):
            raise StorageError("no more")
        write(self, topic_id, partition, values, now_ms=now_ms)

    with monkeypatch.context() as patch:
        patch.setattr(StoppedTopic, "write", dies)
        assert "no more" in run(folder, tmp_path / "tier", layout=layout).partitions[0].error
    copy = {file: file.read_bytes() for file in (tmp_path / "tier").rglob("*") if file.is_file()}
    assert len(copy) == (6 if layout == "plain" else 3)
    file = folder / "a-0" / f"{0:020d}.log"
    sound = file.read_bytes()
    file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    assert "checksum" in run(folder, tmp_path / "tier", layout=layout).partitions[0].error
    assert {file: file.read_bytes() for file in (tmp_path / "tier").rglob("*") if file.is_file()} == copy
    file.write_bytes(sound)
    assert run(folder, tmp_path / "tier", layout=layout).segments == 1


@LAYOUTS
def test_segments_without_leader_epochs_are_refused_and_not_called_damaged(tmp_path, layout):
    """As a broker, which copies oldest first and cannot describe such a segment."""
    folder = make_cluster(tmp_path / "data")
    write_leader_epochs(str(folder / "a-0"), LeaderEpochs((EpochStart(1, 20),)))
    (refusal,) = run(folder, tmp_path / "tier", layout=layout).refusals
    assert "no leader epoch is known of the segment at 0, as where batches have magic 0 or 1" in refusal.reason
    assert (refusal.subject, refusal.is_damage, (tmp_path / "tier").exists()) == ("a-0", False, False)
    update_checkpoint(str(folder), CheckpointKind.LOG_START, {TP: 20})
    report = run(folder, tmp_path / "tier", layout=layout)
    assert ([s.base_offset for s in report.partitions[0].segments], report.refusals) == ([20], ())


def test_segments_before_one_without_leader_epochs_are_copied(tmp_path):
    folder = make_cluster(tmp_path / "data", segments=3)
    run(folder, tmp_path / "tier")
    (folder / "a-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    with kseg.append_to(folder / "a-0", clock=clock) as writer:
        writer.roll()
        writer.append(numbered(1), leader_epoch=4)
    (folder / "a-0" / "leader-epoch-checkpoint").write_text("0\n1\n4 30\n")
    update_checkpoint(str(folder), CheckpointKind.HIGH_WATERMARK, {TP: 31})
    report = run(folder, tmp_path / "tier", delete_local=True)
    assert "of the segment at 20" in report.refusals[0].reason
    assert (report.segments, report.deleted_segments, bases(folder / "a-0")) == (0, 2, [20, 30])


def test_missing_indexes_and_snapshots_are_built(tmp_path):
    folder, bare = make_cluster(tmp_path / "data"), tmp_path / "bare"
    run(folder, tmp_path / "tier")
    shutil.copytree(folder, bare)
    for pattern in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
        for file in (bare / "a-0").glob(pattern):
            file.unlink()
    report = run(bare, tmp_path / "bare-tier", archive=True)
    assert report.segments == 3
    theirs, ours = (
        {(path.name[:20], path.suffix): path.read_bytes() for path in (tmp_path / tier).rglob("*-*.*")}
        for tier in ("tier", "bare-tier")
    )
    assert ours == theirs


def test_records_go_to_all_replicas_alike(tmp_path):
    folder = make_cluster(tmp_path / "data")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(folder / f"{METADATA}-0", other / f"{METADATA}-0")
    run(folder, tmp_path / "tier", remote_metadata=[folder, other])
    logs = [(place / f"{METADATA}-0" / f"{0:020d}.log").read_bytes() for place in (folder, other)]
    assert logs[0] == logs[1] != b""


def test_replicas_that_differ_are_refused(tmp_path):
    folder = make_cluster(tmp_path / "data")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(folder / f"{METADATA}-0", other / f"{METADATA}-0")
    with kseg.append_to(other / f"{METADATA}-0") as writer:
        writer.append(list(kseg.open_log(folder / "a-0").read(0, 1, columns=["value"])))
    report = run(folder, tmp_path / "tier", remote_metadata=[folder, other])
    assert "differ" in str(report.refusals[0])


def test_a_journal_of_another_tier_is_not_lost(tmp_path):
    folder = make_cluster(tmp_path / "data")
    (tmp_path / "file").write_bytes(b"")
    report = run(folder, tmp_path / "file" / "tier")  # no directory can be made there
    assert report.partitions[0].error
    with pytest.raises(OptionError, match="was begun here and did not end"):
        run(folder, tmp_path / "tier")


def test_a_live_broker_keeps_it_out(tmp_path):
    folder = make_cluster(tmp_path / "data")
    with kseg.append_to(folder / "a-0"), pytest.raises(LockedError):
        run(folder, tmp_path / "tier")


def test_the_partition_is_by_javas_hash_of_the_id():
    """In plain arithmetic; that a broker reads there what was written is in test_broker.py, with three partitions."""
    for topic_id, partition in (("B3RXWuOsQ1C167V10rAPFA", 0), ("RTU9_DHaRLKosD1Sg-V6hw", 7)):
        raw = base64.urlsafe_b64decode(topic_id + "==")
        code = 1
        for number in (int.from_bytes(raw[8:], "big"), int.from_bytes(raw[:8], "big")):
            code = 31 * code + ((number ^ (number >> 32)) & 0xFFFFFFFF)
        code = (31 * code + partition) & 0xFFFFFFFF
        expected = (murmur2(code.to_bytes(4, "big")) & 0x7FFFFFFF) % 50
        assert metadata_partition(topic_id, partition, 50) == expected


def test_golden_records_encode_to_the_brokers_bytes(golden):
    log = kseg.open_log(golden / "tiered" / "local" / f"{METADATA}-0")
    values = [value for batch in log.read(columns=["value"]) for value in batch.column(0).to_pylist()]
    started = [fold_records([value]) for value in values]
    for value, found in zip(values, started, strict=True):
        for record in found.values():
            assert record.started_value() == value
    whole = fold_records(values)
    finished = {record.finished_value(_event_time(value)) for value in values for record in whole.values()}
    assert {value for value, found in zip(values, started, strict=True) if not found} <= finished


def _event_time(value):
    return decode(None, value)["value"]["eventTimestampMs"]


def test_segments_below_the_log_start_go_without_a_copy(tmp_path):
    folder = make_cluster(tmp_path / "data")
    update_checkpoint(str(folder), CheckpointKind.LOG_START, {TP: 12})
    report = run(folder, tmp_path / "tier", delete_local=True, settings={**ENABLED, "local.retention.ms": -1})
    assert report.refusals == ()
    assert [segment.base_offset for segment in report.partitions[0].segments] == [10, 20]
    assert bases(folder / "a-0") == [10, 20, 30]
    assert read_checkpoint(LocalStore(), str(folder), CheckpointKind.LOG_START) == {TP: 12}


def test_a_manifest_that_cannot_be_written_does_not_undo_those_before_it(tmp_path, monkeypatch):
    folder = make_cluster(tmp_path / "data")
    put = TierObjects.put_bytes

    def refuse(self, key, data):
        if f"{10:020d}" in key and key.endswith("manifest"):
            raise StorageError("ACCESS_DENIED", path=key)
        return put(self, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(TierObjects, "put_bytes", refuse)
        report = run(folder, tmp_path / "tier", layout="chunked")
    assert "ACCESS_DENIED" in report.partitions[0].error
    assert [segment.base_offset for segment in report.partitions[0].segments] == [0]
    assert sorted(record.state for record in records_in(folder).values()) == [0, 0, COPY_FINISHED]
    assert run(folder, tmp_path / "tier", layout="chunked").segments == 2
    assert {record.state for record in records_in(folder).values()} == {COPY_FINISHED}
    assert fsck(str(tmp_path / "tier"), metadata=folder, remote_metadata_partitions=1, deep=True).findings == ()
