"""Retention of tiered topics: in the tier, and of what is local."""

from __future__ import annotations

import contextlib
import itertools
import shutil

import pytest

import kseg
from kseg.errors import OptionError, StorageError
from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.storage import LocalStore
from kseg.tiering import fsck, retain
from kseg.tiering.objects import RetryPolicy
from kseg.types import TopicPartition
from tests.faults.store import down_from, failing
from tests.log.written import START, bases
from tests.reference.rows import records_of
from tests.tiering.cluster import ENABLED, MARKER, METADATA, NOW, QUICK, make_cluster, partitions_elsewhere, run
from tests.tiering.conftest import TREES
from tests.tiering.retired import DAY_MS, make_old, marks, objects, partition_tier

LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])
TP = TopicPartition("a", 0)
KEPT = {"local.retention.ms": -1, "local.retention.bytes": -1}
AGE = NOW - START  # of a record at offset 0; each offset is a millisecond younger


@pytest.fixture
def folder(tmp_path):
    return make_cluster(tmp_path / "data")


@pytest.fixture
def tier(tmp_path):
    return tmp_path / "tier"


def expire(tier, folder, retention_ms=-1, retention_bytes=-1, **options):
    settings = {
        "remote.storage.enable": True,
        "cleanup.policy": "delete",
        "retention.ms": retention_ms,
        "retention.bytes": retention_bytes,
        **KEPT,
        **options.pop("settings", {}),
    }
    given = {"topics": ["a"], "remote_metadata_partitions": 1, "now_ms": NOW, "retry": QUICK, **options}
    return retain(str(tier), folder, settings=settings, **given)


def archived(tier, retention_ms=-1, retention_bytes=-1, path=None, **options):
    """Retention of a bucket alone."""
    settings = {"cleanup.policy": "delete", "retention.ms": retention_ms, "retention.bytes": retention_bytes, **KEPT}
    given = {"topics": ["a"], "now_ms": NOW, "retry": QUICK, "archive": True, **options}
    return retain(str(tier), path, settings=settings, **given)


def gone(report):
    return [(segment.base_offset, segment.tier, segment.rule) for segment in report.partitions[0].expired]


def log_start(folder):
    return (read_checkpoint(LocalStore(), str(folder), CheckpointKind.LOG_START) or {}).get(TP)


def metadata_end(folder):
    return kseg.open_log(folder / f"{METADATA}-0").end_offset


def snapshot(*folders):
    return {path: path.read_bytes() for place in folders for path in place.rglob("*") if path.is_file()}


@LAYOUTS
def test_time(folder, tier, layout):
    run(folder, tier, layout=layout, delete_local=True)
    size = sum(path.stat().st_size for path in tier.rglob(f"{0:020d}-*"))
    report = expire(tier, folder, AGE - 10)
    assert gone(report) == [(0, "remote", "time")]
    assert (report.remote_segments, report.remote_bytes, report.waiting_segments) == (1, size, 1)
    (found,) = report.partitions
    assert (found.start_offset_before, found.start_offset, found.error) == (0, 10, None)
    assert (log_start(folder), (folder / MARKER).read_bytes()) == (10, b"clean")
    log = kseg.open_log(folder / "a-0", remote=tier)
    assert (log.start_offset, log.leader_epochs()[0]) == (10, (0, 10))
    assert [segment.base_offset for segment in log.segments] == [10, 20, 30]
    assert kseg.open_dir(tier)["a", 0].start_offset == 10
    assert len(list(tier.rglob(f"{0:020d}-*.log"))) == 1

    before = snapshot(folder, tier)
    again = expire(tier, folder, AGE - 10)
    assert (again.remote_segments, again.waiting_segments) == (0, 1)
    assert snapshot(folder, tier) == before

    later = expire(tier, folder, -1, now_ms=NOW + DAY_MS)
    assert (later.remote_segments, later.swept_segments, later.swept_bytes) == (0, 1, size)
    assert (list(tier.rglob(f"{0:020d}-*")), marks(tier)) == ([], [])
    report = fsck(str(tier), metadata=folder, remote_metadata_partitions=1, deep=True)
    assert report.findings == ()
    before = snapshot(folder, tier)
    expire(tier, folder, -1, now_ms=NOW + DAY_MS)
    assert snapshot(folder, tier) == before


@LAYOUTS
def test_a_dry_run_tells_and_changes_nothing(folder, tier, layout):
    run(folder, tier, layout=layout)
    before = snapshot(folder, tier)
    planned = expire(tier, folder, AGE - 20, settings={"local.retention.ms": 0}, dry_run=True)
    assert snapshot(folder, tier) == before
    done = expire(tier, folder, AGE - 20, settings={"local.retention.ms": 0})
    assert (planned.partitions[0].expired, planned.remote_bytes) == (done.partitions[0].expired, done.remote_bytes)
    assert "would be retired" in planned.lines()[-1]


@LAYOUTS
def test_size_counts_what_is_in_the_tier_and_what_is_only_local(folder, tier, layout):
    whole = sum(path.stat().st_size for path in (folder / "a-0").glob("*.log"))
    one = (folder / "a-0" / f"{0:020d}.log").stat().st_size
    run(folder, tier, layout=layout)
    assert gone(expire(tier, folder, -1, whole - one + 1)) == []
    assert gone(expire(tier, folder, -1, whole - one)) == [(0, "remote", "size"), (0, "local", "start")]
    assert bases(folder / "a-0") == [10, 20, 30]  # what is below the log start goes, whatever local.retention says
    assert gone(expire(tier, folder, -1, 0))[:2] == [(10, "remote", "size"), (20, "remote", "size")]
    assert (bases(folder / "a-0"), log_start(folder)) == ([30], 30)
    assert kseg.open_log(folder / "a-0", remote=tier).start_offset == 30


def test_a_log_start_that_was_moved(folder, tier):
    """As DeleteRecords moves it."""
    run(folder, tier, delete_local=True)
    (folder / CheckpointKind.LOG_START.value).write_text("0\n1\na 0 25\n")
    (folder / "a-0" / "leader-epoch-checkpoint").write_text("0\n1\n1 25\n")
    report = expire(tier, folder)
    assert gone(report) == [(0, "remote", "lineage"), (10, "remote", "lineage")]
    assert log_start(folder) == 25
    states = {r.start_offset: r.state for r in partition_tier(tier, folder).records().values()}
    assert states == {0: 2, 10: 2, 20: 1}


@LAYOUTS
def test_local_retention(folder, tier, layout):
    run(folder, tier, layout=layout)
    assert bases(folder / "a-0") == [0, 10, 20, 30]
    report = expire(tier, folder, settings={"local.retention.ms": AGE - 20})
    assert gone(report) == [(0, "local", "time"), (10, "local", "time")]
    assert (report.local_segments, report.remote_segments) == (2, 0)
    assert (bases(folder / "a-0"), log_start(folder)) == ([20, 30], 0)
    assert kseg.open_log(folder / "a-0", remote=tier).start_offset == 0


@LAYOUTS
def test_local_segments_stay_whose_copies_cannot_be_proved(folder, tier, layout):
    run(folder, tier, layout=layout, compression=False)
    (path,) = tier.rglob(f"{10:020d}-*.log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = expire(tier, folder, settings={"local.retention.ms": 0})
    assert gone(report) == [(0, "local", "time")]
    assert bases(folder / "a-0") == [10, 20, 30]
    (refusal,) = report.refusals
    assert "its copy is not proved" in refusal.reason
    assert refusal.is_damage


def test_local_segments_stay_that_were_never_copied(folder, tier):
    run(folder, tier)
    with kseg.append_to(folder / "a-0") as writer:
        writer.roll()
    report = expire(tier, folder, settings={"local.retention.ms": 0})
    assert bases(folder / "a-0") == [30, 40]
    assert [base for base, _, _ in gone(report)] == [0, 10, 20]


@LAYOUTS
def test_a_bucket_alone(folder, tier, layout):
    run(folder, tier, layout=layout, archive=True)
    assert gone(archived(tier, AGE - 10)) == [(0, "remote", "time")]
    assert kseg.open_dir(tier)["a", 0].start_offset == 10
    one = (folder / "a-0" / f"{0:020d}.log").stat().st_size
    assert gone(archived(tier, -1, one)) == [(10, "remote", "size")]
    assert gone(archived(tier, 0)) == [(20, "remote", "time")]
    report = archived(tier, 0)
    assert (gone(report), report.waiting_segments, report.refusals) == ([], 3, ())
    assert [log.topic for log in kseg.open_dir(tier)] == []
    assert [finding.kind.value for finding in fsck(str(tier)).findings] == ["retired"] * 3
    make_old(tier)
    assert archived(tier, -1).swept_segments == 3
    assert (objects(tier), marks(tier)) == ([], [])


@LAYOUTS
def test_an_archive_and_its_directory(folder, tier, layout):
    run(folder, tier, layout=layout, archive=True, delete_local=True)
    end = metadata_end(folder)
    assert gone(archived(tier, AGE - 10, path=folder)) == [(0, "remote", "time")]
    assert (log_start(folder), metadata_end(folder)) == (10, end)
    log = kseg.open_log(folder / "a-0", remote=tier)
    assert [segment.base_offset for segment in log.segments] == [10, 20, 30]
    local = sum(path.stat().st_size for path in (folder / "a-0").glob("*.log"))
    assert gone(archived(tier, -1, local, path=folder)) == [(10, "remote", "size"), (20, "remote", "size")]


@pytest.mark.parametrize("tree", TREES)
def test_golden_tiers(tree, tmp_path, golden, golden_keys):
    """By the store's copies that real brokers made: rows from the new log start on are as before."""
    tier = tmp_path / "tier"
    shutil.copytree(golden / tree / "remote", tier)
    before = kseg.open_dir(tier, keys=golden_keys)["tiered", 0]
    size = sum(segment.size for segment in before.segments[1:])
    rows = [batch.to_pydict() for batch in before.read(before.segments[1].base_offset)]
    settings = {"cleanup.policy": "delete", "retention.bytes": size}
    report = retain(str(tier), topics=["tiered"], settings=settings, archive=True, keys=golden_keys)
    assert [segment.base_offset for segment in report.partitions[0].expired] == [0]
    after = kseg.open_dir(tier, keys=golden_keys)["tiered", 0]
    assert after.start_offset == before.segments[1].base_offset == report.partitions[0].start_offset
    assert [batch.to_pydict() for batch in after.read()] == rows
    limit = before.segments[1].largest_timestamp
    settings = {"cleanup.policy": "delete", "retention.ms": 0}
    report = retain(str(tier), topics=["tiered"], settings=settings, archive=True, keys=golden_keys, now_ms=limit + 1)
    assert [segment.base_offset for segment in report.partitions[0].expired] == [before.segments[1].base_offset]


@pytest.mark.parametrize("tree", TREES)
def test_golden_tiers_and_their_brokers(tree, tmp_path, golden, golden_keys):
    """With the metadata that a real broker wrote, in the partitions and layouts that it chose."""
    for part in ("local", "remote"):
        shutil.copytree(golden / tree / part, tmp_path / part)
    directory = tmp_path / "local" / "tiered-0"
    before = kseg.open_log(directory, remote=tmp_path / "remote", keys=golden_keys)
    rows = records_of(before.read(before.segments[1].base_offset))
    settings = {"retention.bytes": sum(segment.size for segment in before.segments[1:]), "local.retention.ms": -1}
    settings |= {"cleanup.policy": "delete", "remote.storage.enable": True}
    given = {"topics": ["tiered"], "settings": settings, "metadata": tmp_path / "local", "keys": golden_keys}
    report = retain(str(tmp_path / "remote"), tmp_path / "local", **given)
    assert (report.refusals, [(s.base_offset, s.rule) for s in report.partitions[0].expired]) == ((), [(0, "size")])
    after = kseg.open_log(directory, remote=tmp_path / "remote", keys=golden_keys)
    assert (after.start_offset, records_of(after.read())) == (before.segments[1].base_offset, rows)
    assert retain(str(tmp_path / "remote"), tmp_path / "local", grace_ms=0, **given).swept_segments == 1
    found = fsck(str(tmp_path / "remote"), metadata=tmp_path / "local", keys=golden_keys)
    assert [finding for finding in found.findings if finding.topic == "tiered"] == []


# -- store calls that fail --------------------------------------------------------------------------------------------


@LAYOUTS
def test_every_call_to_the_store_can_fail(tmp_path, folder, tier, layout):
    """An archive has nothing but its objects: whatever call is the last, readers see all or what is left."""
    run(folder, tier, layout=layout, archive=True)
    whole = records_of(kseg.open_dir(tier)["a", 0].read())
    for last in itertools.count():
        place = tmp_path / f"case-{last}"
        shutil.copytree(tier, place)
        report = None
        with failing(down_from(last + 1), str(place)), contextlib.suppress(StorageError):
            report = archived(place, AGE - 20, grace_ms=0, retry=RetryPolicy(1))
        log = kseg.open_dir(place)["a", 0]
        assert log.start_offset in (0, 20)
        assert records_of(log.read()) == [row for row in whole if row.offset >= log.start_offset]
        assert {finding.kind.value for finding in fsck(str(place)).findings} <= {"retired", "stranger"}
        assert archived(place, AGE - 20, grace_ms=0).partitions[0].error is None
        left = {name[:20] for name in objects(place)}
        assert (left, marks(place)) == ({f"{20:020d}"}, [])
        if report is not None and not report.refusals and report.partitions[0].error is None:
            break
    assert last > 10


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_is_not_known_is_refused(folder, tier):
    run(folder, tier)
    before = snapshot(folder, tier)
    for settings, reason in [
        ({"remote.storage.enable": True, "retention.ms": 0}, "cleanup.policy is not known"),
        ({"cleanup.policy": "delete", "retention.ms": 0}, "remote.storage.enable is not known"),
        ({"remote.storage.enable": True, "cleanup.policy": "delete"}, "retention.ms is not known"),
        ({"remote.storage.enable": False, "cleanup.policy": "delete", "retention.ms": 0}, "it is not tiered"),
    ]:
        report = retain(
            str(tier), folder, topics=["a"], settings=settings, remote_metadata_partitions=1, now_ms=NOW, retry=QUICK
        )
        assert [reason in refusal.reason for refusal in report.refusals] == [True]
    with pytest.raises(OptionError, match="archive"):
        retain(str(tier))
    assert (
        "retention.ms is not known"
        in retain(str(tier), archive=True, topics=["a"], settings={"cleanup.policy": "delete"}).refusals[0].reason
    )
    assert "cleanup.policy is not known" in retain(str(tier), archive=True).refusals[0].reason
    with pytest.raises(OptionError, match="no topic b"):
        retain(str(tier), archive=True, topics=["b"])
    assert snapshot(folder, tier) == before


def test_a_tier_that_is_another_is_refused(tmp_path, folder, tier):
    run(folder, tier, delete_local=True)
    other = make_cluster(tmp_path / "other")
    run(other, tmp_path / "wrong")
    before = snapshot(folder)
    report = expire(tmp_path / "wrong", folder, 0)
    assert "is it the right one" in report.refusals[0].reason
    assert snapshot(folder) == before


def test_all_replicas_of_the_metadata_are_needed(folder, tier):
    run(folder, tier, delete_local=True)
    report = expire(tier, folder, 0, remote_metadata_partitions=partitions_elsewhere(folder))
    assert "is in no directory that was given" in report.refusals[0].reason
    assert objects(tier)


def test_the_log_start_moves_in_all_replicas(tmp_path, tier):
    folder = make_cluster(tmp_path / "brokers" / "1")
    run(folder, tier, delete_local=True)
    shutil.copytree(folder, tmp_path / "brokers" / "2")
    report = expire(tier, tmp_path / "brokers", AGE - 10)
    assert len(report.partitions[0].paths) == 2
    assert [log_start(tmp_path / "brokers" / name) for name in "12"] == [10, 10]
    assert metadata_end(tmp_path / "brokers" / "1") == metadata_end(tmp_path / "brokers" / "2")
    assert gone(report) == [(0, "remote", "time")]


def test_local_retention_without_a_tier_is_refused_with_a_hint(folder, tier):
    run(folder, tier)
    report = kseg.retain(folder, topics=["a"], settings=ENABLED | {"cleanup.policy": "delete"}, now_ms=NOW)
    assert "say which tier" in report.refusals[0].reason
