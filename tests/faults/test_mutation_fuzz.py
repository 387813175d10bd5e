"""Mutated logs end in the right rows or in an error that says where: 20,000 mutations and more in every run.

Cases are numbered, and a number makes its case: a failure prints how to run it again. KSEG_FUZZ_BASE shifts the
numbers, for runs that are to see something new.
"""

from __future__ import annotations

import os

import pytest

from tests.faults.fuzz import make, run_shard
from tests.faults.memory import MIB, bounded_growth
from tests.faults.seeds import seeds
from tests.scale import counts

SHARDS = 20
CASES = 1050  # of each shard
BASE = int(os.environ.get("KSEG_FUZZ_BASE", "0"))
LARGEST_GROWTH = 300 * MIB
WARM_UP = 999_000_000


@pytest.mark.timeout(280, method="thread")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_mutated_logs(shard, tmp_path):
    directory = tmp_path / "fuzz-0"
    directory.mkdir()
    cases = counts(CASES)
    run_shard(WARM_UP, 30, directory)  # what compiles or loads kernels is not what is measured
    with bounded_growth(LARGEST_GROWTH):
        outcomes = run_shard(BASE + shard * 1_000_000, cases, directory)
    assert sum(outcomes.values()) == cases
    compared = outcomes["rows as expected"] + outcomes["refused as expected"]
    assert compared > cases // 4, f"too few cases that can be compared: {outcomes}"


def test_every_run_has_20000_mutations():
    assert SHARDS * CASES >= 20_000


def test_cases_are_what_their_numbers_say():
    assert [make(case) for case in range(50)] == [make(case) for case in range(50)]
    assert len({make(case)[1].data for case in range(200)}) > 190


def test_half_of_the_mutations_have_a_fitting_checksum():
    repaired = sum(make(case)[1].repaired for case in range(1000))
    assert 450 < repaired < 900


def test_seeds_cover_all_magics_and_codecs():
    kinds = set()
    for seed in seeds():
        magic = seed.data[16]
        kinds.add((magic, seed.data[22 if magic == 2 else 17] & 7))
    assert kinds >= {(2, codec) for codec in range(5)} | {(magic, codec) for magic in (0, 1) for codec in range(4)}
