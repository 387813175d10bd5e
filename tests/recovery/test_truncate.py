"""Truncation against Kafka's own, and where two replicas part."""

from __future__ import annotations

import random
import shutil

import pytest

import kseg
from kseg.index.epoch import EpochStart, LeaderEpochs
from kseg.recovery.lineage import diverging_offset
from tests.recovery.damages import copy
from tests.recovery.states import CONFIG, NOW, assert_same_files, content, settled, write_checkpoints
from tests.scale import counts


@pytest.mark.parametrize("clean", [True, False])
def test_truncation_is_kafkas(oracle, logs, tmp_path, clean):
    for number in range(counts(25)):
        rng = random.Random(number)
        source, end = rng.choice(logs)
        folder = tmp_path / str(number)
        ours = copy(source, folder / "ours" / "t-0")
        kafkas = copy(source, folder / "kafkas" / "t-0")
        log_start = rng.choice([0, 0, rng.randrange(end)])
        target = rng.choice([rng.randrange(end + 5), rng.randrange(end + 5), int(rng.choice(_bases(ours)))])
        write_checkpoints(ours.parent, 0, log_start, clean=clean)
        for name in ("replication-offset-checkpoint", "cleaner-offset-checkpoint"):
            (ours.parent / name).write_text(f"0\n1\nt 0 {end}\n")
        what = (number, log_start, target, end)
        state = oracle.truncate(kafkas, target, logStart=log_start, clean=clean)
        report = kseg.truncate(ours, target, config=CONFIG, now_ms=NOW)
        one = report.partitions[0]
        assert [one.start_offset, one.end_offset] == [state["logStart"], state["logEnd"]], what
        mine, theirs = content(ours), settled(kafkas)
        last = _bases(ours)[-1] + ".timeindex"
        if not theirs[last]:  # Kafka forgets the greatest timestamp where no entry is left
            mine[last] = b""
        assert_same_files(mine, theirs)
        log = kseg.open_log(ours)
        log.was_clean = True  # what is stored, without what the next start would find in the batches
        assert [list(entry) for entry in log.leader_epochs()] == state["epochs"], what
        cleaned = int(_bases(ours)[-1]) if target < end else end
        for name, limit in (("replication-offset", min(target, end)), ("cleaner-offset", cleaned)):
            assert (ours.parent / f"{name}-checkpoint").read_text() == f"0\n1\nt 0 {limit}\n"
        assert (ours.parent / ".kafka_cleanshutdown").exists() == clean
        shutil.rmtree(folder, ignore_errors=True)


def test_a_target_behind_the_end_takes_an_epoch_away_that_begins_at_the_end(oracle, logs, tmp_path):
    """Where all records are below the log start, the last epoch begins at the end; Kafka forgets it then."""
    source, end = logs[0]
    ours, kafkas = copy(source, tmp_path / "ours" / "t-0"), copy(source, tmp_path / "kafkas" / "t-0")
    write_checkpoints(ours.parent, end, end, clean=True)
    state = oracle.truncate(kafkas, end + 3, logStart=end, recoveryPoint=end, clean=True)
    kseg.truncate(ours, end + 3, config=CONFIG, now_ms=NOW)
    assert [list(entry) for entry in kseg.open_log(ours).leader_epochs()] == state["epochs"] == []


def test_a_log_that_is_cut_within_a_batch_is_not_cleaned_from_its_start_again(oracle, tmp_path):
    """A cleaner's checkpoint above the last record, as the target is there, makes a broker clean all of it again."""
    ours = tmp_path / "t-0"
    oracle.gen(ours, 7, 60, roll=0.1, rec=8, gap=0, txn=0)
    bases = [int(base) for base in _bases(ours)]
    batch = [one for one in oracle.dump(ours) if one["last"] > one["base"] and one["segment"] < bases[-1]][-1]
    cleaner = tmp_path / "cleaner-offset-checkpoint"
    cleaner.write_text(f"0\n1\nt 0 {bases[-1]}\n")
    write_checkpoints(tmp_path, bases[-1], 0, clean=True)
    kseg.truncate(ours, batch["last"], config=CONFIG, now_ms=NOW)
    left = int(cleaner.read_text().split()[-1])
    assert left == batch["segment"]
    assert oracle.cleanable(ours, left, NOW)["firstDirty"] == left


def _bases(directory):
    return sorted(path.name[:20] for path in directory.glob("*.log"))


def test_a_truncation_needs_one_target(logs, tmp_path):
    directory = copy(logs[0][0], tmp_path / "t-0")
    for arguments in ({}, {"offset": 3, "to_leader": tmp_path}, {"offset": -1}):
        with pytest.raises(kseg.OptionError):
            kseg.truncate(directory, **arguments)
    with pytest.raises(kseg.OptionError, match="no partition directory"):
        copy(logs[0][0], tmp_path / "t-1")
        kseg.truncate(tmp_path, 3)


def test_a_held_directory_is_refused(logs, tmp_path):
    directory = copy(logs[0][0], tmp_path / "t-0")
    before = content(directory)
    with kseg.append_to(directory, config=CONFIG):
        for call in (lambda: kseg.truncate(directory, 3), lambda: kseg.recover(directory)):
            with pytest.raises(kseg.LockedError):
                call()
    assert content(directory).keys() >= before.keys() - {"x"}


def epochs(*entries):
    return LeaderEpochs(tuple(EpochStart(*entry) for entry in entries))


@pytest.mark.parametrize(
    ("follower", "follower_end", "leader", "leader_end", "expected"),
    [
        (epochs((0, 0)), 10, epochs((0, 0)), 20, 10),  # it only lags behind
        (epochs((0, 0)), 30, epochs((0, 0)), 20, 20),  # it has what the leader never had
        (epochs((0, 0)), 30, epochs((0, 0), (1, 25)), 40, 25),  # the leader went on in a new epoch before its end
        (epochs((0, 0), (1, 20)), 30, epochs((0, 0), (2, 20)), 40, 20),  # an epoch that the leader never saw
        (epochs((0, 0), (1, 20), (3, 25)), 30, epochs((0, 0), (2, 10), (4, 12)), 40, 10),  # needs a second question
        (epochs((0, 0), (2, 20), (3, 25)), 30, epochs((0, 0), (1, 12), (4, 22)), 40, 12),
        (epochs((5, 0)), 10, epochs((6, 0)), 20, 0),  # nothing in common
    ],
)  # fmt: skip
def test_where_replicas_part(follower, follower_end, leader, leader_end, expected):
    assert diverging_offset(follower, follower_end, leader, leader_end, None) == expected


def test_a_leader_that_knows_less_leaves_the_high_watermark():
    assert diverging_offset(epochs((3, 0)), 10, epochs((2, 0)), 20, 7) == 7
    assert diverging_offset(epochs((3, 0)), 10, epochs((2, 0)), 20, None) is None
    assert diverging_offset(epochs(), 10, epochs((2, 0)), 20, 7) == 7


def test_a_replica_is_cut_back_to_its_leader(tmp_path):
    from tests.log.written import clock, numbered

    for name, suffix in (("leader", b"x"), ("follower", b"y")):
        with kseg.create_log(tmp_path / name / "a-0", clock=clock, topic_id="A" * 21 + "g") as log:
            log.append(numbered(20), leader_epoch=0, batch_records=5)
            log.append(numbered(10), leader_epoch=1 if suffix == b"y" else 2, batch_records=5)
    report = kseg.truncate(tmp_path / "follower" / "a-0", to_leader=tmp_path / "leader" / "a-0")
    assert report.partitions[0].end_offset == 20
    log = kseg.open_log(tmp_path / "follower" / "a-0")
    assert (log.end_offset, [list(e) for e in log.leader_epochs()]) == (20, [[0, 0]])
    kseg.undo_repair(tmp_path / "follower")
    assert kseg.open_log(tmp_path / "follower" / "a-0").end_offset == 30


def test_another_topics_log_is_no_leader(tmp_path):
    from tests.log.written import clock, numbered

    for name in ("a", "b"):
        with kseg.create_log(tmp_path / name / "a-0", clock=clock) as log:
            log.append(numbered(5))
    with pytest.raises(kseg.OptionError, match="topic id"):
        kseg.truncate(tmp_path / "a" / "a-0", to_leader=tmp_path / "b" / "a-0")
