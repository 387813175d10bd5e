"""Two copies of a log: the same, damaged, diverged, shorter, and the same records in other batches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kseg
from tests.builders import LogBuilder
from tests.scale import JIT_DISABLED
from tests.verify.copies import TIME, batch_places, rows, small_log


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    ours = small_log(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return ours, tmp_path / "b" / ours.name


def differences(ours: Path, theirs: Path) -> list[tuple[str, int | None]]:
    report = kseg.verify(ours, against=theirs, workers=1)
    return [(finding.code, finding.offset) for finding in report.findings if finding.code.startswith("KS9")]


def test_equal_copies(copies, golden):
    assert differences(*copies) == []
    assert differences(copies[0].parent, copies[1].parent) == []
    some = golden / "before" / "tx-0" if JIT_DISABLED else golden / "before"
    assert differences(some, some) == []
    assert differences(golden / "legacy", golden / "legacy") == []


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_other_records_at_the_same_offsets(tmp_path, codec):
    def written(root: Path, changed: int | None) -> Path:
        with kseg.create_log(root / "t-0", clock=lambda: TIME / 1000) as log:
            for start in range(0, 100, 10):
                table = rows(start, 10)
                if start <= (changed or -1) < start + 10:
                    values = table.column("value").to_pylist()
                    values[changed - start] = b"another"
                    table = table.set_column(1, "value", [values])
                log.append(table, codec=codec)
                if start == 40:
                    log.roll()
        return root / "t-0"

    ours = written(tmp_path / "a", None)
    for changed in (0, 37, 50, 99):
        theirs = written(tmp_path / f"b{changed}", changed or None) if changed else ours
        assert differences(ours, theirs) == ([("KS901", changed)] if changed else [])
        report = kseg.verify(ours, against=theirs)
        assert report.is_sound == (not changed)


def test_the_same_records_in_other_batches_and_segments(tmp_path):
    def written(root: Path, size: int, codec: str, roll_at: int) -> Path:
        with kseg.create_log(root / "t-0", clock=lambda: TIME / 1000) as log:
            for start in range(0, 120, size):
                log.append(rows(start, size), codec=codec)
                if start == roll_at:
                    log.roll()
        return root / "t-0"

    ours = written(tmp_path / "a", 10, "none", 40)
    theirs = written(tmp_path / "b", 20, "lz4", 60)
    assert {code for code, _ in differences(ours, theirs)} == {"KS906"}
    assert kseg.verify(ours, against=theirs).is_sound


def test_missing_offsets(copies):
    ours, theirs = copies
    file = sorted(theirs.glob("*.log"))[1]
    data = file.read_bytes()
    position, size = batch_places(file)[0]
    file.write_bytes(data[:position] + data[position + size :])
    assert differences(ours, theirs) == [("KS902", 4)]
    assert differences(theirs, ours) == [("KS902", 4)]


def test_a_marker_of_another_kind(tmp_path):
    paths = []
    for kind in ("commit", "abort"):
        builder = LogBuilder(tmp_path / kind).transaction(2, producer_id=5).control(kind, producer_id=5)
        paths.append(builder.batch(1).write())
    assert differences(*paths) == [("KS901", 2)]


def test_leader_epochs(copies):
    ours, theirs = copies
    file = sorted(theirs.glob("*.log"))[1]
    data = bytearray(file.read_bytes())
    data[12:16] = (2).to_bytes(4, "big")
    file.write_bytes(data)
    assert differences(ours, theirs) == [("KS903", 4)]


def test_a_shorter_copy_and_a_missing_one(copies, tmp_path):
    ours, theirs = copies
    for file in theirs.glob(f"{9:020d}.*"):
        file.unlink()
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (theirs.parent / name).unlink(missing_ok=True)
    assert differences(ours, theirs) == [("KS904", 9)]
    with kseg.create_log(ours.parent / "other-0", clock=lambda: TIME / 1000) as log:
        log.append(rows(0, 1))
    with kseg.create_log(theirs.parent / "third-0", clock=lambda: TIME / 1000) as log:
        log.append(rows(0, 1))
    assert differences(ours.parent, theirs.parent) == [("KS905", None), ("KS904", 9)]


def test_a_damaged_copy(copies):
    ours, theirs = copies
    file = sorted(theirs.glob("*.log"))[1]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert [code for code, _ in differences(ours, theirs)] == ["KS907"]


@pytest.mark.parametrize("place", [8, 16, -1], ids=["length", "magic", "record"])
@pytest.mark.parametrize("segment", [0, -1])
def test_what_damage_has_taken_from_this_log_is_in_the_copy(copies, segment, place):
    """The copy is sound, and nobody is told to verify it."""
    ours, theirs = copies
    file = sorted(ours.glob("*.log"))[segment]
    data = bytearray(file.read_bytes())
    position, size = batch_places(file)[1]
    data[position + (place if place >= 0 else size - 1)] ^= 0x40
    file.write_bytes(data)
    offset = int.from_bytes(data[position : position + 8], "big")
    if place >= 0:  # else the headers of both are the same, and that its checksum is wrong is told without the copy
        assert differences(ours, theirs) == [("KS902", offset)]
    else:
        assert differences(ours, theirs) == []
    assert [code for code, _ in differences(theirs, ours)] == ["KS907"]
