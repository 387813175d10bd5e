"""Erasing from a tier: rows go, offsets stay, whoever reads sees the new, and the report tells what is still there."""

from __future__ import annotations

import shutil

import pytest

import kseg
from kseg.compaction import RemoteOptions, erase
from kseg.errors import OptionError
from kseg.tiering import fsck, restore
from kseg.tiering.manifest import SegmentManifest
from tests.tiering.conftest import TREES, golden_keys  # noqa: F401
from tests.tiering.retired import marks, objects
from tests.tiering.test_golden_tiers import LEVELS, TOPICS, expected, rows_of

KEYS = [b"k55", b"k7"]


def copied(golden, name, tmp_path):
    """A golden tree that may be changed."""
    tree = tmp_path / "tree"
    shutil.copytree(golden / name, tree)
    return tree


def without_keys(rows):
    return [row for row in rows if row[3] not in KEYS]


@pytest.mark.parametrize("name", TREES)
def test_golden_tiers_of_a_cluster(golden, golden_keys, tmp_path, name):  # noqa: F811
    tree = copied(golden, name, tmp_path)
    local, remote = tree / "local", tree / "remote"
    options = RemoteOptions(keys=golden_keys, remote_metadata_partitions=1)
    before = objects(remote)
    meant = sum(1 for topic in TOPICS for row in expected(tree, topic, LEVELS[0]) if row[3] in KEYS)
    planned = erase(local, remote=str(remote), keys=KEYS, topics=TOPICS, remote_options=options, dry_run=True)
    assert planned.records == meant
    assert objects(remote) == before

    report = erase(local, remote=str(remote), keys=KEYS, topics=TOPICS, remote_options=options)
    assert report.failed == () and report.refusals == ()
    assert (report.records, report.left) == (meant, 0)
    remote_places = [place for place in report.places if place.tier == "remote"]
    rewritten = sum(len(place.segments) for place in remote_places)
    assert rewritten and len(report.lingering) == rewritten
    assert sum(found.records for found in report.lingering) == sum(place.records for place in remote_places)
    assert not report.is_proof  # the old objects are still there
    assert set(before) <= set(objects(remote))

    report = erase(
        local,
        remote=str(remote),
        keys=KEYS,
        topics=TOPICS,
        remote_options=RemoteOptions(keys=golden_keys, remote_metadata_partitions=1, grace_ms=0),
    )
    assert (report.records, report.lingering, report.is_proof) == (0, (), True)
    assert len(objects(remote)) == len(before)
    assert marks(remote) == []
    found = fsck(str(remote), metadata=local, remote_metadata_partitions=1, deep=True, keys=golden_keys)
    assert found.findings == ()
    check_rows(tree, golden_keys)


def check_rows(tree, keys):
    """Both tiers as one log, the bucket alone, and what a restore brings back."""
    for topic in TOPICS:
        log = kseg.open_log(tree / "local" / f"{topic}-0", remote=tree / "remote", keys=keys)
        alone = kseg.open_dir(tree / "remote", keys=keys)[topic, 0]
        assert alone.end_offset == log.segments[-1].base_offset
        for isolation in LEVELS:
            rows = without_keys(expected(tree, topic, isolation))
            assert rows_of(log.read(isolation=isolation)) == rows
            end = alone.last_stable_offset if isolation == "read_committed" else alone.end_offset
            assert rows_of(alone.read(isolation=isolation)) == [row for row in rows if row[0] < end]


@pytest.mark.parametrize("name", ["tiered", "aiven/encrypted"])
def test_a_bucket_alone(golden, golden_keys, tmp_path, name):  # noqa: F811
    tree = copied(golden, name, tmp_path)
    remote = tree / "remote"
    shutil.rmtree(tree / "local")
    with pytest.raises(OptionError, match="--archive"):
        erase(remote, keys=KEYS)
    stable = {topic: kseg.open_dir(remote, keys=golden_keys)[topic, 0].last_stable_offset for topic in TOPICS}
    report = erase(remote, keys=KEYS, archive=True, remote_options=RemoteOptions(keys=golden_keys, grace_ms=0))
    assert report.failed == () and report.lingering == ()
    assert report.records > 0 and report.is_proof
    for topic in TOPICS:
        log = kseg.open_dir(remote, keys=golden_keys)[topic, 0]
        assert log.last_stable_offset == stable[topic]
        for isolation in LEVELS:
            end = log.last_stable_offset if isolation == "read_committed" else log.end_offset
            rows = without_keys(expected(tree, topic, isolation, end=end))
            assert rows_of(log.read(isolation=isolation)) == rows
    assert fsck(str(remote), deep=True, keys=golden_keys).findings == ()
    assert restore(str(remote), tmp_path / "back", keys=golden_keys).segments == 9
    # the marker of the last transaction was never copied
    assert {finding.code for finding in kseg.verify(tmp_path / "back").findings} <= {"KS410"}


@pytest.mark.parametrize("name", ["aiven/compressed", "aiven/encrypted"])
def test_new_objects_are_stored_as_the_old_ones_were(golden, golden_keys, tmp_path, name):  # noqa: F811
    remote = copied(golden, name, tmp_path) / "remote"
    old = manifests(remote)
    erase(remote, keys=KEYS, archive=True, topics=["tiered"], remote_options=RemoteOptions(keys=golden_keys))
    new = {stem: found for stem, found in manifests(remote).items() if stem not in old}
    by_start = {found.metadata.start_offset: found for found in old.values() if found.metadata.name.topic == "tiered"}
    assert new
    for found in new.values():
        before = by_start[found.metadata.start_offset]
        assert found.chunk_index.original_chunk_size == before.chunk_index.original_chunk_size
        assert found.compression == before.compression
        assert (found.encryption is None) == (before.encryption is None)
        if found.encryption is not None:
            assert found.encryption.key_id == before.encryption.key_id
            assert found.encryption.wrapped_key != before.encryption.wrapped_key
        assert found.metadata.end_offset == before.metadata.end_offset
        assert found.metadata.leader_epochs == before.metadata.leader_epochs


def manifests(remote):
    return {path.name: SegmentManifest.parse(path.read_bytes()) for path in remote.rglob("*.rsm-manifest")}
