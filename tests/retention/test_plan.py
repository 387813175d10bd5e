"""Kafka's rules for retention, over numbers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kseg.retention.plan import Limits, LogFacts, Rule, plan_retention


@dataclass(frozen=True)
class Candidate:
    base_offset: int
    size: int
    largest_timestamp: int


LOG = [Candidate(0, 100, 1000), Candidate(10, 50, 2000), Candidate(20, 70, 3000)]
END = 30


def planned(limits, segments=LOG, *, start=0, high_watermark=END, now=4000):
    plan = plan_retention(segments, LogFacts(start, END, high_watermark), limits, now_ms=now)
    return [base for base, _ in plan.doomed], plan.start_offset, plan.new_base_offset


@pytest.mark.parametrize(
    ("limit", "doomed"), [(-1, []), (3000, []), (2999, [0]), (2000, [0]), (1999, [0, 10]), (1000, [0, 10])]
)
def test_by_time_a_segment_of_exactly_the_age_stays(limit, doomed):
    assert planned(Limits(True, retention_ms=limit))[0] == doomed


@pytest.mark.parametrize(
    ("limit", "doomed"), [(-1, []), (221, []), (220, []), (121, []), (120, [0]), (71, [0]), (70, [0, 10]), (1, [0, 10])]
)
def test_by_size_at_least_the_limit_stays(limit, doomed):
    assert planned(Limits(True, retention_bytes=limit))[0] == doomed


@pytest.mark.parametrize(("start", "doomed"), [(0, []), (9, []), (10, [0]), (19, [0]), (20, [0, 10]), (END, [0, 10])])
@pytest.mark.parametrize("deletes", [True, False])
def test_before_the_log_start_but_never_the_last(start, doomed, deletes):
    assert planned(Limits(deletes), start=start) == (doomed, start, None)


def test_compaction_alone_knows_neither_time_nor_size():
    assert planned(Limits(False, retention_ms=0, retention_bytes=0)) == ([], 0, None)


def test_when_all_go_an_empty_segment_takes_their_place():
    assert planned(Limits(True, retention_ms=0)) == ([0, 10, 20], END, END)
    assert planned(Limits(True, retention_bytes=0)) == ([0, 10, 20], END, END)


def test_an_empty_last_segment_stays():
    segments = [*LOG, Candidate(END, 0, 0)]
    assert planned(Limits(True, retention_ms=0), segments) == ([0, 10, 20], END, None)


def test_a_timestamp_in_the_future_keeps_all_behind_it():
    segments = [LOG[0], Candidate(10, 50, 10**15), LOG[2]]
    assert planned(Limits(True, retention_ms=0), segments) == ([0], 10, None)


@pytest.mark.parametrize(("high_watermark", "doomed"), [(9, []), (10, [0]), (29, [0, 10]), (30, [0, 10, 20])])
def test_nothing_above_the_high_watermark_goes(high_watermark, doomed):
    assert planned(Limits(True, retention_ms=0), high_watermark=high_watermark)[0] == doomed


def test_rules_run_one_after_the_other():
    plan = plan_retention(LOG, LogFacts(10, END, END), Limits(True, 1500, 70), now_ms=5000)
    assert plan.doomed == ((0, Rule.START), (10, Rule.SIZE), (20, Rule.TIME))
    plan = plan_retention(LOG, LogFacts(10, END, END), Limits(True, 1500, 120), now_ms=4000)
    assert plan.doomed == ((0, Rule.START), (10, Rule.TIME))
