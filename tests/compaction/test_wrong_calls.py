"""Arguments of a round that are refused at once."""

from __future__ import annotations

import pytest

from kseg.compaction import CleanerConfig, compact
from kseg.compaction.estimate import estimate
from kseg.errors import OptionError
from tests.cli.calls import call

CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
NOW = 1_800_000_000_000


def content(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_a_dirty_offset_behind_the_end_of_the_log_silently_meant_its_start(orders):
    before = content(orders.parent)
    answer = call("compact", orders, "--cleanup-policy", "compact", "--first-dirty", 52)
    assert (answer.status, "first_dirty is 52, and orders-0 ends at offset 51" in answer.messages) == (2, True)
    for wrong in (-1, 52, "0", True):
        with pytest.raises(OptionError, match="first_dirty"):
            compact(orders, config=CONFIG, first_dirty=wrong)
        with pytest.raises(OptionError, match="first_dirty"):
            estimate(orders, config=CONFIG, first_dirty=wrong)
    assert content(orders.parent) == before
    (done,) = compact(orders, config=CONFIG, now_ms=NOW, first_dirty=51).partitions
    assert "nothing to clean" in done.skipped


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", -1),
        ("workers", 0),
        ("workers", "2"),
        ("now_ms", "x"),
        ("now_ms", -1),
        ("now_ms", 2**63),
        ("strategy", "fast"),
        ("memory_budget", 1000),
        ("memory_budget", "1g"),
    ],
)
def test_a_wrong_argument_was_told_by_python_or_blamed_on_each_partition(orders, name, value):
    before = content(orders.parent)
    with pytest.raises(OptionError, match=name):
        compact(orders, config=CONFIG, **{name: value})
    assert content(orders.parent) == before


def test_an_estimate_took_a_clock_that_is_none(orders):
    with pytest.raises(OptionError, match="now_ms"):
        estimate(orders, config=CONFIG, now_ms="x")


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_copy_onto_a_file_ended_with_status_1(orders, tmp_path, below):
    (tmp_path / "file").write_bytes(b"mine")
    answer = call("compact", orders, "--cleanup-policy", "compact", "--output", tmp_path / "file" / below)
    assert (answer.status, "file is no directory" in answer.messages) == (2, True)
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_an_estimate_with_an_output_made_no_copy_and_said_nothing(orders, tmp_path):
    answer = call("compact", orders, "--cleanup-policy", "compact", "--estimate", "--output", tmp_path / "out")
    assert (answer.status, "an estimate makes no copies" in answer.messages) == (2, True)
