"""Remote retention beside Kafka's own RemoteLogManager: random segments, lineages, states, settings and clocks."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

import kseg
from kseg.index.epoch import EpochStart
from kseg.retention.plan import Limits
from kseg.tiering.retention_plan import PartitionFacts, highest_copied, plan_remote_retention
from tests.kafka.jars import Missing
from tests.kafka.oracle import Oracle
from tests.log.written import numbered
from tests.scale import counts
from tests.tiering.test_retention_plan import segment

SOURCE = Path(__file__).parents[1] / "kafka" / "java" / "RemoteRetentionOracle.java"
NOW = 10_000
CASES = 400


@pytest.fixture(scope="module")
def remote_retention():
    try:
        started = Oracle.start(SOURCE)
    except Missing as missing:
        pytest.skip(str(missing))
    with started:
        yield started


def random_epochs(chance, end):
    """Some epochs that wrote below `end`; some that wrote nothing."""
    starts = sorted(chance.choices(range(0, end, 5), k=chance.randint(1, 5)))
    starts[0] = 0
    numbers = sorted(chance.sample(range(8), len(starts)))
    return list(zip(numbers, starts, strict=True))


def inside(epochs, start, end):
    """The epochs of offsets `start` to `end`, the first of them from `start` on."""
    found = []
    for place, (epoch, begin) in enumerate(epochs):
        following = epochs[place + 1][1] if place + 1 < len(epochs) else 10**9
        if begin <= end and (following > start or begin >= start):
            found.append((epoch, max(begin, start)))
    return found


def random_segments(chance, epochs, end):
    """Uploads by leaders of this lineage, and by some of others; states and sizes of all kinds.

    No two begin in one epoch at one offset: a broker's cache forgets the first of them, for good.
    """
    found, seen = [], set()
    for label in range(chance.choice([1, 1, 2, 3])):
        lineage = epochs if label == 0 else random_epochs(chance, end)
        at = chance.choice([0, 0, 5, 7])
        while at < end and chance.random() < 0.9:
            last = at + chance.randint(2, 15)
            state = chance.choices([1, 0, 2], [8, 1, 1])[0]
            pairs = inside(lineage, at, last)
            size, time = chance.randint(0, 300), chance.randint(0, NOW)
            if seen.isdisjoint(pairs):
                found.append(segment(at, last, *pairs, size=size, max_ts=time, state=state, label=label))
            seen |= set(pairs)
            at = last + 1
    return found


def told(found):
    epochs = ".".join(f"{entry.epoch}-{entry.start_offset}" for entry in found.epochs)
    return f"{found.start_offset}:{found.end_offset}:{found.size}:{found.max_timestamp_ms}:{found.state}:{epochs}"


@pytest.fixture(scope="module")
def local_logs(tmp_path_factory):
    """What is local: a segment at some offset, up to 60."""
    made = {}
    for base in (10, 30, 50):
        directory = tmp_path_factory.mktemp("local") / "orders-0"
        with kseg.create_log(directory, start_offset=base) as writer:
            writer.append(numbered(60 - base))
        made[base] = directory
    return made


@pytest.mark.parametrize("seed", range(8))
def test_kafka_retires_the_same(remote_retention, local_logs, seed):
    chance = random.Random(seed)
    gone = 0
    for _ in range(counts(CASES) // 8):
        epochs = random_epochs(chance, 60)
        segments = random_segments(chance, epochs, 58)
        if not segments:
            continue
        directory = local_logs[chance.choice(list(local_logs))]
        lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
        (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")
        limits = Limits(True, chance.choice([-1, 1000, 5000, 9000]), chance.choice([-1, 0, 200, 500, 1000, 2000]))
        (answer,) = remote_retention.call(
            "retain",
            directory,
            now=NOW,
            logStart=chance.choice([0, 0, 0, 5, 17, 31]),
            segments=";".join(told(found) for found in segments),
            **{"retention.ms": limits.retention_ms, "retention.bytes": limits.retention_bytes},
        )
        lineage = tuple(EpochStart(*pair) for pair in answer["epochs"])
        facts = PartitionFacts(answer["logStart"], answer["logEnd"], lineage, answer["local"])
        plan = plan_remote_retention(segments, facts, limits, now_ms=NOW)
        case = str((seed, answer, limits, [told(found) for found in segments]))
        begun = {number for number, found in enumerate(segments) if found.state == 2}
        assert {segments.index(record) for record, _ in plan.doomed} == set(answer["deleted"]) - begun, case
        assert plan.start_offset == max(answer["newStart"], answer["logStart"]), case
        assert highest_copied(segments, lineage, answer["logEnd"]) == answer["copied"], case
        gone += len(plan.doomed)
    assert gone > counts(CASES) // 16


def test_the_oracle_tells_a_difference(remote_retention, local_logs):
    """It would see a limit that is off by one."""
    found = segment(0, 9, (0, 0), size=100, max_ts=1000)
    (local_logs[30] / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for limit, expected in ((NOW - 1000, []), (NOW - 1001, [0])):
        (answer,) = remote_retention.call(
            "retain", local_logs[30], now=NOW, logStart=0, segments=told(found), **{"retention.ms": limit}
        )
        assert answer["deleted"] == expected
    assert replace(found, size=0) != found
