"""Retired segments: nobody reads them, their objects stay for the grace period, and then they go."""

from __future__ import annotations

import pytest

import kseg
from kseg import durable
from kseg.errors import FormatError
from kseg.tiering import fsck
from kseg.tiering.layout import ChunkedPart, PlainPart, RemoteName
from kseg.tiering.marks import Mark, is_mark
from kseg.tiering.metadata_records import SegmentRecord
from kseg.tiering.retirement import hide, retire, sweep
from tests.tiering.cluster import NOW, make_cluster, run
from tests.tiering.retired import DAY_MS, make_old, marks, names, objects, partition_tier
from tests.tiering.tiers import uuid_of

LAYOUTS = pytest.mark.parametrize("layout", ["plain", "chunked"])
COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)


@pytest.fixture
def folder(tmp_path):
    return make_cluster(tmp_path / "data")


@pytest.fixture
def tier(tmp_path):
    return tmp_path / "tier"


def starts(tier, folder=None):
    """Base offsets of what a reader sees: of the bucket alone, or before the local log."""
    log = kseg.open_dir(tier)["a", 0] if folder is None else kseg.open_log(folder / "a-0", remote=tier)
    return [segment.base_offset for segment in log.segments if segment.tier == "remote"]


def states(where):
    return {record.start_offset: record.state for record in where.records().values()}


def kinds(report):
    return [(finding.kind.value, finding.offset) for finding in report.findings]


# -- what expires ------------------------------------------------------------------------------------------------------


@LAYOUTS
def test_without_a_cluster_a_mark_says_it(folder, tier, layout):
    run(folder, tier, layout=layout, archive=True)
    where, all_objects = partition_tier(tier), objects(tier)
    found = names(tier)
    planned = kseg.open_dir(tier)["a", 0]
    mark = retire(where, Mark("retention", (found[0], found[10])), now_ms=NOW)
    assert starts(tier) == [20]
    assert (kseg.open_dir(tier)["a", 0].start_offset, objects(tier)) == (20, all_objects)
    assert sum(batch.num_rows for batch in planned.read()) == 30 - 3  # markers are no rows
    assert retire(where, mark, now_ms=NOW) == mark
    assert len(marks(tier)) == 1

    waiting = sweep(where, now_ms=NOW)
    assert (waiting.swept, waiting.waiting) == ((), (found[0], found[10]))
    assert objects(tier) == all_objects
    make_old(tier)
    planned = sweep(where, now_ms=NOW + 10 * DAY_MS, dry_run=True)
    assert objects(tier) == all_objects
    done = sweep(where, now_ms=NOW)  # by the store's clock, whatever ours says
    assert (done.swept, done.waiting, done.swept_bytes) == (waiting.waiting, (), waiting.waiting_bytes)
    assert done.swept == planned.swept
    assert objects(tier) == [name for name in all_objects if name.startswith(f"{20:020d}")]
    assert marks(tier) == []
    assert sweep(where, now_ms=NOW).swept == ()
    assert kinds(fsck(str(tier))) == []


@LAYOUTS
def test_with_a_cluster_its_metadata_comes_first(folder, tier, layout):
    run(folder, tier, layout=layout, delete_local=True)
    where, all_objects = partition_tier(tier, folder), objects(tier)
    found = names(tier)
    retire(where, Mark("retention", (found[0],)), now_ms=NOW)
    assert states(where) == {0: DELETE_STARTED, 10: COPY_FINISHED, 20: COPY_FINISHED}
    assert starts(tier, folder) == starts(tier) == [10, 20]
    assert sweep(where, now_ms=NOW + DAY_MS - 1).waiting == (found[0],)
    assert objects(tier) == all_objects
    assert sweep(where, now_ms=NOW + DAY_MS).swept == (found[0],)
    assert states(where) == {0: DELETE_FINISHED, 10: COPY_FINISHED, 20: COPY_FINISHED}
    assert len(objects(tier)) == len(all_objects) * 2 // 3
    assert marks(tier) == []
    end = kseg.open_log(folder / "__remote_log_metadata-0").end_offset
    assert sweep(where, now_ms=NOW + DAY_MS).swept == ()
    assert kseg.open_log(folder / "__remote_log_metadata-0").end_offset == end
    assert kinds(fsck(str(tier), metadata=folder, remote_metadata_partitions=1)) == []


def test_what_the_metadata_names_as_copied_is_never_swept(folder, tier):
    """A mark that is wrong, because the metadata was set back, hides nothing from who knows better."""
    run(folder, tier, delete_local=True)
    found = names(tier)
    retire(partition_tier(tier), Mark("retention", (found[0], found[10])), now_ms=NOW)  # as if there were no cluster
    where, all_objects = partition_tier(tier, folder), objects(tier)
    make_old(tier, 10 * DAY_MS)
    done = sweep(where, now_ms=NOW + 10 * DAY_MS)
    assert (done.swept, done.waiting) == ((), ())
    assert objects(tier) == all_objects
    assert (starts(tier, folder), starts(tier)) == ([0, 10, 20], [20])


def test_a_deletion_that_a_broker_began_is_brought_to_its_end(folder, tier):
    run(folder, tier)
    where = partition_tier(tier, folder)
    record = next(record for record in where.records().values() if record.start_offset == 0)
    where.write([record.update_value(DELETE_STARTED, NOW)], NOW)
    for path in tier.rglob(f"{0:020d}-*.log"):
        path.unlink()
    report = fsck(str(tier), metadata=folder, remote_metadata_partitions=1)
    assert kinds(report) == [("retired", 0)]
    assert sweep(where, now_ms=NOW + DAY_MS).swept == (names_of(record),)
    assert states(where)[0] == DELETE_FINISHED
    assert not list(tier.rglob(f"{0:020d}-*"))


def names_of(record):
    return RemoteName(record.topic, record.partition, record.topic_id, record.start_offset, record.segment_id)


@LAYOUTS
def test_the_object_that_makes_a_segment_count_goes_first(folder, tier, layout, monkeypatch):
    run(folder, tier, layout=layout, archive=True)
    where = partition_tier(tier)
    retire(where, Mark("retention", (names(tier)[0],)), now_ms=NOW)
    deleted = []
    monkeypatch.setattr(type(where.objects), "delete", lambda self, key: deleted.append(key))
    sweep(where, grace_ms=-DAY_MS, now_ms=NOW)
    clock, first, *_, last = deleted
    assert clock.startswith(".kseg-clock")
    assert first.endswith((ChunkedPart.MANIFEST if layout == "chunked" else PlainPart.LOG).value)
    assert is_mark(last)


def test_a_record_is_durable_before_the_first_object_goes(folder, tier, monkeypatch):
    """A run that died before it had fsynced what it appended: the next one sees the record, and must not trust it."""
    run(folder, tier, delete_local=True)
    where = partition_tier(tier, folder)
    retire(where, Mark("retention", (names(tier)[0],)), now_ms=NOW)
    done = []
    real_fsync, real_delete = durable.fsync_file, type(where.objects).delete
    monkeypatch.setattr(durable, "fsync_file", lambda fd: (done.append("fsync"), real_fsync(fd)))
    monkeypatch.setattr(type(where.objects), "delete", lambda s, key: (done.append("delete"), real_delete(s, key)))
    monkeypatch.setattr(type(where.objects), "now_ms", lambda _: NOW)
    sweep(where, now_ms=NOW + DAY_MS)
    assert "fsync" in done[: done.index("delete")]


# -- what is replaced --------------------------------------------------------------------------------------------------


def twin(tier, name, label="new"):
    """Another upload of a segment, byte by byte; its name."""
    new = RemoteName(name.topic, name.partition, name.topic_id, name.start_offset, uuid_of(label, name.start_offset))
    for path in sorted(tier.rglob(name.stem + ".*")):
        data = path.read_bytes()
        if path.suffix == ".rsm-manifest":
            data = data.replace(name.segment_id.encode(), new.segment_id.encode())
        path.with_name(path.name.replace(name.segment_id, new.segment_id)).write_bytes(data)
    return new


def shown(tier):
    """Ids of what a reader of the bucket alone sees."""
    log = kseg.open_dir(tier)["a", 0]
    return [segment.path.rpartition("/")[2].removesuffix(".log")[21:] for segment in log.segments]


@LAYOUTS
def test_old_and_new_change_places_at_once(folder, tier, layout):
    run(folder, tier, layout=layout, archive=True)
    where, found = partition_tier(tier), names(tier)
    old = found[0], found[10]
    new = tuple(
        RemoteName(name.topic, name.partition, name.topic_id, name.start_offset, uuid_of("new", name.start_offset))
        for name in old
    )
    mark = hide(where, Mark("compaction", old, new))
    for name in old:
        twin(tier, name)
        assert shown(tier) == [name.segment_id for name in found.values()]
    assert kinds(fsck(str(tier), deep=True)) == [("retired", 0), ("retired", 10)]
    retire(where, mark, now_ms=NOW)
    assert shown(tier) == [new[0].segment_id, new[1].segment_id, found[20].segment_id]
    report = fsck(str(tier), deep=True)
    assert kinds(report) == [("retired", 0), ("retired", 10)]
    assert new[0].stem in report.findings[0].text
    make_old(tier)
    assert sweep(where, now_ms=NOW).swept == old
    assert shown(tier) == [new[0].segment_id, new[1].segment_id, found[20].segment_id]
    assert kinds(fsck(str(tier), deep=True)) == []


def test_a_replacement_that_was_given_up_is_swept(folder, tier):
    run(folder, tier, archive=True)
    where, found = partition_tier(tier), names(tier)
    before = objects(tier)
    new = twin(tier, found[0])
    hide(where, Mark("erase", (found[0],), (new,)))
    assert sweep(where, now_ms=NOW).waiting == (new,)
    make_old(tier)
    assert sweep(where, now_ms=NOW).swept == (new,)
    assert (objects(tier), marks(tier)) == (before, [])


def test_a_replacement_under_way_may_wait_longer_than_what_is_retired(folder, tier):
    """Retention with no grace period must not take what a compaction is just uploading."""
    run(folder, tier, archive=True)
    where, found = partition_tier(tier), names(tier)
    new = twin(tier, found[10])
    hide(where, Mark("compaction", (found[10],), (new,)))
    retire(where, Mark("retention", (found[0],)), now_ms=NOW)
    done = sweep(where, grace_ms=0, pending_ms=DAY_MS, now_ms=NOW)
    assert (done.swept, done.waiting) == ((found[0],), (new,))
    assert len(marks(tier)) == 1
    assert sweep(where, grace_ms=0, now_ms=NOW).swept == (new,)


def test_with_a_cluster_a_replacement_is_one_append(folder, tier):
    run(folder, tier, delete_local=True)
    where, found = partition_tier(tier, folder), names(tier)
    record, new = replacement(where, tier, found[0])
    mark = hide(where, Mark("compaction", (found[0],), (new,)))
    where.write([record.started_value()], NOW)
    retire(where, mark, finished=[record], now_ms=NOW)
    known = where.records()
    assert (known[new.segment_id].state, known[found[0].segment_id].state) == (COPY_FINISHED, DELETE_STARTED)
    last = list(kseg.open_log(folder / "__remote_log_metadata-0").batches())[-1]
    assert last.count == 2
    assert starts(tier, folder) == [0, 10, 20]
    end = kseg.open_log(folder / "__remote_log_metadata-0").end_offset
    retire(where, mark, finished=[record], now_ms=NOW)
    assert kseg.open_log(folder / "__remote_log_metadata-0").end_offset == end


def replacement(where, tier, name):
    told = where.records()[name.segment_id]
    new = twin(tier, name)
    fields = {field: getattr(told, field) for field in SegmentRecord.__dataclass_fields__}
    return SegmentRecord(**{**fields, "segment_id": new.segment_id, "state": COPY_STARTED}), new


def test_a_run_that_died_between_metadata_and_mark_is_settled(folder, tier):
    run(folder, tier, delete_local=True)
    where, found = partition_tier(tier, folder), names(tier)
    record, new = replacement(where, tier, found[0])
    hide(where, Mark("compaction", (found[0],), (new,)))
    old = where.records()[found[0].segment_id]
    where.write([record.started_value(), record.finished_value(NOW), old.update_value(DELETE_STARTED, NOW)], NOW)
    assert starts(tier, folder) == [0, 10, 20]  # the metadata knows better than the mark
    assert shown(tier)[0] == found[0].segment_id
    assert sweep(where, now_ms=NOW).waiting == (found[0],)
    assert shown(tier)[0] == new.segment_id
    assert sweep(where, now_ms=NOW + DAY_MS).swept == (found[0],)
    assert marks(tier) == []
    assert shown(tier)[0] == new.segment_id


def test_with_a_cluster_a_replacement_that_was_given_up_is_told_first(folder, tier):
    run(folder, tier, delete_local=True)
    where, found = partition_tier(tier, folder), names(tier)
    record, new = replacement(where, tier, found[0])
    where.write([record.started_value()], NOW)
    hide(where, Mark("compaction", (found[0],), (new,)))
    assert sweep(where, now_ms=NOW).swept == ()
    assert where.records()[new.segment_id].state == COPY_STARTED
    make_old(tier)
    assert sweep(where, now_ms=NOW + DAY_MS).swept == ()
    assert where.records()[new.segment_id].state == DELETE_STARTED
    assert sweep(where, now_ms=NOW + 2 * DAY_MS).swept == (new,)
    assert where.records()[new.segment_id].state == DELETE_FINISHED
    assert marks(tier) == []


# -- who else looks ----------------------------------------------------------------------------------------------------


@LAYOUTS
def test_fsck_lists_what_is_retired_and_leaves_it(folder, tier, layout):
    run(folder, tier, layout=layout, delete_local=True)
    retire(partition_tier(tier, folder), Mark("retention", (names(tier)[0],)), now_ms=NOW)
    make_old(tier, 10 * DAY_MS)
    before = objects(tier)
    report = fsck(str(tier), metadata=folder, remote_metadata_partitions=1, delete_orphans=True)
    assert kinds(report) == kinds(fsck(str(tier))) == [("retired", 0)]
    assert "retired by retention" in report.findings[0].text
    assert report.findings[0].bytes > 0
    assert (report.deleted_bytes, report.is_sound, report.segments) == (0, True, 2)
    assert objects(tier) == before


@LAYOUTS
def test_an_offload_does_not_take_a_retired_copy_for_one(folder, tier, layout):
    """Else --delete-local would delete a segment whose only copy is about to be swept."""
    run(folder, tier, layout=layout, archive=True)
    retire(partition_tier(tier), Mark("retention", (names(tier)[0],)), now_ms=NOW)
    report = run(folder, tier, layout=layout, archive=True, delete_local=True)
    assert [segment.base_offset for segment in report.partitions[0].segments] == [0]
    make_old(tier)
    sweep(partition_tier(tier), now_ms=NOW)
    assert starts(tier) == [0, 10, 20]


def test_a_broken_mark_is_told(folder, tier):
    run(folder, tier, archive=True)
    retire(partition_tier(tier), Mark("retention", (names(tier)[0],)), now_ms=NOW)
    (path,) = tier.rglob(".kseg-retired-*")
    for data in (b"", b"[]", b"{}", path.read_bytes().replace(b'"version": 1', b'"version": 2')):
        path.write_bytes(data)
        with pytest.raises(FormatError, match="mark"):
            kseg.open_dir(tier)["a", 0]
        report = fsck(str(tier))
        assert ("damage", None) in kinds(report)
        assert not report.is_sound
