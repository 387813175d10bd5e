"""Damaged logs, recovered by kseg as Kafka does it and by Kafka's own loader: the same files, the same state."""

from __future__ import annotations

import contextlib
import random
import shutil

import pytest

import kseg
from tests.kafka.oracle import OracleError
from tests.recovery.damages import copy, damage
from tests.recovery.states import (
    CHECKPOINTS,
    CONFIG,
    EPOCHS,
    NOW,
    assert_same_files,
    content,
    settled,
    state_of,
    write_checkpoints,
)
from tests.scale import counts

DAMAGES = counts(100)
GROUPS = 10


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
                log = kseg.open_log(ours)
                log.was_clean = True  # what is stored, without what the next start would find in the batches
                epochs = log.leader_epochs() if (ours / EPOCHS).exists() else []
                assert [list(entry) for entry in epochs] == state["epochs"]
            except (AssertionError, kseg.KsegError) as error:
                error.add_note(f"damage {number}: {done}")
                raise
        shutil.rmtree(folder, ignore_errors=True)
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
