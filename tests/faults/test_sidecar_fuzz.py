"""Damaged sidecar files never change the rows of a read, and never end in anything but an answer or a `KsegError`."""

from __future__ import annotations

import random
import shutil

import pytest

import kseg
from tests.faults.mutations import BYTE_MUTATORS
from tests.reference.rows import records_of
from tests.scale import JIT_DISABLED, counts

PARTITIONS = ("tx-0",) if JIT_DISABLED else ("tx-0", "multi-segment-0", "retained-0")  # the others are large
SIDECARS = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")
CASES = 10


def damaged(rng, content):
    choice = rng.randrange(5)
    if choice == 0:
        return b""
    if choice == 1:
        return bytes(rng.randrange(1, 4000))
    if choice == 2:
        return rng.randbytes(rng.randrange(1, 200))
    if not content:
        return b"\xff" * 12
    for _ in range(rng.randrange(1, 5)):
        content = rng.choice(BYTE_MUTATORS)(rng, content or b"\x00", content or b"\x00")
    return content


def answers(log):
    """Every question that a sidecar file may answer; the rows of a full read first."""
    yield lambda: records_of(log.read())
    yield lambda: (log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset, log.topic_id)
    yield lambda: records_of(log.read(isolation="read_committed"))
    yield lambda: records_of(log.read(log.start_offset + 7, log.start_offset + 60))
    yield lambda: [log.offset_for_time(stamp) for stamp in (0, 1_700_000_000_500, 1_700_000_003_000, 1 << 60)]
    yield lambda: log.aborted_transactions(log.start_offset, log.end_offset)
    yield log.producers
    yield log.leader_epochs
    yield lambda: list(log.batches())
    yield lambda: [(segment.base_offset, segment.next_offset, segment.max_timestamp) for segment in log.segments]


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("shard", range(2))
def test_damaged_sidecars(golden, tmp_path, name, shard):
    whole = records_of(kseg.open_log(golden / "before" / name).read())
    for case in range(counts(CASES)):
        rng = random.Random(f"{name} {shard} {case}")
        directory = tmp_path / str(case) / name
        shutil.copytree(golden / "before" / name, directory)
        files = sorted(path for path in directory.iterdir() if path.name.endswith(SIDECARS))
        for path in rng.sample(files, min(len(files), rng.choice((1, 1, 3, 20)))):
            path.chmod(0o644)
            path.write_bytes(damaged(rng, path.read_bytes()))
        check(directory, whole, f"{name} {shard} {case}")
        shutil.rmtree(tmp_path / str(case))


def check(directory, whole, seed):
    log = kseg.open_log(directory)
    for number, question in enumerate(answers(log)):
        try:
            answer = question()
        except kseg.KsegError as error:
            assert error.path is not None, f"seed {seed!r}: no path: {error!r}"
            assert number > 0, f"seed {seed!r}: rows need no sidecar: {error}"
        except Exception as error:
            raise AssertionError(f"seed {seed!r}, question {number}: {type(error).__name__}: {error}") from error
        else:
            if number == 0:
                inside = [record for record in whole if record.offset >= log.start_offset]
                assert answer == inside, f"seed {seed!r}: other rows"
