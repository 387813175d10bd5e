"""Restore: what it refuses, and what it leaves on disks that fail."""

from __future__ import annotations

import os
import shutil

import pyarrow as pa
import pytest

import kseg
from kseg.errors import OptionError
from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.offsets import OffsetEntry
from kseg.offsets.entries import format_entries
from kseg.storage import LocalStore
from kseg.tiering import offload, restore
from kseg.tiering.layout import PlainPart
from kseg.types import TopicPartition
from tests.faults.disk import each_fault
from tests.log.written import bases, clock, names, numbered
from tests.reference.rows import records_of
from tests.tiering.changed import change_part, read_part
from tests.tiering.cluster import QUICK, make_cluster, rows, run


@pytest.fixture
def folder(tmp_path):
    return make_cluster(tmp_path / "data")


@pytest.fixture
def tier(tmp_path, folder):
    run(folder, tmp_path / "tier", layout="chunked", delete_local=True)
    return tmp_path / "tier"


def errors(report):
    return [found.error for found in report.partitions if found.error]


WRONG = {
    "emptied": lambda tier, part: b"",
    "gone": lambda tier, part: None,
    "older": lambda tier, part: read_part(tier, 0, part),
    "newer": lambda tier, part: read_part(tier, 8000, part),
    "cut off": lambda tier, part: read_part(tier, 4000, part)[:-3],
}


@pytest.mark.parametrize("layout", ["plain", "chunked"])
@pytest.mark.parametrize(
    ("part", "how"),
    [
        *((PlainPart.TXN_INDEX, how) for how in WRONG),
        *(
            (part, how)
            for part in (PlainPart.OFFSET_INDEX, PlainPart.SNAPSHOT)
            for how in ("emptied", "older", "newer")
        ),
        (PlainPart.TIME_INDEX, "cut off"),
        (PlainPart.LEADER_EPOCHS, "newer"),
    ],
)
def test_parts_that_do_not_fit_the_batches_are_rebuilt(tmp_path, indexed_tiers, layout, part, how):
    """What a broker would trust: aborted transactions, positions, producers."""
    tier, right = tmp_path / "tier", indexed_tiers / f"{layout}-restored"
    shutil.copytree(indexed_tiers / layout, tier)
    if not right.exists():
        restore(str(tier), right)
    change_part(tier, 4000, part, WRONG[how](tier, part))
    report = restore(str(tier), tmp_path / "new")
    assert errors(report) == []
    told = [(segment.base_offset, text) for segment in report.partitions[0].segments for text in segment.rebuilt]
    if part is PlainPart.LEADER_EPOCHS:  # only the last one's are placed
        assert told == []
    else:
        assert [base for base, _ in told] == [4000]
        assert part.value in told[0][1]
        assert f"rebuilt: {told[0][1]}" in report.lines()
    assert files_of(tmp_path / "new" / "a-0") == files_of(right / "a-0")


@pytest.mark.parametrize("data", [b"0\n1\n9 0\n", b"0\n0\n", b"nothing"])
def test_leader_epochs_that_do_not_fit_the_batches_are_rebuilt(tmp_path, folder, data):
    run(folder, tmp_path / "tier")
    restore(str(tmp_path / "tier"), tmp_path / "right")
    change_part(tmp_path / "tier", 20, PlainPart.LEADER_EPOCHS, data)
    report = restore(str(tmp_path / "tier"), tmp_path / "new")
    assert "leader_epoch_checkpoint" in report.partitions[0].rebuilt_epochs
    assert files_of(tmp_path / "new" / "a-0") == files_of(tmp_path / "right" / "a-0")


def files_of(partition):
    return {path.name: path.read_bytes() for path in partition.iterdir() if path.is_file()}


@pytest.mark.parametrize("layout", ["plain", "chunked"])
@pytest.mark.parametrize(
    ("cuts", "back"),
    [
        ([0, 20, 30], [0, 20]),  # one upload of what two others have
        ([0, 5, 15, 30], [0, 10, 20]),
        ([0, 10, 25, 30], [0, 10, 25]),
        ([5, 30], [0, 10, 20]),
        ([15, 30], [0, 10, 20]),
    ],
)
def test_uploads_with_other_bounds_are_restored_once(tmp_path, folder, layout, cuts, back):
    """As two leaders leave them whose segments differ. Nobody tells where those of `plain` end but their batches."""
    whole = [row for row in rows(folder / "a-0") if row.offset < 30]
    cut_anew(folder / "a-0", tmp_path / "twin" / "a-0", cuts)
    for data in (folder, tmp_path / "twin"):
        assert not run(data, tmp_path / data.name / "tier", layout=layout, archive=True).partitions[0].error
        shutil.copytree(tmp_path / data.name / "tier", tmp_path / "tier", dirs_exist_ok=True)
    assert records_of(kseg.open_dir(tmp_path / "tier")["a", 0].read()) == whole
    assert errors(restore(str(tmp_path / "tier"), tmp_path / "new")) == []
    assert rows(tmp_path / "new" / "a-0") == whole
    assert bases(tmp_path / "new" / "a-0") == back


@pytest.mark.parametrize("layout", ["plain", "chunked"])
def test_an_upload_of_a_leader_that_was_deposed_is_not_read_though_it_begins_elsewhere(tmp_path, layout):
    """Two leaders wrote other records at 25 to 39; where the old one's upload of `plain` ends, nobody tells."""
    ours, theirs = tmp_path / "ours" / "a-0", tmp_path / "theirs" / "a-0"
    for partition, cuts, epoch in ((theirs, [0, 20, 40], 0), (ours, [0, 10, 30, 50], 1)):
        with kseg.create_log(partition) as writer:
            for base in range(0, 60, 5):
                if base in cuts[1:]:
                    writer.roll()
                is_late = base >= 25
                value = b"%d of %d" % (base, epoch if is_late else 0)
                writer.append(pa.table({"value": [value] * 5}), leader_epoch=epoch if is_late else 0)
    shutil.copy(ours / "partition.metadata", theirs)
    for partition in (theirs, ours):
        offload(partition, str(tmp_path / "tier"), layout=layout, archive=True)
    whole = [row.value for row in rows(ours) if row.offset < 50]
    assert [row.value for row in records_of(kseg.open_dir(tmp_path / "tier")["a", 0].read())] == whole
    assert errors(restore(str(tmp_path / "tier"), tmp_path / "new", start=10)) == []
    assert [row.value for row in rows(tmp_path / "new" / "a-0")] == whole[10:]


@pytest.mark.parametrize("layout", ["plain", "chunked"])
def test_what_lies_before_a_gap_is_read_though_another_leader_wrote_in_the_gap(tmp_path, folder, layout):
    """The segment before it is taken to end where the next one begins, which that leader had not written."""
    run(folder, tmp_path / "tier", layout=layout)
    with kseg.append_to(folder / "a-0", clock=clock) as writer:
        writer.roll()
        writer.append(numbered(5), leader_epoch=3)
        writer.roll()
        writer.append(numbered(5), leader_epoch=4)
        writer.roll()
        writer.append(numbered(1))
    run(folder, tmp_path / "tier", layout=layout)
    for base in (20, 30, 40):
        for path in (tmp_path / "tier").rglob(f"{base:020d}-*"):
            path.unlink()
    log = kseg.open_dir(tmp_path / "tier")["a", 0]
    assert [segment.base_offset for segment in log.segments] == [0, 10, 45]
    assert {row.offset for row in records_of(log.read())} == {*range(20), *range(45, 50)} - {4, 14}


def cut_anew(partition, target, cuts):
    """The same log from the first cut on, in other segments, without its indexes and snapshots."""
    target.mkdir(parents=True)
    for name in ("partition.metadata", "leader-epoch-checkpoint"):
        shutil.copy(partition / name, target)
    data = b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))
    for batch in kseg.open_log(partition).batches():
        if batch.base_offset >= cuts[0]:
            base = max(cut for cut in cuts if cut <= batch.base_offset)
            with (target / f"{base:020d}.log").open("ab") as file:
                file.write(data[: batch.size])
        data = data[batch.size :]


def test_another_topics_directory_is_refused(tmp_path, tier):
    with kseg.create_log(tmp_path / "new" / "a-0"):
        pass
    (error,) = errors(restore(str(tier), tmp_path / "new"))
    assert "belongs to topic id" in error
    assert bases(tmp_path / "new" / "a-0") == [0]


def test_a_gap_before_local_segments_is_refused(folder, tier):
    (error,) = errors(restore(str(tier), folder, end=15))
    assert "begins at 30, and what is restored ends at 20" in error
    assert bases(folder / "a-0") == [30]


def test_a_gap_in_the_tier_is_refused_unless_it_is_outside_of_the_range(tmp_path, tier):
    for path in tier.rglob(f"{10:020d}-*"):
        path.unlink()
    (error,) = errors(restore(str(tier), tmp_path / "new"))
    assert "after offset 9" in error
    assert restore(str(tier), tmp_path / "new", start=20).segments == 1
    log = kseg.open_log(tmp_path / "new" / "a-0")
    assert (log.start_offset, log.end_offset) == (20, 30)
    assert [tuple(entry) for entry in log.leader_epochs()] == [(1, 20)]


def test_two_topics_of_one_name(tmp_path, folder, tier):
    other = make_cluster(tmp_path / "other", segments=3)
    run(other, tier, layout="chunked", archive=True)
    report = restore(str(tier), tmp_path / "new")
    assert "several of it" in str(report.refusals[0])
    wanted = kseg.open_log(other / "a-0").topic_id
    assert restore(str(tier), tmp_path / "new", topic_id=wanted).segments == 2
    assert kseg.open_log(tmp_path / "new" / "a-0").topic_id == wanted


def test_nothing_there_is_an_error(tmp_path, tier):
    with pytest.raises(OptionError, match="nothing that was asked for"):
        restore(str(tier), tmp_path / "new", topics=["b"])


def test_damage_is_not_put_in_place(tmp_path, tier):
    (path,) = tier.rglob(f"{10:020d}-*.log")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    report = restore(str(tier), tmp_path / "new", retry=QUICK)
    assert len(errors(report)) == 1
    assert bases(tmp_path / "new" / "a-0") == []


def test_the_log_ends_where_the_tiers_does_though_its_last_offsets_are_empty(tmp_path):
    """Offsets that were given away once are not given away again."""
    folder = make_cluster(tmp_path / "data", segments=2)
    with kseg.append_to(folder / "a-0") as writer:
        writer.append(numbered(1, offset=pa.array([24], pa.int64())))
        writer.roll()
        writer.append(numbered(1, offset=pa.array([40], pa.int64())))
    for path in (folder / "a-0").glob(f"{25:020d}.*"):  # a hole before the next base, as a compacted log has it
        path.rename(path.with_name(f"{30:020d}{path.suffix}"))
    run(folder, tmp_path / "tier", layout="chunked", archive=True)
    restore(str(tmp_path / "tier"), tmp_path / "new")
    assert kseg.open_log(tmp_path / "new" / "a-0").end_offset == 30
    assert bases(tmp_path / "new" / "a-0") == [0, 10, 30]


def test_every_operation_can_fail(tmp_path, folder, tier, monkeypatch):
    """What is there after a fault is the end of the log without a hole, or nothing; a second run finishes."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    whole = [row for row in rows_of_all(folder, tier, tmp_path) if row.offset < 30]
    start = tmp_path / "start"
    (start / "data").mkdir(parents=True)
    shutil.copytree(tier, start / "tier")
    kinds = (CheckpointKind.RECOVERY_POINT, CheckpointKind.HIGH_WATERMARK)
    for kind in kinds:
        (start / "data" / kind.value).write_text("0\n0\n")

    def job(place, promise):
        if not errors(restore(str(place / "tier"), place / "data", workers=1, retry=QUICK)):
            promise("done")

    def check(place, end):
        directory = place / "data" / "a-0"
        if directory.exists() and bases(directory):
            log = kseg.open_log(directory)
            assert rows(directory) == [row for row in whole if row.offset >= log.start_offset]
        job(place, lambda _: None)
        assert rows(directory) == whole
        assert [name for name in names(directory) if name.endswith((".deleted", ".tmp"))] == []
        assert not names(directory / ".kseg")
        for kind in kinds if end.promised else ():
            assert read_checkpoint(LocalStore(), str(place / "data"), kind) == {TopicPartition("a", 0): 30}

    assert each_fault(start, job, check, folder=tmp_path, every=5) > 60


def rows_of_all(folder, tier, tmp_path):
    restore(str(tier), tmp_path / "all")
    return rows(tmp_path / "all" / "a-0") + rows(folder / "a-0")


def test_consumer_groups_come_along(tmp_path):
    """What they had committed behind the end of what came back becomes that end."""
    folder, tier, new = make_cluster(tmp_path / "data"), tmp_path / "tier", tmp_path / "new"
    run(folder, tier, archive=True)
    stood = [("far", "a", 0, 39), ("near", "a", 0, 12), ("near", "elsewhere", 0, 3)]
    file = tmp_path / "groups.jsonl"
    file.write_bytes(format_entries(OffsetEntry(*place) for place in stood))
    report = restore(str(tier), new, offsets=file, offsets_partitions=1)
    assert [refusal.subject for refusal in report.refusals] == ["consumer groups"]  # they have no place there
    assert rows(new / "a-0") == [row for row in rows(folder / "a-0") if row.offset < 30]
    with kseg.create_log(new / "__consumer_offsets-0"):
        pass
    report = restore(str(tier), new, offsets=file, offsets_partitions=1)
    assert report.refusals == ()
    assert [(found.entry.place, found.entry.offset, found.note is None) for found in report.offsets.offsets] == [
        (("far", "a", 0), 30, False),
        (("near", "a", 0), 12, True),
    ]
    assert "2 offsets of 2 groups written" in str(report)
    standing = {found.entry.place: found.lag for found in kseg.offsets.read(new).offsets}
    assert standing == {("far", "a", 0): 0, ("near", "a", 0): 18}
