"""Which uploads an erasure covers, which it leaves alone, and what it refuses."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.compaction import RemoteOptions, erase
from kseg.errors import OptionError
from kseg.tiering.objects import TierObjects
from tests.cli.calls import call
from tests.reference.rows import records_of
from tests.tiering.cluster import QUICK, make_cluster, run
from tests.tiering.retired import make_old, marks, names, objects

LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])
OPTIONS = RemoteOptions(remote_metadata_partitions=1, retry=QUICK)


@pytest.fixture
def data(tmp_path):
    return make_cluster(tmp_path / "data")


@pytest.fixture
def tier(tmp_path):
    return tmp_path / "tier"


def rows(log, **options):
    return records_of(log.read(**options))


@LAYOUTS
def test_copies_of_local_segments_are_erased_too(data, tier, layout):
    """A log over both tiers does not show them; whoever restores gets them."""
    run(data, tier, layout=layout)
    whole = rows(kseg.open_log(data / "a-0"))
    report = erase(data, remote=str(tier), keys=[b"k12"], topics=["a"], remote_options=OPTIONS)
    assert [(place.tier, place.records) for place in report.places] == [("local", 1), ("remote", 1)]
    left = [row for row in whole if row.key != b"k12"]
    assert rows(kseg.open_log(data / "a-0")) == left
    assert rows(kseg.open_dir(tier)["a", 0]) == [row for row in left if row.offset < 30]


@LAYOUTS
def test_segments_without_such_records_are_not_touched(data, tier, layout):
    run(data, tier, layout=layout, delete_local=True)
    before = {path: path.stat().st_mtime_ns for path in tier.rglob("*") if path.is_file()}
    old = names(tier)
    report = erase(data, remote=str(tier), keys=[b"k12"], topics=["a"], remote_options=OPTIONS)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [segment.base_offset for place in report.places for segment in place.segments] == [10]
    (lingering,) = report.lingering
    assert (lingering.base_offset, lingering.records, lingering.why) == (10, 1, "retired")
    assert lingering.path.endswith(old[10].stem)
    before = objects(tier)
    end = kseg.open_log(data / "__remote_log_metadata-0").end_offset
    assert erase(data, remote=str(tier), keys=[b"k12"], topics=["a"], remote_options=OPTIONS).records == 0
    assert (objects(tier), kseg.open_log(data / "__remote_log_metadata-0").end_offset) == (before, end)


@LAYOUTS
def test_a_segment_may_lose_all_of_its_records(data, tier, layout):
    """Its last batch stays, empty, so that it tells where it ends; transactions are as they were."""
    run(data, tier, layout=layout, archive=True)
    shutil.rmtree(data)
    before = kseg.open_dir(tier)["a", 0]
    report = erase(
        tier,
        predicate=lambda batch: pa.array([True] * batch.num_rows),
        archive=True,
        remote_options=RemoteOptions(grace_ms=0),
    )
    assert report.is_proof
    log = kseg.open_dir(tier)["a", 0]
    assert rows(log) == []
    assert [(s.base_offset, s.next_offset) for s in log.segments] == [(0, 10), (10, 20), (20, 30)]
    assert (log.end_offset, log.last_stable_offset) == (before.end_offset, before.last_stable_offset)
    assert [(p.producer_id, p.last_offset) for p in log.producers()] == [
        (p.producer_id, p.last_offset) for p in before.producers()
    ]


def test_an_archive_is_none_where_a_cluster_knows_of_it(data, tier):
    run(data, tier, delete_local=True)
    before = objects(tier)
    report = erase(data, remote=str(tier), keys=[b"k1"], topics=["a"], archive=True)
    assert report.refusals == (
        "a-0 in the tier: a cluster's metadata names its segments in the tier: it is no archive",
    )
    assert objects(tier) == before


def test_partitions_of_other_brokers(tmp_path, tier):
    data = make_cluster(tmp_path / "data", partitions=2)
    run(data, tier)
    shutil.rmtree(data / "a-1")
    report = erase(data, remote=str(tier), keys=[b"k1"], topics=["a"], remote_options=OPTIONS)
    assert [name.partition(":")[0] for name in report.not_covered] == ["a-1 in the tier"]
    assert not report.is_proof
    shutil.rmtree(data)
    (tmp_path / "data").mkdir()
    report = erase(tier, keys=[b"k1"], archive=True, remote_options=RemoteOptions(grace_ms=0))
    assert {(place.partition, place.records) for place in report.places} == {(0, 0), (1, 1)}
    assert report.is_proof


def test_without_the_metadata_topic_nothing_is_changed(data, tier):
    run(data, tier)
    before = objects(tier)
    report = erase(data, remote=str(tier), keys=[b"k1"], topics=["a"])
    assert "it is not known how many partitions __remote_log_metadata has" in report.refusals[0]
    assert objects(tier) == before


def test_a_damaged_segment_stays_and_others_go_on(tmp_path, tier):
    data = make_cluster(tmp_path / "data", partitions=2)
    run(data, tier, archive=True)
    shutil.rmtree(data)
    log = next(path for path in tier.rglob(f"{10:020d}-*.log") if "a-0-" in str(path))
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    before = objects(tier)
    report = erase(tier, keys=[b"k1"], archive=True)
    assert [place.partition for place in report.failed] == [0]
    assert str(log) in report.failed[0].error
    assert [place.records for place in report.places] == [0, 1]
    assert {name for name in objects(tier) if name not in before}
    assert not report.is_proof


def test_encrypted_segments_need_keys(golden, tmp_path):
    shutil.copytree(golden / "aiven/encrypted/remote", tmp_path / "remote")
    report = erase(tmp_path / "remote", keys=[b"k55"], archive=True)
    assert len(report.failed) == 2
    assert "give its private key file" in report.failed[0].error


@LAYOUTS
def test_what_nobody_reads_is_searched_too(data, tier, layout):
    """An upload that no metadata knows, and one that did not end."""
    run(data, tier, layout=layout, delete_local=True)
    old = names(tier)[0]
    stranger = old.segment_id[::-1].replace(old.segment_id[-1], "A", 1)[:21] + "A"
    for path in sorted(tier.rglob(old.stem + ".*")):
        content = path.read_bytes().replace(old.segment_id.encode(), stranger.encode())
        path.with_name(path.name.replace(old.segment_id, stranger)).write_bytes(content)
    other = names(tier)
    broken = next(tier.rglob(f"{10:020d}-*.log"))
    torn = old.segment_id[:21].swapcase() + "A"
    (broken.parent / f"{10:020d}-{torn}.log").write_bytes(b"torn")
    report = erase(data, remote=str(tier), keys=[b"k1"], topics=["a"], remote_options=OPTIONS)
    assert other
    found = {(item.base_offset, item.records, item.why) for item in report.lingering}
    assert (0, 1, "retired") in found
    assert (0, 1, "not a part of the log") in found
    assert (10, None, "an upload, or a deletion, that did not end") in found


def test_two_jobs_at_a_time(data, tier, monkeypatch):
    """The one that comes second changes nothing."""
    run(data, tier, archive=True)
    shutil.rmtree(data)
    put = TierObjects._put_once
    done = []

    def put_after_another(self, key, pieces):
        if not done and key.endswith(".log"):
            done.append(key)
            done.append(erase(tier, keys=[b"k2"], archive=True))
        return put(self, key, pieces)

    monkeypatch.setattr(TierObjects, "_put_once", put_after_another)
    report = erase(tier, keys=[b"k1"], archive=True)
    assert "by another job meanwhile" in report.failed[0].error
    assert done[1].left == 0
    keys = [row.key for row in rows(kseg.open_dir(tier)["a", 0])]
    assert b"k2" not in keys and b"k1" in keys
    assert erase(tier, keys=[b"k1"], archive=True).left == 0
    assert b"k1" not in [row.key for row in rows(kseg.open_dir(tier)["a", 0])]


def test_objects_go_once_the_grace_period_is_over(data, tier):
    run(data, tier, archive=True)
    before = objects(tier)
    shutil.rmtree(data)
    erase(tier, keys=[b"k1"], archive=True)
    assert len(objects(tier)) > len(before) and marks(tier)
    make_old(tier)
    report = erase(tier, keys=[b"k1"], archive=True)
    assert report.is_proof
    assert (len(objects(tier)), marks(tier)) == (len(before), [])


def test_a_reader_that_was_planned_before_reads_on(data, tier):
    run(data, tier, archive=True)
    shutil.rmtree(data)
    planned = kseg.open_dir(tier)["a", 0]
    segments, whole = planned.segments, rows(kseg.open_dir(tier)["a", 0])
    erase(tier, keys=[b"k1"], archive=True)
    assert segments
    assert rows(planned) == whole


# -- the command line --------------------------------------------------------------------------------------------------


def test_command_line(data, tier, tmp_path):
    run(data, tier, delete_local=True)
    (tmp_path / "keys").write_text("k1\nk12\n")
    given = ["--keys", tmp_path / "keys", "--topics", "a"]
    answer = call("erase", tier, *given, "--yes")
    assert answer.status == 2 and "--archive" in answer.messages
    both = [data, "--remote", tier, "--remote-metadata-partitions", 1, *given]
    answer = call("erase", *both, "--dry-run", "--json")
    assert answer.objects[-1]["summary"]["records"] == 2
    answer = call("erase", *both, "--yes")
    assert answer.status == 0
    assert "a last look found none in what is read" in answer.lines
    assert sum(line.startswith("STILL IN THE TIER: ") for line in answer.lines) == 2
    answer = call("erase", *both, "--yes", "--grace-ms", 0, "--json")
    assert answer.status == 0
    summary = answer.objects[-1]["summary"]
    assert (summary["isProof"], summary["lingering"]) == (True, [])


def test_wrong_arguments(data, tier, tmp_path):
    run(data, tier)
    with pytest.raises(OptionError, match="is no tier"):
        erase(data, keys=[b"k"], archive=True)
    with pytest.raises(OptionError, match="grace_ms"):
        erase(tier, keys=[b"k"], archive=True, remote_options=RemoteOptions(grace_ms=-1))
    with pytest.raises(OptionError, match="holds credentials"):
        erase(data, keys=[b"k"], remote="s3://user:secret@bucket/tier")
    with pytest.raises(OptionError, match="names one"):
        options = RemoteOptions(bootstrap_server="localhost:1")
        erase(data, keys=[b"k"], remote=str(tier), archive=True, remote_options=options)


def test_what_another_job_uploads_is_left_alone(data, tier, monkeypatch):
    """A bucket has no lock: with no grace period, too, only what is old is given up."""
    run(data, tier, archive=True)
    shutil.rmtree(data)
    monkeypatch.setattr("kseg.tiering.replacement.retire", lambda *_, **__: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        erase(tier, keys=[b"k1"], archive=True)
    monkeypatch.undo()
    (begun,) = marks(tier)
    report = erase(tier, keys=[b"k12"], archive=True, remote_options=RemoteOptions(grace_ms=0))
    assert marks(tier) == [begun]
    assert (report.left, report.lingering) == (0, ())
    make_old(tier)
    assert erase(tier, keys=[b"k12"], archive=True, remote_options=RemoteOptions(grace_ms=0)).is_proof
    assert marks(tier) == []
