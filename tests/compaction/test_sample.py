"""What a sample of a log says of its keys, however they come back."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

import kseg
from kseg.compaction import CleanerConfig
from kseg.compaction.estimate import estimate
from kseg.compaction.policy import find_cleanable
from kseg.compaction.sample import CLOSE_BYTES, sample_keys
from kseg.compaction.strategy import plan_keys

RECORDS = 300_000
NOW = 1_800_000_000_000
CONFIG = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
ORDER = np.arange(RECORDS)
PATTERNS = {
    "in turn": ORDER % 50_000,
    "in turn, few": ORDER % 5_000,
    "twice in a row": ORDER // 2,
    "ten in a row": ORDER // 10,
    "evenly": np.random.default_rng(1).integers(0, RECORDS // 4, RECORDS),
    "never again": ORDER,
    "one half never again": np.where(ORDER < RECORDS // 2, ORDER, ORDER % 1000),
}


def write_log(directory, ids, batch_bytes=16 << 10):
    with kseg.create_log(directory, config=kseg.LogConfig(segment_bytes=8 << 20)) as log:
        keys = pa.array([b"key-%d" % key for key in ids], pa.binary())
        values = pa.array([os.urandom(50).hex().encode()] * len(ids), pa.binary())
        log.append(pa.table({"key": keys, "value": values}), batch_bytes=batch_bytes)
    return kseg.open_log(directory)


@pytest.mark.parametrize("name", PATTERNS)
def test_keys_that_come_back_in_a_regular_way_were_guessed_far_too_many_or_too_few(tmp_path, name):
    log = write_log(tmp_path / "t-0", PATTERNS[name])
    sealed = log.segments[:-1]
    end = log.segments[-1].base_offset
    real = len(np.unique(PATTERNS[name][:end]))
    assert sum(segment.size for segment in sealed) > 3 * CLOSE_BYTES  # it is guessed
    found = sample_keys(sealed, closely=True)
    assert found.records == pytest.approx(end, rel=0.02)
    assert 0.8 * real <= found.keys <= 1.5 * real
    (told,) = estimate(log.directory, config=CONFIG, now_ms=NOW).partitions
    assert told.saved_bytes == pytest.approx((1 - real / end) * told.dirty_bytes, abs=0.12 * told.dirty_bytes)


def test_keys_in_turn_were_spilled_where_they_fit(tmp_path):
    log = write_log(tmp_path / "t-0", PATTERNS["in turn"], batch_bytes=256 << 10)
    config = CleanerConfig(cleanup_policy="compact", memory_budget=8 << 20)
    plan = plan_keys(log.segments, find_cleanable(log, None, config, NOW), config)
    assert plan.strategy == "memory"


def test_keys_in_a_row_were_to_fit_where_they_do_not(tmp_path):
    log = write_log(tmp_path / "t-0", PATTERNS["twice in a row"])
    config = CleanerConfig(cleanup_policy="compact", memory_budget=5 << 20)
    plan = plan_keys(log.segments, find_cleanable(log, None, config, NOW), config)
    assert plan.strategy == "spill"


def test_a_log_has_the_same_sample_each_time(tmp_path):
    sealed = write_log(tmp_path / "t-0", PATTERNS["evenly"]).segments[:-1]
    assert sample_keys(sealed) == sample_keys(sealed)


def test_a_log_without_indexes_is_sampled_too(tmp_path):
    directory = tmp_path / "t-0"
    write_log(directory, PATTERNS["evenly"])
    for path in directory.glob("*.index"):
        path.unlink()
    sealed = kseg.open_log(directory).segments[:-1]
    real = len(np.unique(PATTERNS["evenly"]))
    assert 0.8 * real < sample_keys(sealed, closely=True).keys < 1.2 * real
