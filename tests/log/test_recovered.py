"""Logs of which a broker that starts recovers some segments: what it believes there of the files beside the batches."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kseg
from kseg.index.producer import parse_snapshot
from kseg.log.partition import open_log
from kseg.log.producers import ProducerState
from kseg.log.recovered import Recovery
from tests.builders import LogBuilder
from tests.log.test_log_start import CONFIG, told
from tests.scale import counts

NOW_MS = 1_700_000_600_000
SEEDS_PER_TEST = 10
MARKER = ".kafka_cleanshutdown"


def clock():
    return NOW_MS / 1000


def values(count):
    return pa.table({"value": [b"v"] * count, "timestamp": [NOW_MS - 1000] * count})


def checkpoint(directory, kind, offset):
    (directory.parent / f"{kind}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")


def undecided(tmp_path, recovery_point, log_start=10):
    """Three segments with a snapshot at the base of each; before the log start a transaction began that never ended."""
    directory = tmp_path / "data" / "t-0"
    with kseg.create_log(directory, clock=clock) as writer:
        writer.append(values(5), producer_id=7, transactional=True)
        writer.append(values(5))
        for _ in range(2):
            writer.roll()
            writer.append(values(10), producer_id=8)
    (directory / f"{30:020d}.snapshot").unlink()  # a crash writes none
    checkpoint(directory, "log-start", log_start)
    checkpoint(directory, "recovery-point", recovery_point)
    return directory


def loaded(oracle, directory, home, **options):
    return oracle.load(shutil.copytree(directory, home / "kafkas" / "t-0"), now=NOW_MS, **options)


@pytest.mark.parametrize("indexes", ["indexes", "no indexes"])
@pytest.mark.parametrize("shutdown", ["crash", "clean"])
@pytest.mark.parametrize("recovery_point", [0, 10, 15, 20, 30])
def test_a_transaction_from_below_the_log_start_withheld_records_that_a_broker_gives(
    oracle, tmp_path, recovery_point, shutdown, indexes
):
    """Snapshots above a segment that a broker recovers told of it; it deletes them before it reads the segment."""
    directory = undecided(tmp_path, recovery_point)
    if shutdown == "clean":
        (directory.parent / MARKER).write_bytes(b"")
    if indexes == "no indexes":
        for path in directory.glob("*.index"):
            path.unlink()
    options = {"logStart": 10, "recoveryPoint": recovery_point, "clean": shutdown == "clean"}
    expected = loaded(oracle, directory, tmp_path, **options)
    log = kseg.open_log(directory)
    assert log.last_stable_offset == expected["lastStable"]
    read = log.read(isolation="read_committed", columns=["offset"])
    assert [offset for batch in read for offset in batch.column(0).to_pylist()] == list(
        range(10, expected["lastStable"])
    )
    assert told(log.producers()) == expected["producers"]


def generated(oracle, home: Path, seed):
    """A log of Kafka's own with all its snapshots, some of which are cleaned; its log start and recovery point."""
    rng = random.Random(seed)
    directory = home / "data" / "t-0"
    state = oracle.gen(
        directory, seed, 100, txn=0.5, gap=0.2, roll=rng.choice([0.05, 0.2]), legacy=rng.choice([0, 0.3])
    )
    if rng.random() < 0.5:
        oracle.clean(directory, 0, NOW_MS)
    end, bases = state["logEnd"], [int(path.stem) for path in sorted(directory.glob("*.log"))]
    log_start = rng.choice([0, rng.choice(bases), rng.randrange(end + 1)])
    recovery_point = rng.choice([0, log_start, rng.randrange(end + 1), rng.choice(bases)])
    checkpoint(directory, "log-start", log_start)
    checkpoint(directory, "recovery-point", recovery_point)
    if rng.random() < 0.3:
        rng.choice(sorted(directory.glob("*.index"))).unlink()
    return directory, {"logStart": log_start, "recoveryPoint": recovery_point, "clean": False}


@pytest.mark.parametrize("first", range(0, counts(30), SEEDS_PER_TEST))
def test_snapshots_that_a_broker_deletes_were_believed(oracle, tmp_path, first):
    for seed in range(first, first + SEEDS_PER_TEST):
        home = tmp_path / str(seed)
        directory, options = generated(oracle, home, seed)
        expected = loaded(oracle, directory, home, **options)
        log = kseg.open_log(directory)
        what = f"seed {seed}, {options}"
        assert (log.start_offset, log.end_offset) == (expected["logStart"], expected["logEnd"]), what
        assert log.last_stable_offset == expected["lastStable"], what
        assert told(log.producers()) == expected["producers"], what


def test_a_producer_that_was_silent_for_long_is_forgotten_by_a_brokers_clock(oracle, tmp_path):
    """A broker that recovers a log knows it by the batches until the time is over; a reader has no such clock."""
    directory = undecided(tmp_path, 0)
    log = kseg.open_log(directory)
    assert [p.producer_id for p in log.producers()] == [8]
    later = NOW_MS + 2**31
    kafkas = shutil.copytree(directory, tmp_path / "later" / "t-0")
    assert oracle.load(kafkas, logStart=10, recoveryPoint=0, clean=False, now=later)["producers"] == []
    assert told(log.producers()) == loaded(oracle, directory, tmp_path, logStart=10, clean=False)["producers"]


def snapshots_of(directory):
    """Producers by the offset of each snapshot."""
    return {int(path.stem): told(parse_snapshot(path.read_bytes())) for path in directory.glob("*.snapshot")}


def test_appending_after_a_crash_made_a_transaction_from_below_the_log_start_undecided_for_good(oracle, tmp_path):
    """The snapshots were kept, and the recovery point moved behind them: no broker looked at the batches again."""
    directory = undecided(tmp_path, 0)
    kafkas = shutil.copytree(directory, tmp_path / "kafkas" / "t-0")
    expected = oracle.load(kafkas, logStart=10, recoveryPoint=0, clean=False, now=NOW_MS)
    assert expected["lastStable"] == 30
    with kseg.append_to(directory, clock=clock) as writer:
        # written anew, for brokers copy it to a tier with its segment
        assert snapshots_of(directory)[20] == snapshots_of(kafkas)[20]
        writer.append(values(1))
    for clean in (False, True):
        copy = shutil.copytree(directory, tmp_path / str(clean) / "t-0")
        after = oracle.load(copy, logStart=10, recoveryPoint=31, clean=clean, now=NOW_MS)
        assert (after["lastStable"], after["producers"]) == (31, expected["producers"])


@pytest.mark.parametrize("first", range(100, 100 + counts(30), SEEDS_PER_TEST))
def test_appending_after_a_crash_kept_producers_that_a_broker_forgets(oracle, tmp_path, first):
    for seed in range(first, first + SEEDS_PER_TEST):
        home = tmp_path / str(seed)
        directory, options = generated(oracle, home, seed)
        expected = loaded(oracle, directory, home, **options)
        with kseg.append_to(directory, config=CONFIG, clock=clock) as writer:
            assert writer.next_offset == expected["logEnd"], seed
            writer.append(values(1))
        assert snapshots_of(directory)[expected["logEnd"] + 1] == expected["producers"], f"seed {seed}, {options}"
        options["recoveryPoint"] = expected["logEnd"] + 1
        again = oracle.load(directory, **options, now=NOW_MS)
        decided = expected["lastStable"] == expected["logEnd"]
        assert again["lastStable"] == expected["lastStable"] + decided, f"seed {seed}, {options}"


def forgotten(tmp_path):
    """The log starts inside a segment, with a transaction from below that no snapshot knows any more.

    A follower that truncates loads its producers anew from the log start on, and its next snapshot is without them.
    """
    directory = tmp_path / "data" / "t-0"
    with kseg.create_log(directory, clock=clock) as writer:
        writer.append(values(3), producer_id=3, transactional=True)
        writer.append(values(5))
        writer.append(values(2), producer_id=4, transactional=True)
        writer.roll()
        writer.append(values(5))
    for path in directory.glob("*.snapshot"):
        state = ProducerState.from_snapshot(path.read_bytes(), int(path.stem))
        path.write_bytes(state.only(np.array([4], np.int64)).to_snapshot_bytes())
    checkpoint(directory, "log-start", 6)
    return directory


@pytest.mark.parametrize("recovery_point", [0, 9, 10, 15])
def test_a_transaction_from_below_the_log_start_was_not_heard_from_the_batches(oracle, tmp_path, recovery_point):
    """`producers()` told of it, and the last stable offset did not."""
    directory = forgotten(tmp_path)
    checkpoint(directory, "recovery-point", recovery_point)
    expected = loaded(oracle, directory, tmp_path, logStart=6, recoveryPoint=recovery_point, clean=False)
    assert expected["lastStable"] == (3 if recovery_point < 10 else 8)
    log = kseg.open_log(directory)
    assert log.last_stable_offset == expected["lastStable"]
    assert told(log.producers()) == expected["producers"]
    with kseg.append_to(directory, clock=clock):
        pass
    (directory.parent / MARKER).unlink(missing_ok=True)
    after = oracle.load(directory, logStart=6, recoveryPoint=15, clean=False, now=NOW_MS)
    assert (after["lastStable"], after["producers"]) == (expected["lastStable"], expected["producers"])


def test_a_leader_epoch_that_only_the_batches_tell_was_not_heard_and_fell(oracle, tmp_path):
    """With an older checkpoint, as of a backup or a lost rename, the next batch got an epoch below the last."""
    directory = tmp_path / "data" / "t-0"
    with kseg.create_log(directory, clock=clock) as writer:
        writer.append(values(5), leader_epoch=1)
        writer.append(values(5), leader_epoch=5)
        writer.roll()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    log = kseg.open_log(directory)
    expected = loaded(oracle, directory, tmp_path, clean=False)["epochs"]
    assert [list(entry) for entry in log.leader_epochs()] == expected == [[1, 0], [5, 5]]
    assert log.latest_epoch == 5
    with kseg.append_to(directory, clock=clock) as writer:
        with pytest.raises(kseg.OptionError, match="below the log's last one, 5"):
            writer.append(values(1), leader_epoch=4)
        writer.append(values(5))
    assert [batch.leader_epoch for batch in kseg.open_log(directory).batches()] == [1, 5, 5]
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n5 5\n"
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    (directory.parent / MARKER).write_bytes(b"")
    assert kseg.open_log(directory).latest_epoch == 1  # a broker believes it then
    (directory / f"{0:020d}.index").unlink()
    assert kseg.open_log(directory).latest_epoch == 5


@pytest.mark.parametrize("first", range(200, 200 + counts(20), SEEDS_PER_TEST))
def test_leader_epochs_of_recovered_segments_were_not_heard(oracle, tmp_path, first):
    for seed in range(first, first + SEEDS_PER_TEST):
        home = tmp_path / str(seed)
        directory, options = generated(oracle, home, seed)
        (directory / "leader-epoch-checkpoint").write_text("0\n0\n" if seed % 2 else "0\n1\n0 0\n")
        expected = loaded(oracle, directory, home, **options)
        log = kseg.open_log(directory)
        assert [list(entry) for entry in log.leader_epochs()] == expected["epochs"], f"seed {seed}, {options}"


def test_a_log_without_producers_was_read_once_more_to_find_none(tmp_path, monkeypatch):
    builder = LogBuilder(tmp_path / "data", "orders")
    for _ in range(3):
        builder.segment().record(b"a", b"1").record(b"b", b"2")
    directory = builder.write()
    for base in (2, 4):
        (directory / f"{base:020d}.snapshot").write_bytes(ProducerState(base).to_snapshot_bytes())
    replays = []
    replay = Recovery.replay

    def counted(self, *args, **kwargs):
        replays.append(args)
        return replay(self, *args, **kwargs)

    monkeypatch.setattr(Recovery, "replay", counted)
    log = open_log(directory)
    assert not log.was_clean
    assert (log.producers(), log.knows_producers, log.last_stable_offset) == ([], False, 6)
    assert [limit for _, _, limit in replays] == [6, 6]  # none from the first segment on
