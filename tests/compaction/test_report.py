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
