"""Tiers that brokers wrote, restored to whole logs, read, and offloaded again: kseg's objects are the brokers' own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kseg
from kseg.tiering import fsck, offload, restore
from kseg.tiering.layout import PlainPart, parse_key
from kseg.tiering.manifest import SegmentManifest
from kseg.tiering.objects import open_tier
from tests.log.rows import plain_rows

GOLDEN = Path(__file__).parent.parent / "golden"
TOPICS = ["tiered", "tiered-tx"]
AIVEN = {
    "plain": {"chunk_size": 65536, "compression": False},
    "compressed": {"chunk_size": 131072},
    "encrypted": {"chunk_size": 131072},
}


def expected_rows(parquet, topic):
    table = pq.read_table(parquet).filter(pc.field("topic") == topic)
    return [(row["offset"], row["key"], row["value"]) for row in table.to_pylist()]


def key_files(tmp_path):
    """The golden key pair, as private as key files have to be."""
    found = {}
    for kind in ("private", "public"):
        source = next(file for file in (GOLDEN / "aiven").rglob("*.pem") if kind in file.name)
        found[kind] = Path(shutil.copy(source, tmp_path / f"{kind}.pem"))
        found[kind].chmod(0o600)
    return found


def restored(folder, remote, tmp_path, **options):
    """The log directory that a broker has left, with all that is in the tier back in it."""
    whole = tmp_path / "whole"
    shutil.copytree(folder / "local", whole)
    report = restore(str(remote), whole, metadata=folder / "local", **options)
    assert report.segments == 9
    assert not report.refusals
    assert not [found.error for found in report.partitions if found.error]
    return whole


def check_rows(whole, parquet):
    for topic in TOPICS:
        log = kseg.open_log(whole / f"{topic}-0")
        assert log.start_offset == 0
        found = [(row[0], row[3], row[4]) for row in plain_rows(log.read())]
        assert found == expected_rows(parquet, topic)


def objects_of(remote):
    """Bytes of all objects by topic, start offset and part: the ids differ from run to run."""
    tier = open_tier(str(remote))
    found = {}
    for stored in tier.list():
        _, name, part = parse_key(stored.key)
        found[name.topic, name.start_offset, part] = tier.read(stored.key)
    return found


def test_plain_objects_are_those_that_a_broker_wrote(tmp_path):
    golden = GOLDEN / "tiered"
    whole = restored(golden, golden / "remote", tmp_path)
    check_rows(whole, golden / "tiered.parquet")
    report = offload(whole, str(tmp_path / "remote"), layout="plain", topics=TOPICS, archive=True, verify=True)
    assert report.segments == 9
    theirs, ours = objects_of(golden / "remote"), objects_of(tmp_path / "remote")
    assert {part for _, _, part in theirs} == set(PlainPart)
    assert ours == theirs
    assert fsck(str(tmp_path / "remote"), deep=True).findings == ()


@pytest.mark.parametrize("kind", AIVEN)
def test_manifests_equal_those_of_aivens_plugin(kind, tmp_path):
    golden, options = GOLDEN / "aiven" / kind, {}
    keys = key_files(tmp_path) if kind == "encrypted" else None
    private = {} if keys is None else {"keys": {"key1": keys["private"]}}
    whole = restored(golden, golden / "remote", tmp_path, **private)
    check_rows(whole, golden / "expected.parquet")
    if keys is not None:
        options = {"encrypt": ("key1", keys["public"]), **private}
    report = offload(whole, str(tmp_path / "r"), topics=TOPICS, archive=True, verify=True, **AIVEN[kind], **options)
    assert report.segments == 9
    theirs, ours = objects_of(golden / "remote"), objects_of(tmp_path / "r")
    assert ours.keys() == theirs.keys()
    manifests = [key for key in theirs if key[2] == ".rsm-manifest"]
    for key in manifests:
        assert comparable(ours[key]) == comparable(theirs[key])
        assert SegmentManifest.parse(ours[key]).to_bytes() == ours[key]
    if kind == "plain":
        assert {key: ours[key] for key in ours.keys() - set(manifests)} == {
            key: theirs[key] for key in theirs.keys() - set(manifests)
        }
    assert fsck(str(tmp_path / "r"), deep=True, **private).findings == ()


def comparable(manifest):
    """All fields but what is random or differs between compressors."""
    fields = json.loads(manifest)
    fields["chunkIndex"].pop("transformedChunks", None)
    if "encryption" in fields:
        key_id, _, key = fields["encryption"]["dataKey"].partition(":")
        fields["encryption"] = (key_id, len(key), len(fields["encryption"]["aad"]))
    metadata = fields["remoteLogSegmentMetadata"]
    metadata.pop("eventTimestampMs")
    metadata["remoteLogSegmentId"].pop("id")
    return list(fields.items()), list(metadata)


def test_a_restored_tier_loads_in_kafka(oracle, tmp_path):
    """Bucket alone: the directory is made, with the topic's id and its leader epochs."""
    golden = GOLDEN / "tiered"
    report = restore(str(golden / "remote"), tmp_path / "new")
    for found in report.partitions:
        end = found.segments[-1].next_offset
        directory = Path(found.path)
        assert found.topic_id in (directory / "partition.metadata").read_text()
        for clean in (True, False):
            state = oracle.load(directory, clean=clean, recoveryPoint=0, logStart=0)
            assert (state["logStart"], state["logEnd"]) == (0, end)


def test_a_range_is_restored_in_whole_segments(tmp_path):
    golden = GOLDEN / "tiered"
    report = restore(str(golden / "remote"), tmp_path / "new", topics=["tiered"], start=4000, end=7000)
    (found,) = report.partitions
    assert [(s.base_offset, s.next_offset) for s in found.segments] == [(3251, 6551), (6551, 9851)]
    log = kseg.open_log(tmp_path / "new" / "tiered-0")
    assert (log.start_offset, log.end_offset) == (3251, 9851)
    assert [row[0] for row in plain_rows(log.read(4000, 7000))] == list(range(4000, 7000))
