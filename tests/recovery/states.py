"""What a partition directory holds, and what has to be equal between two of them."""

from __future__ import annotations

import time

import kseg
from kseg.index.producer import parse_snapshot

NOW = 1_700_000_600_000  # the oracle's clock
CONFIG = kseg.LogConfig(index_interval_bytes=256, producer_id_expiration_ms=2**31 - 1)
EPOCHS = "leader-epoch-checkpoint"
CHECKPOINTS = {"recoveryPoint": "recovery-point-offset-checkpoint", "logStart": "log-start-offset-checkpoint"}


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
