"""Healthy logs, of real brokers and of Kafka's own classes: verify raises no alarm."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest

import kseg
from kseg.verification.kinds import Severity
from tests.scale import JIT_DISABLED, counts

SETTINGS = [
    {},
    {"codec": "none", "rec": 3},
    {"lat": 1, "codec": "zstd"},
    {"legacy": 0.5},
    {"txn": 0.9, "roll": 0.2, "life": 5},
    {"gap": 0.5, "rec": 40, "codec": "lz4"},
    {"gap": 0, "txn": 0.8},
    {"txn": 0.7, "keys": 5, "internal.segment.bytes": 4096, "roll": 0},
]
DAY = 86_400_000
NOW = 1_700_000_600_000


def alarms(path: Path, **options: object) -> list[str]:
    report = kseg.verify(path, **options)
    return [f"{f.code} {f.path} {f.detail}" for f in report.findings if f.severity is not Severity.INFO]


LOG_DIRS = ["before", "cleaned", "expired", "unclean", "legacy", "tiered/local", "aiven/encrypted/local"]


@pytest.mark.parametrize("name", LOG_DIRS[3 if JIT_DISABLED else 0 :])
@pytest.mark.parametrize("deep", [False, True])
def test_logs_of_real_brokers_raise_no_alarm(golden, name, deep):
    assert alarms(golden / name, deep=deep) == []


@pytest.mark.parametrize("partition", ["tx-0", "__cluster_metadata-0", "retained-0"][: 2 if JIT_DISABLED else 3])
def test_one_partition_alone_raises_no_alarm(golden, tmp_path, partition):
    assert alarms(golden / "before" / partition, deep=True) == []
    shutil.copytree(golden / "before" / partition, tmp_path / "a copy of it")
    assert alarms(tmp_path / "a copy of it", deep=True) == []


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        *itertools.product(range(counts(3)), SETTINGS),
        (18, {"txn": 0.9, "roll": 0.2, "life": 5}),  # a producer expires, and comes back with a marker alone
    ],
    ids=str,
)
def test_logs_of_kafkas_classes_raise_no_alarm(oracle, tmp_path, seed, options):
    directory = tmp_path / "random-0"
    state = oracle.gen(directory, seed, 150, **options)
    assert alarms(tmp_path, deep=True) == []
    settings = {key: value for key, value in options.items() if "." in key or key == "lat"}
    oracle.load(directory, clean=bool(seed % 2), now=NOW, **settings)
    assert alarms(tmp_path, deep=True) == []
    first = 0
    for step, expiration in enumerate((2**31 - 1, 1, 2**31 - 1)):
        round_ = oracle.clean(
            directory, first, NOW + step * 10_000, **settings, **{"producer.id.expiration.ms": expiration}
        )
        first = round_["endOffset"]
        assert alarms(tmp_path, deep=True) == [], f"after round {step + 1}"
    start = random.Random(seed).randrange(state["logEnd"])
    oracle.load(directory, logStart=start, clean=False, now=NOW + DAY * (seed % 3), **settings)
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nrandom 0 {start}\n")
    assert alarms(tmp_path, deep=True) == []


def test_a_log_whose_records_were_all_deleted_raises_no_alarm(oracle, tmp_path):
    """DeleteRecords up to the log's end: two starts later neither epochs nor snapshots are left of what is below it."""
    directory = tmp_path / "random-0"
    end = oracle.gen(directory, 6, 30, gap=0, roll=0.2)["logEnd"]
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nrandom 0 {end}\n")
    for _ in range(3):
        state = oracle.load(directory, logStart=end, clean=True, now=NOW)
        assert alarms(tmp_path, deep=True) == []
    assert state["epochs"] == []
