"""What a round covers, against the arithmetic of Kafka's LogCleanerManager."""

from __future__ import annotations

import math
import shutil

import pytest

from kseg.compaction import CleanerConfig
from kseg.compaction.policy import find_cleanable
from kseg.log.partition import open_log
from tests.compaction.rounds import START_MS
from tests.scale import counts

SEEDS = range(counts(4))


@pytest.mark.parametrize("seed", SEEDS)
def test_cleanable_ranges_are_the_cleaner_managers(oracle, tmp_path, seed):
    """Generated timestamps lie within a few minutes before START_MS."""
    source = tmp_path / "t-0"
    end = oracle.gen(source, seed, 120, codec="none", txn=(0, 0.5)[seed % 2], roll=0.08)["logEnd"]
    times = sorted({batch["maxTs"] for batch in oracle.dump(source)})
    clocks = [START_MS, times[0] + 1000, times[len(times) // 2] + 1000, times[-1] + 1000]
    seen: list[tuple[int, bool]] = []
    for checkpoint in (None, end // 3, end, end + 5):
        for now_ms in clocks:
            for lags in ({}, {"min": 1000}, {"min": 600_000}, {"max": 1000}, {"max": 10_000, "min": 500}):
                options = {f"{name}.compaction.lag.ms": value for name, value in lags.items()}
                directory = tmp_path / f"copy-{len(seen)}" / "t-0"
                shutil.copytree(source, directory)
                answer = oracle.cleanable(directory, checkpoint, now_ms, **options)
                shutil.rmtree(directory.parent, ignore_errors=True)  # a thread of Kafka's may still write there
                fields = {f"{name}_compaction_lag_ms": value for name, value in lags.items()}
                with_lags = CleanerConfig(index_interval_bytes=256, segment_bytes=1 << 20, **fields)
                found = find_cleanable(open_log(source), checkpoint, with_lags, now_ms)
                what = f"checkpoint {checkpoint}, now {now_ms}, {lags}"
                assert found.first_dirty == answer["firstDirty"], what
                assert found.first_uncleanable == answer["firstUncleanable"], what
                assert found.cleanable_bytes == answer["cleanableBytes"], what
                ratio = 0.0 if math.isnan(answer["ratio"]) else answer["ratio"]  # Java divides an empty log by itself
                assert found.dirty_ratio == pytest.approx(ratio, abs=1e-6), what
                assert found.must_compact_now == answer["mustCompactNow"], what
                seen.append((found.first_uncleanable, found.must_compact_now))
    assert len(set(seen)) > 2
