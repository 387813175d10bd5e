"""Healthy logs, of real brokers and of Kafka's own classes: verify raises no alarm."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest

import kseg
from kseg.compaction import erase
from kseg.verification.kinds import Severity
from tests.builders import LogBuilder
from tests.reference.record import Record
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
TIME = 1_700_000_000_000


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


def test_an_empty_epoch_checkpoint_is_none_after_legacy_batches_became_magic_2(tmp_path):
    """A broker empties it when a legacy batch is appended, and no cleaner or erasure gives such a batch an epoch."""
    log = LogBuilder(tmp_path).record(b"a", b"1", leader_epoch=0)
    legacy = log.legacy([*log.make(2, content=lambda offset: (b"gone", b"2", ()))])
    path = legacy.write()
    (path / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert alarms(tmp_path) == []
    assert erase(tmp_path, keys=[b"gone"]).records == 2
    assert [batch.magic for batch in kseg.open_log(path).batches()] == [2, 2]
    assert alarms(tmp_path) == []


@pytest.mark.parametrize("is_rolled", [False, True], ids=["one segment", "at a segment's start"])
def test_erased_batches_before_a_legacy_wrapper_are_no_lost_sequences(tmp_path, is_rolled):
    log = LogBuilder(tmp_path).record(b"a", b"1", producer_id=7, producer_epoch=0, base_sequence=0)
    if is_rolled:
        log.segment()
    log.record(b"gone", b"1", producer_id=7, producer_epoch=0, base_sequence=1)
    log.legacy(3, codec="gzip").record(b"b", b"2", producer_id=7, producer_epoch=0, base_sequence=2)
    log.write()
    before = alarms(tmp_path)
    assert erase(tmp_path, keys=[b"gone"]).records == 1
    assert alarms(tmp_path) == before


def test_a_producers_last_batch_that_lost_its_latest_record_raises_no_alarm(tmp_path):
    """An erasure leaves its greatest timestamp: a broker forgets the producer by it."""
    records = [Record(0, TIME, b"a", b"1"), Record(1, TIME + 9, b"gone", b"2")]
    LogBuilder(tmp_path).batch(records, producer_id=7, producer_epoch=0, base_sequence=0).write()
    before = alarms(tmp_path, deep=True)
    assert erase(tmp_path, keys=[b"gone"]).records == 1
    assert alarms(tmp_path, deep=True) == before


def test_a_batch_that_lost_records_and_holds_a_later_one_than_it_says_is_told(tmp_path):
    records = [Record(0, TIME + 9, b"a", b"1")]
    path = LogBuilder(tmp_path).batch(records, last_offset_delta=1, max_timestamp=TIME).write()
    assert any(alarm.startswith("KS123") for alarm in alarms(path, deep=True))
