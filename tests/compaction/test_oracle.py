"""kseg's compaction against Kafka's own cleaner: the same batches, field by field and record by record."""

from __future__ import annotations

import random
import shutil

import pytest

from kseg.compaction import CleanerConfig, compact
from kseg.log.checkpoints import CheckpointKind, read_checkpoint
from kseg.storage import LocalStore
from kseg.types import TopicPartition
from tests.compaction.rounds import START_MS, UNLIMITED, GrowingLog, Setup
from tests.kafka.oracle import Oracle
from tests.scale import counts

pytestmark = pytest.mark.oracle
LAST_MS = 2**63 - 1
SEEDS_PER_TEST = 5
INSIDE_SEEDS = range(200, 200 + counts(6))
REBUILT_SEEDS = (1063, 1144, 1232, 1275, *range(1500, 1496 + counts(6)))
SNAPSHOT_SEEDS = (11, 29, *range(101, 95 + counts(5), 2))  # producers of odd ones expire in every other round


def log_sizes(directory) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in directory.glob("*.log")}


def check_rounds(oracle: Oracle, home, seed: int, *, snapshots: bool = False, **config) -> int:
    setup = Setup(seed)
    log = GrowingLog(oracle, home, setup, snapshots=snapshots)
    rounds = 0
    for step in log.steps():
        same_sizes = log_sizes(log.ours) == log_sizes(log.theirs)
        report = compact(
            log.ours, config=setup.config(step.number, **config), now_ms=step.now_ms, first_dirty=step.first_dirty
        )
        (done,) = report.partitions
        assert done.error is None
        if done.skipped is not None:
            continue
        answer = oracle.clean(log.theirs, step.first_dirty, step.now_ms, **setup.oracle_options(step.number))
        assert done.checkpoint == answer["endOffset"]
        ours, theirs = oracle.dump(log.ours), oracle.dump(log.theirs)
        if not same_sizes:  # an earlier round's compressed batches differ in size, and so do groups of segments
            ours, theirs = ([batch | {"segment": None} for batch in dump] for dump in (ours, theirs))
        assert ours == theirs, f"seed {seed}, round {step.number}"
        checkpoint = read_checkpoint(LocalStore(), str(log.ours.parent), CheckpointKind.CLEANER)
        assert checkpoint == {TopicPartition("t", 0): answer["endOffset"]}
        log.first_dirty = answer["endOffset"]
        rounds += 1
    return rounds


@pytest.mark.parametrize("first_seed", range(0, counts(100), SEEDS_PER_TEST))
def test_rounds_leave_the_same_batches_as_the_cleaner(oracle, tmp_path, first_seed):
    rounds = 0
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        strategy = "spill" if seed % 8 in (2, 7) else "memory"  # those with 3, 7, 11 ... have legacy batches
        rounds += check_rounds(oracle, tmp_path / str(seed), seed, strategy=strategy)
    assert rounds >= SEEDS_PER_TEST


@pytest.mark.parametrize(
    ("retention_ms", "now_ms"),
    [
        (LAST_MS, START_MS),
        (LAST_MS - START_MS, START_MS),
        (LAST_MS - START_MS + 1, START_MS),
        (LAST_MS, LAST_MS),
        (1000, LAST_MS - 1000),
        (1000, LAST_MS - 999),
    ],
)
def test_a_delete_horizon_behind_the_last_millisecond_ended_the_run(oracle, tmp_path, retention_ms, now_ms):
    """The cleaner's sum of clock and delete.retention.ms becomes negative, and tombstones stay without a horizon."""
    for codec, legacy in (("none", 0), ("lz4", 0.3)):
        ours, theirs = (tmp_path / codec / name / "t-0" for name in ("ours", "theirs"))
        oracle.gen(theirs, 4, 120, codec=codec, txn=0.3, keys=8, roll=0.1, legacy=legacy)
        shutil.copytree(theirs, ours)
        config = CleanerConfig(
            delete_retention_ms=retention_ms,
            index_interval_bytes=256,
            segment_bytes=1 << 20,
            producer_id_expiration_ms=UNLIMITED,
        )
        for clock_ms in (now_ms, min(now_ms + 1, LAST_MS), min(now_ms + 1000, LAST_MS)):
            (done,) = compact(ours, config=config, now_ms=clock_ms, first_dirty=0).partitions
            assert (done.error, done.skipped) == (None, None)
            options = {"delete.retention.ms": retention_ms, "producer.id.expiration.ms": UNLIMITED}
            oracle.clean(theirs, 0, clock_ms, **options)
            assert oracle.dump(ours) == oracle.dump(theirs), f"{codec}, at {clock_ms}"
            assert codec != "none" or log_sizes(ours) == log_sizes(theirs)


@pytest.mark.parametrize("seed", SNAPSHOT_SEEDS)
def test_without_a_clean_shutdown_no_snapshot_behind_what_was_flushed_is_believed(oracle, tmp_path, seed):
    """A producer that had expired when a round took its last batch comes back with an earlier one, as at a start-up."""
    assert check_rounds(oracle, tmp_path, seed, snapshots=True)


@pytest.mark.parametrize("strategy", ["memory", "spill"])
def test_a_round_that_begins_inside_a_segment_takes_the_same_transactions_for_aborted(oracle, tmp_path, strategy):
    """The cleaner does not see markers before the index entry that it starts at, but knows of their transactions."""
    rounds = 0
    for seed in INSIDE_SEEDS:
        ours, theirs = tmp_path / str(seed) / "ours" / "t-0", tmp_path / str(seed) / "theirs" / "t-0"
        state = oracle.gen(theirs, seed, 200, codec="none", txn=0.95, life=100, roll=0.02, keys=30, gap=0)
        shutil.copytree(theirs, ours)
        setup = Setup(0)  # with the oracle's own settings
        first = min(state["lastStable"], state["segments"][-1][0]) * 2 // 3
        (done,) = compact(
            ours, config=setup.config(0, strategy=strategy), now_ms=START_MS, first_dirty=first
        ).partitions
        if done.skipped is None:
            oracle.clean(theirs, first, START_MS)
            assert oracle.dump(ours) == oracle.dump(theirs), f"seed {seed}"
            rounds += 1
    assert rounds


@pytest.mark.parametrize("seed", REBUILT_SEEDS)
def test_a_round_inside_a_cleaned_segment_knows_the_aborted_transactions_that_a_broker_finds_when_it_starts(
    oracle, tmp_path, seed
):
    """Without a clean shutdown it rebuilds transaction indexes: one whose batches an earlier round took is in none."""
    rng = random.Random(seed)
    options = {"txn": rng.choice([0.4, 0.9, 0.95]), "life": rng.choice([5, 25, 100])}
    options |= {"roll": rng.choice([0.01, 0.02, 0.05]), "keys": rng.choice([5, 30, 100]), "gap": rng.choice([0, 0.1])}
    source, ours, theirs = (tmp_path / name / "t-0" for name in ("source", "ours", "theirs"))
    oracle.gen(source, seed, rng.choice([150, 250, 400]), codec="none", **options)
    bases = sorted(int(path.stem) for path in source.glob("*.log"))
    parts = rng.choice([2, 3])
    now_ms = START_MS
    ours.mkdir(parents=True)
    theirs.mkdir(parents=True)
    for number in range(parts):
        for base in bases[number * len(bases) // parts : (number + 1) * len(bases) // parts]:
            for file in source.glob(f"{base:020d}.*[!t]"):  # all but the snapshot
                shutil.copy2(file, ours)
                shutil.copy2(file, theirs)
        last = max((int(path.stem) for path in ours.glob("*.log")), default=0)
        if not last:  # a log that never rolled has nothing to clean
            continue
        first = 0 if number == 0 and rng.random() < 0.5 else rng.randrange(last + 1)
        expiration_ms = rng.choice([1000, UNLIMITED])
        config = CleanerConfig(
            delete_retention_ms=1000,
            index_interval_bytes=256,
            segment_bytes=1 << 20,
            producer_id_expiration_ms=expiration_ms,
            strategy=rng.choice(["memory", "spill"]),
        )
        (done,) = compact(ours, config=config, now_ms=now_ms, first_dirty=first).partitions
        if done.skipped is None:
            oracle.clean(theirs, first, now_ms, **{"producer.id.expiration.ms": expiration_ms})
            assert oracle.dump(ours) == oracle.dump(theirs), f"round {number}"
        now_ms += rng.choice([100, 700, 5000])


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("first_seed", range(0, counts(30), SEEDS_PER_TEST))
def test_transactions_aborted_below_the_log_start_are_not_looked_for(oracle, tmp_path, first_seed, is_clean):
    """Records of theirs that lie in a segment behind the log start went, where the cleaner keeps them."""
    rounds = 0
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        rng = random.Random(seed)
        ours, theirs = (tmp_path / str(seed) / name / "t-0" for name in ("ours", "theirs"))
        options = {"txn": rng.choice([0.4, 0.9]), "life": rng.choice([2, 5, 25]), "roll": rng.choice([0.02, 0.08, 0.2])}
        options |= {"keys": rng.choice([3, 20, 200]), "gap": rng.choice([0, 0.1, 0.6])}
        bases = [base for base, _ in oracle.gen(theirs, seed, 150, codec="none", **options)["segments"]]
        if len(bases) == 1:
            continue
        shutil.copytree(theirs, ours)
        log_start = rng.choice([rng.choice(bases), rng.randrange(1, bases[-1] + 1)])
        flushed = rng.choice([0, rng.choice(bases), rng.randrange(bases[-1] + 1)])
        for name, offset in (("log-start", log_start), ("recovery-point", flushed)):
            (ours.parent / f"{name}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
        if is_clean:
            (ours.parent / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
        now_ms = START_MS
        for number in range(2):
            expiration_ms = rng.choice([1000, 60_000, UNLIMITED])
            config = CleanerConfig(
                delete_retention_ms=1000,
                index_interval_bytes=256,
                segment_bytes=1 << 20,
                producer_id_expiration_ms=expiration_ms,
            )
            last = max(int(path.stem) for path in ours.glob("*.log"))
            first = max(log_start, rng.choice([0, rng.randrange(last + 1)]))
            (done,) = compact(ours, config=config, now_ms=now_ms, first_dirty=first).partitions
            assert done.error is None
            if done.skipped is None:
                loaded = {"logStart": log_start, "recoveryPoint": flushed, "clean": is_clean}
                oracle.clean(theirs, first, now_ms, **loaded, **{"producer.id.expiration.ms": expiration_ms})
                what = f"seed {seed}, round {number}, log start {log_start}, recovery point {flushed}, from {first}"
                assert oracle.dump(ours) == oracle.dump(theirs), what
                rounds += 1
            now_ms += rng.choice([100, 5000])
    assert rounds
