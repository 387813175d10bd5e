"""Fsck of tiers that were harmed, left half done, or disagree with the cluster's metadata."""

from __future__ import annotations

import json
import os
import shutil
import time

import pyarrow as pa
import pytest

import kseg
from kseg.errors import OptionError
from kseg.tiering import fsck, offload
from kseg.tiering.fsck_report import Kind
from kseg.tiering.layout import PlainPart
from tests.builders import LogBuilder
from tests.faults.store import at, failing
from tests.log.written import numbered
from tests.tiering.changed import change_part, read_part
from tests.tiering.cluster import METADATA, make_cluster, partitions_elsewhere, run

DAY_S = 86_400
LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])


@pytest.fixture
def tier(tmp_path):
    return tmp_path / "tier"


@pytest.fixture
def folder(tmp_path):
    return make_cluster(tmp_path / "data")


def checked(tier, folder=None, **options):
    given = {} if folder is None else {"metadata": folder, "remote_metadata_partitions": 1}
    return fsck(str(tier), **given, **options)


def kinds(report):
    return sorted((finding.kind.value, finding.offset) for finding in report.findings)


def objects(tier, base, suffix=""):
    return [path for path in tier.rglob(f"{base:020d}-*{suffix}") if path.is_file()]


def make_old(paths, seconds=DAY_S + 60):
    then = time.time() - seconds
    for path in paths:
        os.utime(path, (then, then))


@pytest.mark.parametrize(
    ("layout", "suffix", "found"),
    [
        ("plain", ".log", "orphan"),
        ("plain", ".index", "missing"),
        ("plain", ".snapshot", "missing"),
        ("chunked", ".log", "missing"),
        ("chunked", ".indexes", "missing"),
        ("chunked", ".rsm-manifest", "orphan"),
    ],
)
def test_a_part_that_is_gone(folder, tier, layout, suffix, found):
    run(folder, tier, layout=layout)
    for path in objects(tier, 10, suffix):
        path.unlink()
    gaps = [("gap", 20)] if layout == "chunked" else []
    assert kinds(checked(tier)) == sorted([(found, 10), *gaps])
    told = checked(tier, folder)  # the metadata has promised it
    assert kinds(told) == sorted([("missing", 10), *gaps])
    assert not told.is_sound


@LAYOUTS
def test_a_segment_that_is_gone_altogether(folder, tier, layout):
    run(folder, tier, layout=layout)
    for path in objects(tier, 10):
        path.unlink()
    assert ("missing", 10) in kinds(checked(tier, folder))


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
def test_sizes_against_the_manifest(folder, tier, suffix):
    run(folder, tier, layout="chunked")
    (path,) = objects(tier, 20, suffix)
    path.write_bytes(path.read_bytes()[:-1])
    report = checked(tier)
    assert kinds(report) == [("size", 20)]
    assert not report.is_sound


@LAYOUTS
def test_only_deep_reads_see_a_flipped_byte_in_the_middle(tmp_path, tier, layout):
    folder = make_cluster(tmp_path / "data", per_segment=400)
    run(folder, tier, layout=layout, compression=False)
    (path,) = objects(tier, 400, ".log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert kinds(checked(tier)) == []
    assert kinds(checked(tier, deep=True)) == [("damage", 400)]


SMALL = [".index", ".timeindex", ".txnindex", ".snapshot", ".leader_epoch_checkpoint"]


@pytest.mark.parametrize("suffix", SMALL)
def test_deep_reads_see_small_parts_that_were_cut_off(tmp_path, tier, suffix):
    run(make_cluster(tmp_path / "data", per_segment=1200), tier)
    assert checked(tier, deep=True).findings == ()
    (path,) = objects(tier, 1200, suffix)
    path.write_bytes(path.read_bytes()[:-2])
    found = checked(tier, deep=True)
    assert kinds(found) == [("damage", 1200)]
    assert suffix in found.findings[0].text
    assert not found.is_sound


@pytest.mark.parametrize("suffix", SMALL[:3])
def test_deep_reads_see_an_index_of_another_segment(tmp_path, tier, suffix):
    run(make_cluster(tmp_path / "data", per_segment=1200), tier)
    (path,), (other,) = objects(tier, 1200, suffix), objects(tier, 0, suffix)
    assert path.read_bytes() != other.read_bytes()
    shutil.copy(other, path)
    assert kinds(checked(tier, deep=True)) == [("damage", 1200)]


@LAYOUTS
@pytest.mark.parametrize(
    ("part", "made", "said"),
    [
        (
            PlainPart.TXN_INDEX,
            lambda _: b"",
            "producer 6 aborted a transaction that began at 4000, and it is not there",
        ),
        (PlainPart.TXN_INDEX, lambda _: None, "producer 6 aborted a transaction that began at 4000, and it is not th"),
        (PlainPart.OFFSET_INDEX, lambda _: b"", "has no entry for the last"),
        (PlainPart.OFFSET_INDEX, lambda parts: parts[4000][:8], "has too few entries: 1, and the time index"),
        (PlainPart.SNAPSHOT, lambda parts: parts[0], "the newest batch of producer 6 ends at 3993, in the segment at"),
        (PlainPart.SNAPSHOT, lambda parts: parts[8000], "producer 6 is there with offset 11993, and the segment ends"),
        (PlainPart.LEADER_EPOCHS, lambda parts: parts[8000], "epoch 1 begins at 8000, and the segment ends at 8000"),
        (PlainPart.LEADER_EPOCHS, lambda _: b"0\n1\n7 0\n", "has epoch 7 for a batch of epoch 0"),
        (PlainPart.LEADER_EPOCHS, lambda _: b"0\n0\n", "is empty, and batches have leader epochs up to 0"),
    ],
)
def test_deep_reads_see_small_parts_that_are_sound_and_not_the_segments_own(
    indexed_tiers, tier, layout, part, made, said
):
    shutil.copytree(indexed_tiers / layout, tier)
    change_part(tier, 4000, part, made({base: read_part(tier, base, part) for base in (0, 4000, 8000)}))
    found = checked(tier, deep=True)
    assert kinds(found) == [("damage", 4000)]
    assert part.value in found.findings[0].text
    assert said in found.findings[0].text


@LAYOUTS
def test_deep_reads_find_nothing_wrong_with_parts_of_many_entries(indexed_tiers, layout):
    assert checked(indexed_tiers / layout, deep=True).findings == ()


def test_deep_reads_see_epochs_of_the_segment_before(tmp_path, tier):
    run(make_cluster(tmp_path / "data"), tier)
    change_part(tier, 20, PlainPart.LEADER_EPOCHS, read_part(tier, 10, PlainPart.LEADER_EPOCHS))
    (found,) = checked(tier, deep=True).findings
    assert "has epoch 0 for a batch of epoch 1" in found.text


def test_deep_reads_see_a_lost_entry_of_a_transaction_that_began_a_segment_before(tmp_path, tier):
    partition = tmp_path / "data" / "a-0"
    with kseg.create_log(partition) as writer:
        writer.append(numbered(3), producer_id=5, transactional=True)
        writer.roll()
        writer.append_marker(5, commit=False)
        writer.roll()
        writer.append(numbered(1))
    offload(partition, str(tier), layout="plain", archive=True)
    assert checked(tier, deep=True).findings == ()
    (path,) = objects(tier, 3, ".txnindex")
    path.unlink()
    (found,) = checked(tier, deep=True).findings
    assert "producer 5 aborted a transaction that began at 0, and it is not there" in found.text


def test_deep_reads_see_an_offset_index_without_its_last_entries(tmp_path, tier):
    partition = tmp_path / "data" / "a-0"
    with kseg.create_log(partition) as writer:
        block = pa.table({"value": [b"x" * (1 << 20)], "timestamp": [1]})
        for _ in range(20):
            writer.append(block)
        writer.roll()
        writer.append(block)
    offload(partition, str(tier), layout="plain", archive=True)
    assert checked(tier, deep=True).findings == ()
    (path,) = objects(tier, 0, ".index")
    path.write_bytes(path.read_bytes()[:8])
    (found,) = checked(tier, deep=True).findings
    assert "has no entry for the last" in found.text


def test_deep_reads_see_a_flipped_bit_in_the_indexes(tmp_path, tier):
    """But for the first offsets of aborted transactions, which may lie in segments before, and epochs' digits."""
    run(make_cluster(tmp_path / "data", per_segment=1200), tier, layout="chunked", compression=False)
    (path,) = objects(tier, 1200, ".indexes")
    data = path.read_bytes()
    places = json.loads(objects(tier, 1200, ".rsm-manifest")[0].read_bytes())["segmentIndexes"]
    for name, inside in (("offset", 7), ("timestamp", 7), ("producerSnapshot", 20), ("transaction", 9)):
        changed = bytearray(data)
        changed[places[name]["position"] + inside] ^= 1
        path.write_bytes(changed)
        assert kinds(checked(tier, deep=True)) == [("damage", 1200)], name
    path.write_bytes(data)
    assert checked(tier, deep=True).findings == ()


def test_deep_reads_see_a_log_that_became_empty(folder, tier):
    run(folder, tier)
    objects(tier, 10, ".log")[0].write_bytes(b"")
    assert kinds(checked(tier, deep=True)) == [("damage", 10)]


@LAYOUTS
def test_what_the_store_denies_is_not_called_damage(folder, tier, layout):
    run(folder, tier, layout=layout)
    (log,) = objects(tier, 0, ".log")
    with failing(at(1, "denied"), str(log.with_suffix(""))) as faults:
        report = checked(tier, folder, deep=True, workers=1)
    assert (faults.failed, kinds(report), report.is_sound) == (1, [("unread", 0)], False)


@LAYOUTS
def test_a_second_copy_that_no_metadata_knows(folder, tier, layout):
    run(folder, tier, layout=layout)
    run(folder, tier.parent / "twin", layout=layout, archive=True)
    shutil.copytree(tier.parent / "twin", tier, dirs_exist_ok=True)
    assert {kind for kind, _ in kinds(checked(tier))} == {"overlap"}
    report = checked(tier, folder)
    assert kinds(report) == [("orphan", 0), ("orphan", 10), ("orphan", 20)]
    assert report.is_sound


@LAYOUTS
def test_old_orphans_are_deleted_and_young_ones_stay(folder, tier, layout):
    run(folder, tier, layout=layout)
    run(folder, tier.parent / "twin", layout=layout, archive=True)
    make_old(path for base in (0, 10) for path in objects(tier.parent / "twin", base))
    make_old(objects(tier.parent / "twin", 20), seconds=DAY_S - 600)
    shutil.copytree(tier.parent / "twin", tier, dirs_exist_ok=True)
    before = {path.name for path in tier.rglob("*") if path.is_file()}
    young = {path.name for path in objects(tier.parent / "twin", 20)}
    old = {path.name for base in (0, 10) for path in objects(tier.parent / "twin", base)}
    report = checked(tier, folder, delete_orphans=True)
    assert [finding.offset for finding in report.findings if finding.deleted] == [0, 10]
    assert {path.name for path in tier.rglob("*") if path.is_file()} == before - old
    assert young <= before
    assert kinds(checked(tier, folder, deep=True)) == [("orphan", 20)]


@LAYOUTS
def test_an_upload_under_way_is_no_orphan(folder, tier, layout, monkeypatch):
    """STARTED without FINISHED: it stays, however old its objects are."""
    from kseg.tiering.offload_partition import PartitionRun

    with monkeypatch.context() as patch:
        patch.setattr(PartitionRun, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(folder, tier, layout=layout)
    make_old(path for path in tier.rglob("*") if path.is_file())
    report = checked(tier, folder, delete_orphans=True)
    assert kinds(report) == [("unfinished", 0), ("unfinished", 10), ("unfinished", 20)]
    assert report.deleted_bytes == 0
    assert run(folder, tier, layout=layout).segments == 3
    assert kinds(checked(tier, folder, deep=True)) == []


def test_orphans_of_which_the_metadata_cannot_tell_stay(tmp_path, tier):
    folder = make_cluster(tmp_path / "data")
    run(folder, tier, archive=True)
    for path in tier.rglob("*.log"):
        path.unlink()
    make_old(path for path in tier.rglob("*") if path.is_file())
    with pytest.raises(OptionError, match="cannot be told from an upload under way"):
        fsck(str(tier), delete_orphans=True)
    partitions = partitions_elsewhere(folder)
    elsewhere = fsck(str(tier), metadata=folder, remote_metadata_partitions=partitions, delete_orphans=True)
    assert kinds(elsewhere) == [("orphan", 0), ("orphan", 10), ("orphan", 20)]
    assert elsewhere.deleted_bytes == 0
    assert checked(tier, folder, delete_orphans=True).deleted_bytes > 0
    assert not any(path.is_file() for path in tier.rglob("*"))


def test_strangers_are_told_and_left_alone(folder, tier):
    run(folder, tier)
    (tier / "notes.txt").write_bytes(b"mine")
    make_old([tier / "notes.txt"])
    report = checked(tier, folder, delete_orphans=True)
    assert [(finding.kind, finding.keys) for finding in report.findings] == [(Kind.STRANGER, ("notes.txt",))]
    assert (tier / "notes.txt").exists()


def test_a_directory_without_the_topic_is_refused(tmp_path, folder, tier):
    run(folder, tier)
    shutil.rmtree(folder / f"{METADATA}-0")
    with pytest.raises(OptionError, match=METADATA):
        checked(tier, folder)


def test_deep_reads_take_an_empty_epoch_checkpoint_of_batches_that_were_legacy_once(tmp_path, tier):
    """A legacy batch clears a broker's checkpoint, and is one of magic 2 without an epoch after a cleaning."""
    log = LogBuilder(tmp_path / "data", "a").batch(leader_epoch=0).batch(leader_epoch=-1).segment().batch(1)
    log.write()
    kseg.recover(log.path, all=True)
    (log.path / "leader-epoch-checkpoint").write_text("0\n0\n")
    offload(log.path, str(tier), layout="plain", archive=True)
    assert checked(tier, deep=True).findings == ()
