"""Compacting what is in a tier: the batches that a local round over the same log leaves, and nothing is done twice."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import CleanerConfig, RemoteOptions, compact
from kseg.errors import OptionError
from kseg.tiering import fsck, offload, restore
from tests.compaction.test_golden import CLOCKS, GOLDEN, batches_of
from tests.log.written import clock
from tests.reference.rows import records_of
from tests.tiering.cluster import NOW, make_cluster, run
from tests.tiering.retired import marks, objects, partition_tier
from tests.tiering.test_golden import key_files

SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0,
    "min.compaction.lag.ms": 0,
    "delete.retention.ms": 86_400_000,
    "segment.bytes": 1_048_576,
}
PARTITIONS = sorted(CLOCKS)


@pytest.fixture
def data(tmp_path):
    """Two compacted topics that a broker has not cleaned yet."""
    for name in PARTITIONS:
        shutil.copytree(GOLDEN / "before" / name, tmp_path / "data" / name)
    return tmp_path / "data"


def move(data, tier, **options):
    """Sealed segments to an archive; the active ones stay."""
    topics = [name[:-2] for name in PARTITIONS]
    report = offload(
        data,
        str(tier),
        topics=topics,
        archive=True,
        delete_local=True,
        settings={"local.retention.ms": 0, "local.retention.bytes": -2, "retention.bytes": -1},
        **options,
    )
    assert report.refusals == () and report.deleted_segments == report.segments > 4
    return tier


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize(("strategy", "layout"), [("memory", "plain"), ("spill", "chunked")])
def test_a_log_in_both_tiers_becomes_what_the_broker_made_of_it(data, tmp_path, name, strategy, layout):
    tier = move(data, tmp_path / "tier", layout=layout)
    before = objects(tier)
    options = {
        "topics": [name[:-2]],
        "settings": SETTINGS,
        "now_ms": CLOCKS[name],
        "strategy": strategy,
        "remote": str(tier),
        "archive": True,
    }
    (planned,) = compact(data, dry_run=True, **options).partitions
    assert objects(tier) == before
    (done,) = compact(data, **options).partitions
    assert done.error is None and done.skipped is None
    assert (planned.records_after, planned.bytes_after) == (done.records_after, done.bytes_after)
    assert done.retired and set(before) < set(objects(tier))
    assert kseg.open_log(data / name, remote=tier).end_offset == kseg.open_log(GOLDEN / "before" / name).end_offset
    restore(str(tier), data, topics=[name[:-2]])
    expected = [batch for batch in batches_of(GOLDEN / "cleaned" / name) if batch["base"] < done.checkpoint]
    assert [batch for batch in batches_of(data / name) if batch["base"] < done.checkpoint] == expected
    assert {finding.code for finding in kseg.verify(data / name).findings} <= {"KS302"}  # holes


@pytest.mark.parametrize("kind", ["plain", "chunked", "encrypted"])
def test_a_bucket_alone_becomes_what_a_restored_log_becomes(data, tmp_path, kind):
    pair = key_files(tmp_path)
    keys = {"key1": pair["private"]} if kind == "encrypted" else {}
    given = {"encrypt": ("key1", pair["public"])} if keys else {}
    tier = move(data, tmp_path / "tier", layout="plain" if kind == "plain" else "chunked", keys=keys, **given)
    topics = [name[:-2] for name in PARTITIONS]
    # small enough that some segments are merged and others not
    options = {"topics": topics, "settings": SETTINGS | {"segment.bytes": 1_100_000}, "now_ms": CLOCKS[PARTITIONS[1]]}
    with pytest.raises(OptionError, match="--archive"):
        compact(tier, **options)
    restore(str(tier), tmp_path / "back", keys=keys)
    local = compact(tmp_path / "back", **options)

    access = RemoteOptions(keys=keys)
    report = compact(tier, archive=True, remote_options=access, **options)
    assert [p.error or p.skipped for p in report.partitions] == [None, None]
    same = (
        "records_before records_after bytes_before superseded tombstones_kept aborted markers_kept keys batches_rebuilt"
    )
    for ours, theirs in zip(report.partitions, local.partitions, strict=True):
        assert [getattr(ours, name) for name in same.split()] == [getattr(theirs, name) for name in same.split()]
    restore(str(tier), tmp_path / "again", keys=keys)
    for name in PARTITIONS:
        assert batches_of(tmp_path / "again" / name) == batches_of(tmp_path / "back" / name)
    assert {finding.kind.value for finding in fsck(str(tier), keys=keys, deep=True).findings} == {"retired"}

    before = objects(tier)
    again = compact(tier, archive=True, remote_options=RemoteOptions(keys=keys, grace_ms=0), **options)
    assert [p.retired for p in again.partitions] == [(), ()]
    assert all("nothing to clean" in p.skipped for p in again.partitions)
    assert len(objects(tier)) < len(before) and set(objects(tier)) < set(before)
    assert marks(tier) == []
    assert fsck(str(tier), keys=keys, deep=True).findings == ()


def test_a_policy_that_is_not_known_is_refused(data, tmp_path):
    tier = move(data, tmp_path / "tier")
    before = objects(tier)
    report = compact(tier, archive=True, topics=["compact-plain"])
    assert "cleanup.policy is not known" in report.partitions[0].skipped
    report = compact(tier, archive=True, topics=["compact-plain"], settings={**SETTINGS, "cleanup.policy": "delete"})
    assert "not compact" in report.partitions[0].skipped
    assert objects(tier) == before


@pytest.fixture
def superseded(tmp_path):
    """Every segment holds the same keys."""
    with kseg.create_log(tmp_path / "data/a-0", clock=clock) as writer:
        for number in range(4):
            if number:
                writer.roll()
            writer.append(pa.table({"key": [b"a", b"b"], "value": [b"%d" % number] * 2}))
    return tmp_path / "data"


@pytest.mark.parametrize("kind", ["plain", "chunked", "encrypted"])
@pytest.mark.parametrize("segment_bytes", [1024, 100])
def test_nothing_may_be_left_of_a_segment(superseded, tmp_path, kind, segment_bytes):
    pair, tier = key_files(tmp_path), tmp_path / "tier"
    encrypt = ("key1", pair["public"]) if kind == "encrypted" else None
    layout = "plain" if kind == "plain" else "chunked"
    offload(superseded, str(tier), layout=layout, topics=["a"], archive=True, encrypt=encrypt)
    options = {"topics": ["a"], "config": CleanerConfig(cleanup_policy="compact", segment_bytes=segment_bytes)}
    keys = {"key1": pair["private"]}
    report = compact(tier, archive=True, remote_options=RemoteOptions(keys=keys, grace_ms=0), **options)
    assert [p.error or p.skipped for p in report.partitions] == [None]
    (log,) = kseg.open_dir(tier, keys=keys)
    assert (log.start_offset, log.end_offset) == (0, 6)
    rows = [row for batch in log.read(columns=["offset", "value"]) for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == [(2, b"1"), (3, b"1"), (4, b"2"), (5, b"2")]
    assert fsck(str(tier), deep=True, keys=keys).findings == ()
    restore(str(tier), tmp_path / "back", keys=keys)
    assert [row.offset for row in records_of(kseg.open_log(tmp_path / "back/a-0").read())] == [2, 3, 4, 5]


@pytest.mark.parametrize("layout", ["plain", "chunked"])
def test_a_cluster_is_told(tmp_path, layout):
    """Kafka does not tier compacted topics; where a topic became one later, its metadata names such segments."""
    data, tier = make_cluster(tmp_path / "data"), tmp_path / "tier"
    run(data, tier, layout=layout, delete_local=True)
    restore(str(tier), tmp_path / "back", metadata=data)
    shutil.copytree(data / "a-0", tmp_path / "both/a-0")
    restore(str(tier), tmp_path / "both", metadata=data)
    options = {
        "topics": ["a"],
        "settings": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0},
        "now_ms": NOW,
    }
    before = objects(tier)
    refused = compact(data, remote=str(tier), **options)
    assert "it is not known how many partitions" in refused.partitions[0].skipped
    assert objects(tier) == before
    access = RemoteOptions(remote_metadata_partitions=1)
    (done,) = compact(data, remote=str(tier), remote_options=access, **options).partitions
    assert (done.error, done.skipped, len(done.retired)) == (None, None, 3)
    compact(tmp_path / "both", **options)
    expected = records_of(kseg.open_log(tmp_path / "both/a-0").read())
    assert records_of(kseg.open_log(data / "a-0", remote=tier).read()) == expected
    states = partition_tier(tier, data).records().values()
    assert sorted((told.start_offset, told.end_offset, told.state) for told in states) == [
        (0, 9, 2), (0, 29, 1), (10, 19, 2), (20, 29, 2),
    ]  # fmt: skip
    found = fsck(str(tier), metadata=data, remote_metadata_partitions=1, deep=True)
    assert [finding.kind.value for finding in found.findings] == ["retired"] * 3
    (again,) = compact(data, remote=str(tier), remote_options=access, **options).partitions
    assert "nothing to clean" in again.skipped
