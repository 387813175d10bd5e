"""Logs that start behind their first batch: what a broker that starts there still knows."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import kseg
from kseg.index.producer import parse_snapshot
from kseg.log.config import LogConfig
from kseg.recovery.job import recover
from tests.scale import counts

NOW_MS = 1_700_000_600_000
SEEDS_PER_TEST = 10
CONFIG = LogConfig(producer_id_expiration_ms=2**31 - 1, index_interval_bytes=256)


@dataclass
class Case:
    """A generated log below `home` with a log start, and what a crash or a clean shutdown has left of its snapshots."""

    oracle: object
    home: Path
    seed: int
    loaded: dict = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.source = self.home / "source" / "t-0"
        roll, gap, life = rng.choice([0, 0.05, 0.2]), rng.choice([0, 0.1, 0.5]), rng.choice([3, 25])
        self.state = self.oracle.gen(self.source, self.seed, 60, roll=roll, gap=gap, life=life, txn=0.7, codec="none")
        end, bases = self.state["logEnd"], [base for base, _ in self.state["segments"]]
        self.log_start = rng.choice([rng.randrange(end + 1), rng.choice(bases), 1])
        self.clean = rng.random() < 0.5
        self.recovery_point = rng.choice([0, rng.choice(bases), rng.randrange(end + 1), end])
        self.flushed = max(base for base in bases if base <= self.recovery_point)
        snapshots = sorted(self.source.glob("*.snapshot"))
        for path in snapshots:
            chance = rng.random()
            if chance < 0.3:
                path.unlink()
            elif chance < 0.4:
                path.write_bytes(path.read_bytes()[:-3])
        if not self.clean:
            for path in self.source.glob("*.snapshot"):
                if int(path.stem) > self.flushed:  # written, but not to the disk when the power went
                    path.unlink()
        elif not list(self.source.glob("*.snapshot")):
            # without any, a broker takes the log for one of a time before snapshots, and looks at no batch
            (self.source / f"{bases[0]:020d}.snapshot").write_bytes(b"")
        kafkas = self.copy("kafkas")
        self.loaded = self.oracle.load(
            kafkas, logStart=self.log_start, recoveryPoint=self.recovery_point, clean=self.clean, now=NOW_MS
        )

    def copy(self, name: str) -> Path:
        directory = shutil.copytree(self.source, self.home / name / "t-0")
        for kind, offset in (("log-start", self.log_start), ("recovery-point", self.recovery_point)):
            (directory.parent / f"{kind}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
        if self.clean:
            (directory.parent / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":1}')
        return directory


def told(entries):
    return [
        [p.producer_id, p.epoch, p.last_sequence, p.last_offset, p.timestamp, p.coordinator_epoch, p.txn_first_offset]
        for p in sorted(entries, key=lambda p: p.producer_id)
    ]


@pytest.mark.parametrize("first", range(0, counts(60), SEEDS_PER_TEST))
def test_producers_below_the_log_start_are_those_of_a_broker_that_starts(oracle, tmp_path, first):
    """All batches on disk were replayed, and snapshots up to the log start believed: transactions long gone were open.

    The one batch that holds the log start counts; and where a segment is recovered, all of its batches do.
    """
    for seed in range(first, first + SEEDS_PER_TEST):
        case = Case(oracle, tmp_path / str(seed), seed)
        expected = case.loaded
        log = kseg.open_log(case.copy("read"))
        what = f"seed {seed}, log start {case.log_start}, recovery point {case.recovery_point}, clean {case.clean}"
        assert (log.start_offset, log.end_offset) == (expected["logStart"], expected["logEnd"]), what
        assert told(log.producers()) == expected["producers"], what
        assert log.last_stable_offset == expected["lastStable"], what
        assert [list(entry) for entry in log.leader_epochs()] == expected["epochs"], what

        appended = case.copy("appended")
        with kseg.append_to(appended, config=CONFIG, clock=lambda: NOW_MS / 1000) as writer:
            writer.append(pa.table({"value": [b"v"]}))
        newest = appended / f"{expected['logEnd'] + 1:020d}.snapshot"
        assert told(parse_snapshot(newest.read_bytes())) == expected["producers"], what

        recovered = case.copy("recovered")
        recover(recovered, config=CONFIG, now_ms=NOW_MS)
        newest = recovered / f"{expected['logEnd']:020d}.snapshot"
        assert told(parse_snapshot(newest.read_bytes()) if newest.exists() else ()) == expected["producers"], what


@pytest.mark.parametrize("stored", [[(0, 0)], [(0, 0), (3, 40)], [(1, 50)], [(0, 0), (2, 50), (7, 80)], [(5, 90)], []])
@pytest.mark.parametrize("log_start", [0, 50, 60])
@pytest.mark.parametrize("clean", [True, False])
def test_leader_epochs_are_those_of_a_broker_that_has_loaded_the_log(oracle, tmp_path, stored, log_start, clean):
    """The checkpoint was given as it is: epochs from before the log start, and one of a leader that wrote nothing."""
    path = tmp_path / "log" / "t-0"
    with kseg.create_log(path, clock=lambda: NOW_MS / 1000) as writer:
        for _ in range(80):
            writer.append(pa.table({"value": [b"v"]}))
    lines = [f"{epoch} {start}\n" for epoch, start in stored]
    (path / "leader-epoch-checkpoint").write_text(f"0\n{len(lines)}\n" + "".join(lines))
    (path.parent / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {log_start}\n")
    if clean:
        (path.parent / ".kafka_cleanshutdown").write_bytes(b"")
    log = kseg.open_log(path)
    loaded = oracle.load(shutil.copytree(path, tmp_path / "kafkas" / "t-0"), logStart=log_start, clean=clean)
    assert [list(entry) for entry in log.leader_epochs()] == loaded["epochs"]
    assert log.latest_epoch == max((epoch for epoch, _ in stored), default=-1 if clean else 0)
