"""Which segments of a tier expire: the rules of Kafka's RemoteLogManager."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kseg.index.epoch import EpochStart
from kseg.retention.plan import Limits
from kseg.tiering.metadata_records import COPY_FINISHED, COPY_STARTED, SegmentRecord
from kseg.tiering.retention_plan import PartitionFacts, highest_copied, plan_remote_retention
from tests.tiering.tiers import TOPIC_ID, uuid_of

NOW = 1_000_000
ALL = Limits(True)


def epochs(*pairs):
    return tuple(EpochStart(*pair) for pair in pairs)


def segment(start, end, *pairs, size=100, max_ts=0, state=COPY_FINISHED, label=""):
    """A segment with offsets `start` to `end`, the last included."""
    return SegmentRecord(
        "a", TOPIC_ID, 0, uuid_of(start, end, label), start, end, max_ts, 1, 0, size, epochs(*pairs), state=state
    )


def planned(segments, limits, **facts):
    given = {"start_offset": 0, "end_offset": 100, "lineage": epochs((0, 0)), **facts}
    plan = plan_remote_retention(segments, PartitionFacts(**given), limits, now_ms=NOW)
    return [(found.start_offset, str(rule)) for found, rule in plan.doomed], plan.start_offset


THREE = [
    segment(0, 9, (0, 0), max_ts=1000),
    segment(10, 19, (0, 10), max_ts=2000),
    segment(20, 29, (0, 20), max_ts=3000),
]


@pytest.mark.parametrize(
    ("retention_ms", "gone"),
    [
        (-1, []),
        (NOW - 1000, []),  # as old as the limit: it stays
        (NOW - 1001, [0]),
        (NOW - 3001, [0, 10, 20]),
        (0, [0, 10, 20]),
    ],
)
def test_time(retention_ms, gone):
    expected = [(start, "time") for start in gone], gone[-1] + 10 if gone else 0
    assert planned(THREE, Limits(True, retention_ms)) == expected
    assert planned(THREE, Limits(False, retention_ms)) == ([], 0)  # no `delete` in cleanup.policy


def test_a_young_segment_keeps_all_behind_it():
    young = [THREE[0], replace(THREE[1], max_timestamp_ms=NOW), THREE[2]]
    assert planned(young, Limits(True, 5000)) == ([(0, "time")], 10)


@pytest.mark.parametrize(
    ("retention_bytes", "local", "gone"),
    [
        (-1, 500, []),
        (300, 0, []),
        (299, 0, []),  # a whole segment has to be too much
        (200, 0, [0]),
        (200, 50, [0]),  # what is only local counts
        (200, 150, [0, 10]),
        (0, 0, [0, 10, 20]),
        (0, 1000, [0, 10, 20]),
    ],
)
def test_size_of_tier_and_local_log(retention_bytes, local, gone):
    expected = [(start, "size") for start in gone], gone[-1] + 10 if gone else 0
    assert planned(THREE, Limits(True, -1, retention_bytes), local_only_bytes=local) == expected


def test_time_comes_before_size_and_counts_for_it():
    """Three segments are 100 bytes each, 150 too many: the first goes by time, and 50 are left, which is none."""
    assert planned(THREE, Limits(True, NOW - 1001, 150)) == ([(0, "time")], 10)
    assert planned(THREE, Limits(True, NOW - 1001, 100)) == ([(0, "time"), (10, "size")], 20)


def test_the_size_of_what_is_on_another_lineage_does_not_count():
    stray = segment(20, 29, (1, 20), size=1000, label="stray")
    assert planned([*THREE, stray], Limits(True, -1, 300), lineage=epochs((0, 0), (2, 30))) == ([], 0)


def test_log_start():
    """Whatever cleanup.policy says; a segment that reaches over the log start stays."""
    found = planned(THREE, Limits(False), start_offset=25, lineage=epochs((0, 25)))
    assert found == ([(0, "start"), (10, "start")], 25)
    assert planned(THREE, ALL, start_offset=19, lineage=epochs((0, 19))) == ([(0, "start")], 19)
    assert planned(THREE, ALL, start_offset=30, lineage=epochs((0, 30)))[0] == [
        (0, "start"),
        (10, "start"),
        (20, "start"),
    ]


def test_epochs_that_the_lineage_has_left_behind():
    """The log start moved past epoch 0: its segments are listed under no epoch that counts any more."""
    segments = [segment(0, 9, (0, 0)), segment(10, 19, (0, 10), (1, 15)), segment(20, 29, (1, 20))]
    assert planned(segments, ALL, start_offset=20, lineage=epochs((1, 20))) == ([(10, "start"), (0, "lineage")], 20)


def test_another_lineage_neither_goes_nor_stops_the_search():
    """An unclean election: epoch 1 was never ours, and segments of it hide nothing behind them."""
    segments = [
        segment(0, 9, (0, 0), max_ts=1000),
        segment(10, 19, (0, 10), (1, 12), max_ts=1000, label="stray"),
        segment(10, 19, (0, 10), max_ts=1000),
        segment(20, 29, (2, 20), max_ts=1000),
    ]
    found = planned(segments, Limits(True, 5000), lineage=epochs((0, 0), (2, 20)))
    assert found == ([(0, "time"), (10, "time"), (20, "time")], 30)
    plan = plan_remote_retention(
        segments, PartitionFacts(0, 100, epochs((0, 0), (2, 20))), Limits(True, 5000), now_ms=NOW
    )
    assert segments[1] not in [record for record, _ in plan.doomed]


@pytest.mark.parametrize(
    ("lineage", "end_offset", "is_ours"),
    [
        (((0, 0),), 100, True),
        (((0, 0), (1, 20)), 100, True),
        (((0, 0), (1, 15)), 100, False),  # it ends behind its epoch
        (((1, 0),), 100, False),  # its epochs are over: the rule `lineage` takes it
        (((0, 0),), 19, False),  # the log has been truncated below its end
        (((0, 0), (1, 12), (2, 12)), 100, False),
    ],
)
def test_which_segments_are_ours(lineage, end_offset, is_ours):
    found = segment(10, 19, (0, 10), max_ts=0)
    rules = dict(planned([found], Limits(True, 0), lineage=epochs(*lineage), end_offset=end_offset)[0])
    assert (rules.get(10) == "time") is is_ours


def test_the_first_epoch_that_counts_must_not_begin_too_early():
    """Kafka looks at the first of the segment's epochs that the lineage reaches back to, which may be its second."""
    found = segment(10, 29, (5, 10), (7, 15))
    assert planned([found], Limits(True, 0), lineage=epochs((6, 12), (7, 20))) == ([], 0)
    assert planned([found], Limits(True, 0), lineage=epochs((6, 12), (7, 15))) == ([(10, "time")], 30)


def test_epochs_without_records_do_not_count():
    found = segment(10, 19, (0, 10), (1, 15), (2, 15))
    assert planned([found], Limits(True, 0), lineage=epochs((0, 0), (2, 15), (3, 30))) == ([(10, "time")], 20)


def test_overlapping_uploads_of_two_leaders():
    """After the first is gone the log start is in the middle of the second, and that is still ours."""
    segments = [segment(5, 50, (5, 5), (7, 15), max_ts=1), segment(14, 150, (5, 14), (7, 15), (9, 100), max_ts=NOW)]
    lineage = epochs((5, 5), (7, 15), (9, 100))
    assert planned(segments, Limits(True, 10), lineage=lineage, end_offset=200) == ([(5, "time")], 51)
    later = planned(segments[1:], Limits(True, 0), lineage=epochs((7, 51), (9, 100)), start_offset=51, end_offset=200)
    assert later == ([], 51)
    older = replace(segments[1], max_timestamp_ms=1)
    assert planned([older], Limits(True, 0), lineage=epochs((7, 51), (9, 100)), start_offset=51, end_offset=200) == (
        [(14, "time")],
        151,
    )


def test_a_copy_that_did_not_end_is_looked_at_like_the_others():
    dangling = replace(THREE[1], state=COPY_STARTED)
    assert planned([THREE[0], dangling, THREE[2]], Limits(True, 0))[0] == [(0, "time"), (10, "time"), (20, "time")]
    young = replace(dangling, max_timestamp_ms=NOW)
    assert planned([THREE[0], young, THREE[2]], Limits(True, 5000)) == ([(0, "time")], 10)
    assert planned([THREE[0], young, THREE[2]], Limits(True, -1, 200)) == ([], 0)  # nor is it counted


def test_what_is_being_deleted_is_not_planned_again():
    gone = [replace(THREE[0], state=2), replace(THREE[1], state=3), THREE[2]]
    assert planned(gone, Limits(True, 0)) == ([(20, "time")], 30)


def test_nothing_is_known_of_the_lineage():
    assert planned(THREE, Limits(True, 0, 0), lineage=()) == ([], 0)


def test_highest_copied():
    segments = [segment(0, 9, (0, 0)), segment(10, 19, (0, 10), (1, 15)), segment(20, 29, (1, 20), state=COPY_STARTED)]
    assert highest_copied(segments, epochs((0, 0), (1, 15)), 100) == 19
    assert highest_copied(segments, epochs((0, 0), (2, 12)), 100) == 11
    assert highest_copied(segments, epochs((5, 0)), 100) == -1
    assert highest_copied(segments, epochs((0, 0), (1, 15)), 18) == 17  # the log was truncated
    assert highest_copied([replace(found, state=3) for found in segments[:2]], epochs((0, 0), (1, 15)), 100) == 19
