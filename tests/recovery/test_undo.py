"""Undo gives a directory back byte for byte, whatever was repaired in it."""

from __future__ import annotations

import random
import shutil

import pytest

import kseg
from tests.recovery.damages import copy, damage
from tests.recovery.states import CONFIG, NOW, content, write_checkpoints
from tests.scale import counts

HIGH_WATERMARK = "replication-offset-checkpoint"


def everything(log_dir):
    """All files below a log directory but the lock, with their bytes; of log files also when they were changed."""
    found = {}
    for path in sorted(log_dir.rglob("*")):
        if path.is_file() and path.name != ".lock":
            stamp = path.stat().st_mtime_ns // 1_000_000 if path.suffix == ".log" else None
            found[str(path.relative_to(log_dir))] = (path.read_bytes(), stamp)
        elif path.is_dir():
            found[str(path.relative_to(log_dir))] = None
    return found


@pytest.mark.parametrize("mode", [{}, {"all": True}, {"salvage": True}, {"salvage": True, "all": True}], ids=str)
def test_undo_gives_back_every_byte(logs, tmp_path, mode):
    changed = 0
    for number in range(counts(25)):
        rng = random.Random(number)
        source, end = rng.choice(logs)
        log_dir = tmp_path / str(number)
        directory = copy(source, log_dir / "t-0")
        done = damage(rng, directory)
        write_checkpoints(
            log_dir, rng.choice([0, end]), rng.choice([0, 0, rng.randrange(end)]), clean=rng.random() < 0.3
        )
        (log_dir / HIGH_WATERMARK).write_text(f"0\n2\nother 0 5\nt 0 {end}\n")
        before = everything(log_dir)
        try:
            report = kseg.recover(directory, config=CONFIG, now_ms=NOW, **mode)
        except kseg.LogError:
            assert everything(log_dir) == before, done
            continue
        if report.partitions[0].status == "changed":
            changed += 1
            assert everything(log_dir) != before
            assert [one.status for one in kseg.undo_repair(log_dir).partitions] == ["undone"]
        assert everything(log_dir) == before, done
        shutil.rmtree(log_dir)
    assert changed > 10


def test_several_repairs_are_undone_one_after_the_other(logs, tmp_path):
    source, end = logs[0]
    directory = copy(source, tmp_path / "t-0")
    states = []
    for target in (end - 10, end // 2, 3, 0):
        states.append(content(directory))
        assert kseg.truncate(directory, target, config=CONFIG, now_ms=NOW).partitions[0].status == "changed"
    for state in reversed(states):
        assert content(directory) != state
        kseg.undo_repair(directory)
        assert content(directory) == state
    with pytest.raises(kseg.OptionError, match="no repair is kept"):
        kseg.undo_repair(directory)


def test_undo_refuses_what_was_changed_since(logs, tmp_path):
    source, _ = logs[0]
    directory = copy(source, tmp_path / "t-0")
    kseg.truncate(directory, 100, config=CONFIG, now_ms=NOW)
    with kseg.append_to(directory, config=CONFIG) as writer:
        writer.roll()
    after = content(directory)
    with pytest.raises(kseg.LogError, match="changed after run"):
        kseg.undo_repair(directory)
    assert content(directory) == after
    assert any((directory / ".kseg" / "quarantine").iterdir())


def test_a_dry_run_changes_nothing(logs, tmp_path):
    for number in range(counts(10)):
        rng = random.Random(number)
        source, _ = rng.choice(logs)
        log_dir = tmp_path / str(number)
        directory = copy(source, log_dir / "t-0")
        damage(rng, directory)
        before = everything(log_dir)
        try:
            planned = kseg.recover(directory, dry_run=True, all=True, config=CONFIG, now_ms=NOW).partitions[0]
        except kseg.LogError:
            continue
        finally:
            assert everything(log_dir) == before
            assert not (log_dir / ".lock").exists()
        done = kseg.recover(directory, all=True, config=CONFIG, now_ms=NOW).partitions[0]
        same = ("cuts", "dropped_segments", "removed_files", "renamed_files", "written_files", "lost", "end_offset")
        assert [getattr(planned, name) for name in same] == [getattr(done, name) for name in same]
        assert planned.status == ("planned" if done.status == "changed" else done.status)
