"""Settings of the cleaner: what is taken, what is refused, and what they give as a reason."""

from __future__ import annotations

import pytest

import kseg
from kseg.compaction import CleanerConfig, compact, repack
from kseg.errors import OptionError
from kseg.settings.definitions import DEFINITIONS
from tests.builders import LogBuilder

DAY_MS = 86_400_000


@pytest.fixture
def orders(tmp_path):
    builder = LogBuilder(tmp_path / "data")
    for _ in range(3):
        builder.segment().record(b"a", b"1").record(b"b", b"2").record(b"a", b"3")
    return builder.write()


@pytest.mark.parametrize("ratio", ["x", "0.5", None, True, -0.1, 1.5, float("nan")])
def test_a_ratio_that_is_no_number_was_a_type_error(ratio):
    with pytest.raises(OptionError, match=r"min_cleanable_dirty_ratio must be a number from 0 to 1"):
        CleanerConfig(min_cleanable_dirty_ratio=ratio)


@pytest.mark.parametrize(("name", "least"), [("segment.bytes", 14), ("segment.index.bytes", 4)])
def test_sizes_that_a_topic_may_have_were_refused_by_the_cleaner(orders, name, least):
    parse = DEFINITIONS[name].parse
    with pytest.raises(ValueError, match="a whole number"):
        parse(str(least - 1))
    with pytest.raises(OptionError, match=str(least)):
        CleanerConfig(**{name.replace(".", "_"): least - 1})
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, name: least}
    (done,) = compact(orders, settings=settings).partitions
    assert (done.error, done.skipped, done.records_after) == (None, None, 2)
    assert [found.severity for found in kseg.verify(orders).findings if found.severity != "info"] == []


def test_a_segment_smaller_than_a_batch_has_one_batch(orders):
    before = [row for batch in kseg.open_log(orders).read() for row in batch.to_pylist()]
    (done,) = repack(orders, codec="none", segment_bytes=14).partitions
    assert (done.error, done.segments_after) == (None, 6)
    assert [row for batch in kseg.open_log(orders).read() for row in batch.to_pylist()] == before


def test_young_segments_were_said_to_be_not_sealed_or_cleaned(orders):
    newest = max(segment.largest_timestamp for segment in kseg.open_log(orders).segments)
    config = CleanerConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0, min_compaction_lag_ms=DAY_MS)
    (early,) = compact(orders, config=config, now_ms=newest + 1000).partitions
    assert early.skipped == "nothing to clean yet: what was not cleaned before is younger than min.compaction.lag.ms"
    (done,) = compact(orders, config=config, now_ms=newest + DAY_MS).partitions
    assert done.skipped is None
    (again,) = compact(orders, config=config, now_ms=newest + DAY_MS).partitions
    assert "no sealed segment" in again.skipped
