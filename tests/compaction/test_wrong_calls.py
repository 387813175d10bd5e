"""Arguments of a round that are refused at once."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from kseg.compaction import CleanerConfig, compact, erase, repack
from kseg.compaction.estimate import estimate
from kseg.errors import OptionError
from kseg.types import Codec
from tests.builders import LogBuilder
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
        ("output", 5),
        ("spark", "local[2]"),
        ("config", {"cleanup.policy": "compact"}),
    ],
)
def test_a_wrong_argument_was_told_by_python_or_blamed_on_each_partition(orders, name, value):
    before = content(orders.parent)
    with pytest.raises(OptionError, match=name):
        compact(orders, **({"config": CONFIG} | {name: value}))
    assert content(orders.parent) == before


def test_settings_beside_a_config_were_passed_over_without_a_word(orders):
    before = content(orders.parent)
    with pytest.raises(OptionError, match="config and settings"):
        compact(orders, config=CONFIG, settings={"cleanup.policy": "delete"})
    with pytest.raises(OptionError, match="config and settings"):
        estimate(orders, config=CONFIG, settings={"cleanup.policy": "delete"})
    assert content(orders.parent) == before


def test_integers_of_numpy_were_refused(orders):
    (done,) = compact(orders, config=CONFIG, now_ms=np.int64(NOW), first_dirty=np.int64(0), dry_run=True).partitions
    assert done.skipped is None
    assert type(CleanerConfig(segment_bytes=np.int64(1 << 20)).segment_bytes) is int


@pytest.mark.parametrize("policy", [["compact"], 5, b"compact"])
def test_a_policy_that_is_no_text_was_told_by_python(policy):
    with pytest.raises(OptionError, match="cleanup_policy"):
        CleanerConfig(cleanup_policy=policy)


@pytest.mark.parametrize("job", [partial(repack, codec="lz4"), partial(erase, keys=[b"a"])], ids=["repack", "erase"])
@pytest.mark.parametrize(("name", "value"), [("workers", -1), ("workers", "2"), ("workers", 0), ("spark", "local[2]")])
def test_threads_that_are_no_number_were_told_by_python(orders, job, name, value):
    before = content(orders.parent)
    with pytest.raises(OptionError, match=name):
        job(orders, **{name: value})
    assert content(orders.parent) == before


@pytest.mark.parametrize("codec", [None, 2.0, b"lz4", 9, "brotli"])
def test_no_codec_at_all_was_taken_for_that_of_the_name_none(codec):
    with pytest.raises(OptionError, match="unknown codec"):
        Codec.parse(codec)


def test_first_dirty_of_a_log_directory_was_refused(orders):
    before = content(orders)
    answer = call("compact", orders.parent, "--first-dirty", 0, "--dry-run")
    assert (answer.status, "cleanup.policy is not known" in answer.text) == (2, True)  # no one partition was named
    named = ("--topics", "orders", "--cleanup-policy", "compact")
    answer = call("compact", orders.parent, "--first-dirty", 0, *named, "--now", NOW, "--json")
    assert answer.status == 0
    assert content(orders) != before
    (done,) = [json.loads(line) for line in answer.text.splitlines() if "first_dirty" in line]
    assert (done["first_dirty"], done["skipped"]) == (0, None)


def test_a_topic_that_was_named_and_refused_ended_with_status_0_beside_one_that_was_compacted(orders):
    other = LogBuilder(orders.parent, "__cluster_metadata").segment().record(b"a", b"1").segment().write()
    answer = call(
        "compact", orders.parent, "--topics", "orders,__cluster_metadata", "--cleanup-policy", "compact", "--dry-run"
    )
    assert (answer.status, other.name in answer.text) == (2, True)


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
