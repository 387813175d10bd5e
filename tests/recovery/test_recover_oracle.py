"""Damaged logs, recovered by kseg as Kafka does it and by Kafka's own loader: the same files, the same state."""

from __future__ import annotations

import contextlib
import random
import shutil
import time

import pytest

import kseg
from kseg.index.producer import parse_snapshot
from tests.kafka.oracle import OracleError
from tests.recovery.damages import copy, damage
from tests.scale import counts

NOW = 1_700_000_600_000  # the oracle's clock
CONFIG = kseg.LogConfig(index_interval_bytes=256, producer_id_expiration_ms=2**31 - 1)
LOGS = 5
DAMAGES = counts(100)
GROUPS = 10
EPOCHS = "leader-epoch-checkpoint"
CHECKPOINTS = {"recoveryPoint": "recovery-point-offset-checkpoint", "logStart": "log-start-offset-checkpoint"}


@pytest.fixture(scope="module")
def logs(oracle, tmp_path_factory):
    """Random logs, and where each ends."""
    made = []
    for seed in range(LOGS):
        directory = tmp_path_factory.mktemp("logs") / "t-0"
        state = oracle.gen(directory, seed, 60, roll=0.1, legacy=0.3 if seed % 3 == 2 else 0)
        made.append((directory, state["logEnd"]))
    return made


def write_checkpoints(log_dir, recovery_point, log_start, *, clean):
    offsets = {"recoveryPoint": recovery_point, "logStart": log_start}
    for key, name in CHECKPOINTS.items():
        (log_dir / name).write_text(f"0\n1\nt 0 {offsets[key]}\n")
    if clean:
        (log_dir / ".kafka_cleanshutdown").write_bytes(b"{}")


def content(directory):
    """Every file of a partition directory with its bytes, but for what is transient."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def settled(directory):
    """The same, once the broker's delayed deletions are done."""
    for _ in range(500):
        try:
            found = content(directory)
        except FileNotFoundError:
            found = {".deleted": b""}
        if not any(name.endswith((".deleted", ".tmp")) for name in found):
            return found
        time.sleep(0.01)
    raise AssertionError(f"still there: {sorted(found)}")


def assert_same_files(ours, kafkas):
    """The same names, and the same bytes but for the order of producers and the length that indexes are given."""
    assert ours.keys() - {EPOCHS} == kafkas.keys() - {EPOCHS}
    for name, data in ours.items():
        other = kafkas.get(name, b"")
        if data == other or name == EPOCHS:
            continue
        if name.endswith(".snapshot"):
            assert sorted(parse_snapshot(data)) == sorted(parse_snapshot(other)), name
            continue
        size = {"index": 8, "timeindex": 12}.get(name.rpartition(".")[2])
        assert size is not None, name
        whole = data[: len(data) // size * size]
        # A file that a broker has opened is cut to whole entries, and padding of the last one can go.
        assert other in (whole, whole.rstrip(b"\0")) or whole.rstrip(b"\0") == other.rstrip(b"\0"), name


def state_of(directory):
    """What the oracle tells of a log that it has loaded."""
    log = kseg.open_log(directory)
    return {
        "logStart": log.start_offset,
        "logEnd": log.end_offset,
        "lastStable": log.last_stable_offset,
        "segments": [[segment.base_offset, segment.size] for segment in log.segments],
        "producers": [
            [p.producer_id, p.epoch, p.last_sequence, p.last_offset, p.timestamp, p.coordinator_epoch,
             p.txn_first_offset]
            for p in log.producers()
        ],
        "epochs": [list(entry) for entry in log.leader_epochs()],
    }  # fmt: skip


def recover_both(oracle, source, folder, rng, end):
    """Damage a log, let Kafka recover a copy; return both places, Kafka's state or None, and what was done."""
    log_dir = folder / "ours"
    ours = copy(source, log_dir / "t-0")
    done = damage(rng, ours)
    clean = rng.random() < 0.25
    recovery_point = rng.choice([0, 0, 0, end, rng.randrange(end + 1)])
    log_start = rng.choice([0, 0, 0, 0, rng.randrange(end + 1)])
    write_checkpoints(log_dir, recovery_point, log_start, clean=clean)
    kafkas = copy(ours, folder / "kafkas" / "t-0")
    done.append(f"clean={clean} recovery point {recovery_point} log start {log_start}")
    try:
        state = oracle.load(kafkas, recoveryPoint=recovery_point, logStart=log_start, clean=clean)
    except OracleError:
        state = None
    return ours, kafkas, state, done


@pytest.mark.parametrize("group", range(GROUPS))
def test_as_kafka_is_what_the_real_loader_does(oracle, logs, tmp_path, group):
    refused = 0
    for number in range(group, DAMAGES, GROUPS):
        rng = random.Random(number)
        source, end = rng.choice(logs)
        folder = tmp_path / str(number)
        ours, kafkas, state, done = recover_both(oracle, source, folder, rng, end)
        if state is None:  # Kafka cannot load it: kseg refuses it too, or does better
            refused += 1
            with contextlib.suppress(kseg.KsegError):
                kseg.recover(ours, as_kafka=True, config=CONFIG, now_ms=NOW)
        else:
            try:
                report = kseg.recover(ours, as_kafka=True, config=CONFIG, now_ms=NOW)
                [one] = report.partitions
                assert [one.start_offset, one.end_offset] == [state["logStart"], state["logEnd"]]
                assert_same_files(content(ours), settled(kafkas))
                assert not (ours / ".kseg").exists()
                epochs = kseg.open_log(ours).leader_epochs() if (ours / EPOCHS).exists() else []
                assert [list(entry) for entry in epochs] == state["epochs"]
            except (AssertionError, kseg.KsegError) as error:
                error.add_note(f"damage {number}: {done}")
                raise
        shutil.rmtree(folder)
    assert refused <= 8 * DAMAGES // (10 * GROUPS) + 3


def test_what_was_recovered_needs_no_second_recovery(oracle, logs, tmp_path):
    """Kafka's loader finds nothing more to do, and serves the state that kseg tells."""
    for number in range(counts(20)):
        rng = random.Random(1000 + number)
        source, end = rng.choice(logs)
        folder = tmp_path / str(number)
        ours, _, state, done = recover_both(oracle, source, folder, rng, end)
        if state is None:
            continue
        kseg.recover(ours, all=True, config=CONFIG, now_ms=NOW)
        again = kseg.recover(ours, all=True, config=CONFIG, now_ms=NOW)
        # Producers that only the snapshot at the log's start knows are forgotten the second time, as in a broker.
        assert [(one.cut_bytes, one.dropped_segments) for one in again.partitions] == [(0, ())], done
        third = kseg.recover(ours, all=True, config=CONFIG, now_ms=NOW)
        assert [one.status for one in third.partitions] == ["unchanged"], done
        log_start = int((ours.parent / CHECKPOINTS["logStart"]).read_text().split()[-1])
        shutil.rmtree(ours / ".kseg", ignore_errors=True)
        expected = state_of(ours)
        loaded = oracle.load(copy(ours, folder / "again" / "t-0"), logStart=log_start)
        assert loaded == expected, done
