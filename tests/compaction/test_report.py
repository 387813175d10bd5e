"""What the report of a round tells people."""

from __future__ import annotations

import dataclasses
import re

import pytest

from kseg.compaction import CleanerConfig, compact
from tests.builders import LogBuilder
from tests.cli.calls import call

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
NOW = 1_800_000_000_000


def test_a_checkpoint_outside_of_the_log_was_reset_and_nobody_was_told(orders):
    (orders.parent / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 1000\n")
    flags = ("--cleanup-policy", "compact", "--dry-run")
    (told, _) = call("compact", orders, *flags, "--json").objects
    assert (told["checkpoint_reset"], told["first_dirty"]) == (True, 0)
    assert "  the checkpoint lay outside of the log: begun at its start, 0" in call("compact", orders, *flags).lines
    (told, _) = call("compact", orders, *flags, "--first-dirty", 0, "--json").objects
    assert told["checkpoint_reset"] is False


@pytest.fixture
def wrong_checkpoint(tmp_path):
    """A log of one segment that is not sealed, beside a checkpoint behind its end, and one of another log."""
    directory = LogBuilder(tmp_path / "data").segment().record(b"a", b"1").write()
    (directory.parent / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    checkpoint = directory.parent / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n2\nother 0 5\norders 0 999\n")
    return directory, checkpoint


def test_a_wrong_checkpoint_stayed_where_nothing_is_cleaned(wrong_checkpoint):
    directory, checkpoint = wrong_checkpoint
    (told, _) = call("compact", directory, "--cleanup-policy", "compact", "--json").objects
    assert checkpoint.read_text() == "0\n2\norders 0 0\nother 0 5\n"
    assert (directory.parent / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":7}'
    assert (told["checkpoint_reset"], told["first_dirty"], told["first_uncleanable"]) == (True, 0, 0)
    assert told["skipped"].endswith("; the checkpoint lay outside of the log and was set to its start, 0")
    (told, _) = call("compact", directory, "--cleanup-policy", "compact", "--json").objects
    assert told["checkpoint_reset"] is False


@pytest.mark.parametrize("flag", ["--dry-run", "--output", "--first-dirty"])
def test_a_wrong_checkpoint_stays_where_nothing_may_be_changed_or_the_caller_knows_better(
    wrong_checkpoint, tmp_path, flag
):
    directory, checkpoint = wrong_checkpoint
    before = checkpoint.read_bytes()
    flags = {"--dry-run": [flag], "--output": [flag, tmp_path / "out"], "--first-dirty": [flag, 0]}[flag]
    (told, _) = call("compact", directory, "--cleanup-policy", "compact", *flags, "--json").objects
    assert checkpoint.read_bytes() == before
    assert ("would be set to its start, 0" in told["skipped"]) is (flag == "--dry-run")
    assert told["checkpoint_reset"] is (flag != "--first-dirty")


def test_a_round_that_was_skipped_did_not_tell_what_it_looked_at(orders):
    config = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.99)
    compact(orders, config=CONFIG, now_ms=NOW)
    (told,) = compact(orders, config=config, now_ms=NOW).partitions
    assert told.skipped is not None
    assert 0 < told.first_dirty == told.first_uncleanable == told.checkpoint


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_log_with_nothing_to_clean_was_not_copied_and_nobody_was_told(orders, tmp_path, dry_run):
    compact(orders, config=CONFIG, now_ms=NOW)
    flags = ("--cleanup-policy", "compact", "--output", tmp_path / "out", *(["--dry-run"] if dry_run else []))
    answer = call("compact", orders, *flags)
    assert answer.status == 0
    assert answer.lines[-1].startswith("left alone: orders-0: nothing to clean: ")
    assert answer.lines[-1].endswith(f", so no copy {'would be' if dry_run else 'was'} made")
    assert not (tmp_path / "out").exists()


def test_the_report_for_people_left_out_what_was_found_and_how_long_it_took(tmp_path):
    builder = LogBuilder(tmp_path / "data").segment()
    builder.record(None, b"lost").record(b"k", b"1").record(b"k", None).record(b"a", b"1").record(b"a", b"2")
    directory = builder.segment().record(b"z", b"z").write()
    report = compact(directory, config=CONFIG, now_ms=NOW)
    title, row, found, phases, why, summary = report.lines()
    assert title.startswith("PARTITION") and row.startswith("orders-0 ") and summary.startswith("1 partition compacted")
    assert found == "  2 superseded, 1 tombstone kept, 1 without a key"
    assert re.fullmatch(r"  keys \d+\.\d s, rewrite \d+\.\d s", phases)
    assert why == f"  memory: {report.partitions[0].strategy_reason}"
    numbers = dict.fromkeys(("superseded", "tombstones_kept", "tombstones_expired", "markers_kept"), 10**9)
    numbers |= dict.fromkeys(("markers_dropped", "aborted", "null_keys"), 10**9)
    large = dataclasses.replace(report.partitions[0], **numbers)
    lines = large.details()
    assert max(map(len, lines)) <= 80
    assert "1000000000 markers dropped, 1000000000 aborted" in " ".join(line.strip() for line in lines)
