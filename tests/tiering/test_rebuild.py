"""`__remote_log_metadata` rebuilt from a tier: which segments a stopped cluster is told of, and in which words."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest

import kseg
from kseg.errors import OptionError
from kseg.log.checkpoints import CheckpointKind, update_checkpoint
from kseg.log.metadata import MetaProperties
from kseg.tiering import fsck, rebuild_metadata
from kseg.tiering.marks import Mark
from kseg.tiering.metadata_records import COPY_FINISHED, fold_records, read_segment_records
from kseg.tiering.offload_partition import PartitionRun
from kseg.tiering.retirement import retire
from kseg.types import TopicPartition
from tests.cli.calls import call
from tests.faults.disk import each_fault
from tests.log.written import clock
from tests.tiering.cluster import MARKER, METADATA, NOW, QUICK, make_cluster, run
from tests.tiering.conftest import TREES
from tests.tiering.retired import names, partition_tier
from tests.views import support

LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])
TP = TopicPartition("a", 0)


@pytest.fixture
def folder(tmp_path):
    return make_cluster(tmp_path / "data")


@pytest.fixture
def tier(tmp_path):
    return tmp_path / "tier"


def records(folder, number=0):
    return read_segment_records(kseg.open_log(folder / f"{METADATA}-{number}"))


def lose(folder):
    """The topic's files are lost, and made anew."""
    shutil.rmtree(folder / f"{METADATA}-0")
    with kseg.create_log(folder / f"{METADATA}-0", clock=clock):
        pass


def rebuild(tier, folder, **options):
    return rebuild_metadata(
        str(tier), folder, **{"remote_metadata_partitions": 1, "now_ms": NOW, "retry": QUICK, **options}
    )


def told(report):
    return [(segment.base_offset, segment.next_offset) for found in report.partitions for segment in found.segments]


def reasons(report):
    return sorted(reason for found in report.partitions for reason in found.passed_over.values())


@LAYOUTS
def test_what_is_told_is_what_an_offload_had_told(folder, tier, layout):
    run(folder, tier, layout=layout, delete_local=True)
    before, whole = records(folder), kseg.open_log(folder / "a-0", remote=str(tier))
    expected = [row for batch in whole.read() for row in batch.to_pylist()]
    lose(folder)
    assert told(rebuild(tier, folder, dry_run=True)) == [(0, 10), (10, 20), (20, 30)]
    assert records(folder) == {}
    report = rebuild(tier, folder)
    assert (told(report), report.refusals, reasons(report)) == ([(0, 10), (10, 20), (20, 30)], (), [])
    after = records(folder)
    assert after.keys() == before.keys()
    for segment_id, record in after.items():
        old = before[segment_id]
        for name in ("start_offset", "end_offset", "size", "epochs", "state", "txn_index_empty", "max_timestamp_ms"):
            assert getattr(record, name) == getattr(old, name), name
    found = fsck(str(tier), metadata=folder, remote_metadata_partitions=1, deep=True)
    assert (found.segments, found.findings) == (3, ())
    log = kseg.open_log(folder / "a-0", remote=str(tier))
    assert [row for batch in log.read() for row in batch.to_pylist()] == expected
    assert (folder / MARKER).exists()
    again = rebuild(tier, folder)
    assert (told(again), again.partitions[0].known) == ([], 3)


@LAYOUTS
def test_only_what_the_metadata_does_not_name(folder, tier, layout):
    run(folder, tier, layout=layout)
    shutil.copytree(folder, folder.parent / "later")
    first = next(segment_id for segment_id, r in records(folder).items() if r.start_offset == 10)
    lose(folder)
    write_one(folder, folder.parent / "later", first)
    assert told(rebuild(tier, folder)) == [(0, 10), (20, 30)]
    assert sorted(r.start_offset for r in records(folder).values()) == [0, 10, 20]


def write_one(folder, source, segment_id):
    """Announce one segment as it was announced before."""
    record = records(source)[segment_id]
    with kseg.append_to(folder / f"{METADATA}-0", clock=clock) as writer:
        values = [record.started_value(), record.finished_value(NOW)]
        writer.append(support.pa.table({"value": values}))


@LAYOUTS
def test_a_twin_of_what_is_known_is_passed_over(folder, tier, layout):
    run(folder, tier, layout=layout)
    run(folder, tier.parent / "twin", layout=layout, archive=True)
    shutil.copytree(tier.parent / "twin", tier, dirs_exist_ok=True)
    before = records(folder)
    report = rebuild(tier, folder)
    assert (told(report), len(reasons(report))) == ([], 3)
    assert records(folder) == before
    lose(folder)
    assert told(rebuild(tier, folder)) == [(0, 10), (10, 20), (20, 30)]  # one of each
    assert len(records(folder)) == 3


@LAYOUTS
def test_what_is_retired_is_not_told_again(folder, tier, layout):
    run(folder, tier, layout=layout)
    lose(folder)
    retire(partition_tier(tier), Mark("retention", (names(tier)[0],)), now_ms=NOW)
    report = rebuild(tier, folder)
    assert (told(report), reasons(report)) == ([(10, 20), (20, 30)], ["it is retired"])


@LAYOUTS
def test_an_upload_off_the_lineage_is_passed_over(folder, tier, layout, tmp_path):
    """A leader that was replaced had copied offsets that the log has from another one."""
    run(folder, tier, layout=layout)
    other = make_cluster(tmp_path / "other", segments=3)
    directory = other / "a-0"
    (directory / "partition.metadata").write_bytes((folder / "a-0" / "partition.metadata").read_bytes())
    with kseg.append_to(directory, clock=clock) as writer:
        writer.append(support.record_table("a", [(b"k", b"v")] * 9), leader_epoch=0 + 1)
        writer.roll()
    run(other, tier.parent / "stale", layout=layout, archive=True)
    stale = {path.name: path for path in (tier.parent / "stale").rglob("*") if path.is_file() and "020-" in path.name}
    assert stale
    for path in stale.values():
        target = tier / path.relative_to(tier.parent / "stale")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    lose(folder)
    report = rebuild(tier, folder)
    kept = {segment.segment_id for found in report.partitions for segment in found.segments}
    reader = kseg.open_log(folder / "a-0", remote=str(tier))
    chosen = {segment.path.rpartition("/")[2][21:43] for segment in reader.segments if segment.tier == "remote"}
    assert kept >= chosen
    assert len(kept) == 3


def test_what_was_begun_or_is_deleted_stays_as_it_is(folder, tier, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(PartitionRun, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(folder, tier)
    before = records(folder)
    report = rebuild(tier, folder)
    assert told(report) == []
    assert reasons(report) == ["the metadata says that its copy or deletion was begun"] * 3
    assert records(folder) == before


def test_what_brokers_would_delete_is_not_told(folder, tier):
    """The log start was moved up: they delete what lies before it, from the tier too."""
    run(folder, tier)
    lose(folder)
    update_checkpoint(str(folder), CheckpointKind.LOG_START, {TP: 10})
    report = rebuild(tier, folder)
    assert (told(report), reasons(report)) == (
        [(10, 20), (20, 30)],
        ["the log starts at 10: brokers would delete it"],
    )


@LAYOUTS
def test_incomplete_and_damaged_segments_are_not_told(folder, tier, layout):
    run(folder, tier, layout=layout)
    lose(folder)
    for path in tier.rglob("*.log"):
        if path.name.startswith(f"{10:020d}"):
            path.unlink()
        elif path.name.startswith(f"{20:020d}"):
            path.write_bytes(path.read_bytes()[:-7])
    report = rebuild(tier, folder)
    assert [base for base, _ in told(report)] == [0]
    assert [refusal.is_damage for refusal in report.refusals] == [True]
    assert reasons(report) == ["objects of it are missing"] * (layout == "chunked")


def test_a_manifest_that_cannot_be_read_stops_its_partition_until_it_is_moved_away(folder, tier):
    """A broker that is told of the rest alone would pass over its offsets for good."""
    run(folder, tier, layout="chunked", delete_local=True)
    before = records(folder)
    lose(folder)
    broken = sorted(tier.rglob("*.rsm-manifest"))[:2]
    for path in broken:
        path.write_bytes(path.read_bytes()[:-20])
    report = rebuild(tier, folder)
    assert told(report) == []
    assert "2 manifests cannot be read" in report.partitions[0].error
    assert "move them away" in report.partitions[0].error
    assert [refusal.is_damage for refusal in report.refusals] == [True, True]
    assert [path.name in str(refusal) for path, refusal in zip(broken, report.refusals, strict=True)] == [True, True]
    assert records(folder) == {}
    given = ("fsck", tier, "--metadata", folder, "--rebuild-metadata", "--remote-metadata-partitions", "1", "--yes")
    answer = call(*given)
    assert answer.status != 0
    assert broken[0].name in answer.text
    for path in broken:
        path.rename(folder.parent / path.name)
    assert told(rebuild(tier, folder)) == [(20, 30)]
    assert list(records(folder)) == [key for key, r in before.items() if r.start_offset == 20]


@LAYOUTS
def test_a_part_of_a_tier_is_refused(folder, tier, layout):
    """Below it the objects' names do not tell all."""
    run(folder, tier, layout=layout)
    lose(folder)
    (place,) = {path.parent for path in tier.rglob("*.log")}
    for part in (place, place.parent):
        report = rebuild(part, folder)
        assert (told(report), ["a part of the tier" in str(refusal) for refusal in report.refusals]) == ([], [True])


def test_from_s3(s3, folder):
    uri = s3.bucket("tier").replace("?", "/some/prefix/?")
    run(folder, uri, layout="chunked")
    lose(folder)
    assert told(rebuild(uri, folder)) == [(0, 10), (10, 20), (20, 30)]
    found = fsck(uri, metadata=folder, remote_metadata_partitions=1, retry=QUICK)
    assert (found.segments, found.findings) == (3, ())


def test_segments_of_other_topics_are_refused(folder, tier, tmp_path):
    """A topic that was deleted must not come back; nor one that brokers would not look up."""
    run(folder, tier)
    topic_id = kseg.open_log(folder / "a-0").topic_id
    for name, image_id, enabled, reason in [
        ("gone", "AAAAAAAAAAAAAAAAAAAAbQ", "true", "no topic of id"),
        ("off", topic_id, "false", "remote.storage.enable is not true"),
    ]:
        place = tmp_path / name
        shutil.copytree(folder, place)
        write_metadata(place, image_id, enabled)
        report = rebuild(tier, place)
        assert (told(report), [reason in str(refusal) for refusal in report.refusals]) == ([], [True])


def write_metadata(place, topic_id, enabled="true", replicas=(1,)):
    """A metadata log that tells of topic `a` and of the metadata topic."""
    metadata_id = "AAAAAAAAAAAAAAAAAAAAdA"
    made = [support.metadata("TopicRecord", name="a", topicId=topic_id)]
    made.append(support.metadata("TopicRecord", name=METADATA, topicId=metadata_id))
    for topic in (topic_id, metadata_id):
        value = {
            "partitionId": 0,
            "topicId": topic,
            "replicas": list(replicas),
            "isr": list(replicas),
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": replicas[0],
            "leaderEpoch": 0,
            "partitionEpoch": 0,
        }
        made.append(support.metadata("PartitionRecord", **value))
    config = {"resourceType": 2, "resourceName": "a", "name": "remote.storage.enable", "value": enabled}
    made.append(support.metadata("ConfigRecord", **config))
    support.write_metadata_log(place, made)
    return metadata_id


def test_partitions_that_were_lost_are_made(folder, tier, tmp_path):
    """On all brokers that hold them; a broker whose directory was not given stands against it."""
    run(folder, tier)
    metadata_id = write_metadata(folder, kseg.open_log(folder / "a-0").topic_id, replicas=(1, 2))
    shutil.rmtree(folder / f"{METADATA}-0")
    other = tmp_path / "other"
    other.mkdir()
    for node, place in enumerate((folder, other), 1):
        (place / "meta.properties").write_bytes(MetaProperties(node_id=node, cluster_id="c").to_bytes())
    report = rebuild(tier, folder, remote_metadata_partitions=None)
    assert (told(report), "in no directory that was given" in str(report.refusals[0])) == ([], True)
    places = [folder, other]
    report = rebuild(tier, places, remote_metadata_partitions=None, dry_run=True)
    assert (len(report.made), told(report)) == (2, [(0, 10), (10, 20), (20, 30)])
    assert not (other / f"{METADATA}-0").exists()
    report = rebuild(tier, places, remote_metadata_partitions=None)
    assert (report.refusals, told(report)) == ((), [(0, 10), (10, 20), (20, 30)])
    for place in places:
        log = kseg.open_log(place / f"{METADATA}-0")
        assert (log.topic_id, log.end_offset, len(records(place))) == (metadata_id, 6, 3)


def test_the_number_of_partitions_has_to_be_known(folder, tier):
    run(folder, tier)
    with pytest.raises(OptionError, match="how many partitions"):
        rebuild(tier, folder, remote_metadata_partitions=None)


def test_the_command_line(folder, tier):
    run(folder, tier)
    lose(folder)
    given = ("fsck", tier, "--metadata", folder, "--remote-metadata-partitions", 1, "--rebuild-metadata")
    assert call(*given).status == 2  # nobody to ask
    assert call(*given, "--delete-orphans", "--yes").status == 2
    assert call("fsck", tier, "--rebuild-metadata", "--yes").status == 2
    answer = call(*given, "--dry-run")
    assert (answer.status, answer.lines[-1]) == (0, "__remote_log_metadata would be told of 3 segments")
    answer = call(*given, "--yes", "--json")
    assert (answer.status, answer.objects[-1]["summary"]["segments"]) == (0, 3)
    assert call(*given[:-1]).lines[-1].endswith("0 findings")


def test_every_operation_can_fail(tmp_path, monkeypatch):
    """Nothing was told, or all of a partition; a second run tells the rest."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    start = tmp_path / "start"
    folder = make_cluster(start / "data", segments=2)
    run(folder, start / "tier")
    write_metadata(folder, kseg.open_log(folder / "a-0").topic_id)
    shutil.rmtree(folder / f"{METADATA}-0")
    (folder / "meta.properties").write_bytes(MetaProperties(node_id=1, cluster_id="c").to_bytes())

    def job(place, promise):
        report = rebuild(place / "tier", place / "data")
        if report.segments and not any(found.error for found in report.partitions):
            promise("told")

    def check(place, end):
        job(place, lambda _: None)
        assert [record.state for record in records(place / "data").values()] == [1]
        if end.promised:
            assert (place / "data" / MARKER).exists()

    assert each_fault(start, job, check, folder=tmp_path, every=3) > 20


def test_a_partition_whose_uploads_are_all_under_way_is_read(folder, tier, monkeypatch):
    """The list of finished segments was empty, and readers failed with a ValueError."""
    with monkeypatch.context() as patch:
        patch.setattr(PartitionRun, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(folder, tier)
    log = kseg.open_log(folder / "a-0", remote=str(tier))
    assert {segment.tier for segment in log.segments} == {"local"}


@pytest.mark.parametrize("tree", TREES)
def test_the_records_are_those_that_a_broker_had_written(golden, golden_keys, tmp_path, tree):
    """The topic is lost, and comes back from the objects that the broker's plugins have written."""
    place = shutil.copytree(golden / tree / "local", tmp_path / "local")
    before, announced = records(place), begun(place)
    before = {key: record for key, record in before.items() if record.state == COPY_FINISHED}
    assert len(before) > 5
    shutil.rmtree(place / f"{METADATA}-0")
    report = rebuild_metadata(str(golden / tree / "remote"), place, keys=golden_keys, retry=QUICK, now_ms=NOW)
    assert (report.refusals, len(report.made), report.segments) == ((), 1, len(before))
    after, told = records(place), begun(place)
    assert after.keys() == told.keys() == before.keys()
    for segment_id, record in after.items():
        expected = replace(before[segment_id], custom=None, event_timestamp_ms=NOW)  # custom: only the topic held it
        if tree == "tiered":  # its objects do not tell
            assert record == replace(expected, broker_id=-1)
        else:
            assert (record, told[segment_id]) == (expected, announced[segment_id])


def begun(folder):
    """The records that announce copies, by segments."""
    values = kseg.open_log(folder / f"{METADATA}-0").read(columns=["value"], read_past_high_watermark=True)
    every = (value for batch in values for value in batch.column(0).to_pylist())
    return {key: record for value in every for key, record in fold_records([value]).items()}
