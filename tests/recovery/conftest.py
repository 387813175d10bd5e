"""Random logs that Kafka's own classes wrote, for all tests of recovery."""

from __future__ import annotations

import pytest

LOGS = 5


@pytest.fixture(scope="session")
def logs(oracle, tmp_path_factory):
    """Random logs, and where each ends."""
    made = []
    for seed in range(LOGS):
        directory = tmp_path_factory.mktemp("logs") / "t-0"
        state = oracle.gen(directory, seed, 60, roll=0.1, legacy=0.3 if seed % 3 == 2 else 0)
        made.append((directory, state["logEnd"]))
    return made
